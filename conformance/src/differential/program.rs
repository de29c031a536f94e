//! [`Program`]: the calls of some sessions, one after the other, in a form that means the same on
//! every store.

use std::fmt;

/// The number of sessions of a program.
pub(crate) const SESSIONS: usize = 3;
const NAMES: [&str; SESSIONS] = ["ann", "bob", "eve"];

/// Steps, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Commit {
        who: usize,
        acts: Vec<Act>,
        look: Option<Ask>,
    },
    Read {
        who: usize,
        ask: Ask,
    },
    /// The events are compared when the program is over.
    Observe {
        who: usize,
        ask: Ask,
    },
    Close {
        who: usize,
    },
    Expire {
        who: usize,
    },
}

/// An operation. Its place is a path below the program's directory, in which a sequential node has
/// the requested name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Act {
    pub(crate) place: String,
    pub(crate) verb: Verb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Create { data: u64, life: Life },
    Draw { data: u64, life: Life },
    Set { data: u64, wish: Wish },
    Delete { wish: Wish },
    Check { wish: Wish },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Persistent,
    Session,
    Container,
    /// A TTL so long that the node does not expire before the program ends.
    Hour,
}

/// The expected version of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Any,
    Absent,
    /// With the last reported version of this incarnation.
    Known,
    /// With an earlier reported version.
    Stale,
    /// A version that no store assigns.
    Never,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) place: String,
    pub(crate) reach: Reach,
    pub(crate) names_only: bool,
    pub(crate) local: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Node,
    Children {
        prefix: &'static str,
    },
    Subtree,
    Oldest(usize),
    Newest(usize),
    /// Before a ticket, given by its place.
    NewestBefore(usize, String),
}

/// The directory of a place; `None` for the program's own.
pub(crate) fn parent(place: &str) -> Option<&str> {
    match place.rsplit_once('/') {
        Some((parent, _)) => Some(parent),
        None => (!place.is_empty()).then_some(""),
    }
}

pub(crate) fn name(place: &str) -> &str {
    place.rsplit_once('/').map_or(place, |(_, name)| name)
}

pub(crate) fn is_below(place: &str, above: &str) -> bool {
    if above.is_empty() {
        return !place.is_empty();
    }
    place.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

impl Step {
    pub(crate) fn who(&self) -> usize {
        match self {
            Self::Commit { who, .. }
            | Self::Read { who, .. }
            | Self::Observe { who, .. }
            | Self::Close { who }
            | Self::Expire { who } => *who,
        }
    }
}

impl Ask {
    /// Returns `true` if a change of this place concerns the query.
    pub(crate) fn covers(&self, place: &str) -> bool {
        match self.reach {
            Reach::Node => place == self.place,
            Reach::Subtree => place == self.place || is_below(place, &self.place),
            Reach::Children { prefix } => {
                parent(place) == Some(&self.place) && name(place).starts_with(prefix)
            }
            // A window does not narrow an observation, but its prefix does.
            Reach::Oldest(_) | Reach::Newest(_) | Reach::NewestBefore(..) => {
                parent(place) == Some(&self.place) && name(place).starts_with(TICKET)
            }
        }
    }
}

/// The prefix of the names of all tickets, and of no other node: a store may also find numbers in
/// other names.
pub(crate) const TICKET: &str = "s";

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>4}  {step}", number + 1)?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", NAMES.get(self.who()).unwrap_or(&"no session"))?;
        match self {
            Self::Commit { acts, look, .. } => {
                for (index, act) in acts.iter().enumerate() {
                    let and = if index == 0 { "" } else { "; " };
                    write!(f, "{and}{act}")?;
                }
                look.as_ref().map_or(Ok(()), |ask| write!(f, "; and look at {ask}"))
            }
            Self::Read { ask, .. } => write!(f, "read {ask}"),
            Self::Observe { ask, .. } => write!(f, "observe {ask}"),
            Self::Close { .. } => f.write_str("close"),
            Self::Expire { .. } => f.write_str("expire"),
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        match self.verb {
            Verb::Create { data, life } => write!(f, "create {life} /{place} = {data}"),
            Verb::Draw { data, life } => write!(f, "create sequential {life} /{place} = {data}"),
            Verb::Set { data, wish } => write!(f, "set /{place} = {data} if {wish}"),
            Verb::Delete { wish } => write!(f, "delete /{place} if {wish}"),
            Verb::Check { wish } => write!(f, "check /{place} is {wish}"),
        }
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Persistent => "persistent",
            Self::Session => "ephemeral",
            Self::Container => "container",
            Self::Hour => "for an hour",
        })
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "there",
            Self::Absent => "absent",
            Self::Known => "as last known",
            Self::Stale => "as known before that",
            Self::Never => "in no version at all",
        })
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reach {
            Reach::Node => write!(f, "/{}", self.place)?,
            Reach::Children { prefix } => write!(f, "children {prefix}* of /{}", self.place)?,
            Reach::Subtree => write!(f, "subtree /{}", self.place)?,
            Reach::Oldest(count) => write!(f, "oldest {count} of /{}", self.place)?,
            Reach::Newest(count) => write!(f, "newest {count} of /{}", self.place)?,
            Reach::NewestBefore(count, ticket) => {
                write!(f, "newest {count} before /{ticket} of /{}", self.place)?;
            }
        }
        f.write_str(if self.names_only { ", names" } else { "" })?;
        f.write_str(if self.local { ", local" } else { "" })
    }
}
