//! [`Told`]: a store's answer in a form independent of the store. [`Translate`]: the conversion.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use synod_core::error::{Effect, Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{
    Node, OpResult, Outcome, RejectReason, Revision, Sequence, SessionEnd, SessionId, Stat, View,
};

use crate::actor::text_of;
use crate::differential::program::{Act, TICKET, Verb};

/// An answer.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Failed {
        kind: ErrorKind,
        effect: Effect,
        words: String,
    },
    Rejected {
        index: usize,
        place: String,
        why: RejectReason,
        look: Option<Vec<Entry>>,
    },
    Committed {
        revision: Option<Revision>,
        done: Vec<Entry>,
        look: Option<Vec<Entry>>,
    },
    Viewed(Vec<Entry>),
    Over(SessionEnd),
    /// No answer in time.
    Nothing {
        within: Duration,
    },
    /// The sender of the status is gone, and the last status is not `Lost`.
    Vanished,
}

/// A node in a result.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) place: String,
    pub(crate) data: Bytes,
    pub(crate) sequence: Option<Sequence>,
    pub(crate) stat: Option<Stat>,
    pub(crate) owner: Owner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Nobody,
    Session(usize),
    Stranger,
}

/// Converts between the places of a program and the paths of a store.
#[derive(Debug)]
pub(crate) struct Translate {
    pub(crate) dir: Path,
    pub(crate) owners: BTreeMap<SessionId, usize>,
    /// The places of tickets, each with the name that the store assigned.
    named: BTreeMap<String, String>,
}

impl Translate {
    pub(crate) fn new(dir: Path) -> Self {
        Self { dir, owners: BTreeMap::new(), named: BTreeMap::new() }
    }

    /// The path of a place.
    pub(crate) fn path(&self, place: &str) -> Path {
        let mut path = self.dir.clone();
        let mut so_far = String::new();
        for segment in place.split('/').filter(|segment| !segment.is_empty()) {
            if !so_far.is_empty() {
                so_far.push('/');
            }
            so_far.push_str(segment);
            let name = self.named.get(&so_far).map_or(segment, String::as_str);
            path = path.join(name).expect("programs use valid names");
        }
        path
    }

    /// The path of a create of a ticket.
    pub(crate) fn asked(&self, place: &str) -> Path {
        let (dir, name) = place.rsplit_once('/').unwrap_or(("", place));
        self.path(dir).join(name).expect("programs use valid names")
    }

    /// The place of a path.
    pub(crate) fn place(&self, path: &Path) -> String {
        if *path == self.dir {
            return String::new();
        }
        let Some(below) = path.relative_to(&self.dir) else {
            return format!("OUTSIDE:{path}");
        };
        below.segments().map(as_asked).collect::<Vec<_>>().join("/")
    }

    pub(crate) fn outcome(&mut self, outcome: Result<Outcome>, acts: &[Act]) -> Told {
        let commit = match outcome {
            Ok(Outcome::Committed(commit)) => commit,
            Ok(Outcome::Rejected(no)) => {
                let place = self.place(&no.path);
                let look = no.look.map(|view| self.entries(&view));
                return Told::Rejected { index: no.index, place, why: no.reason, look };
            }
            Err(error) => return Told::failed(&error),
        };
        for (act, done) in acts.iter().zip(&commit.results) {
            if matches!(act.verb, Verb::Draw { .. }) {
                self.named.insert(act.place.clone(), done.path.name().to_owned());
            }
        }
        let done = commit.results.iter().map(|done| self.done(done)).collect();
        let look = commit.look.map(|view| self.entries(&view));
        Told::Committed { revision: commit.revision, done, look }
    }

    pub(crate) fn view(&self, view: Result<View>) -> Told {
        match view {
            Ok(view) => Told::Viewed(self.entries(&view)),
            Err(error) => Told::failed(&error),
        }
    }

    fn entries(&self, view: &View) -> Vec<Entry> {
        view.nodes.iter().map(|node| self.entry(node)).collect()
    }

    fn entry(&self, node: &Node) -> Entry {
        Entry {
            place: self.place(&node.path),
            data: node.data.clone(),
            sequence: node.sequence,
            stat: node.stat,
            owner: self.owner(node.stat),
        }
    }

    fn done(&self, done: &OpResult) -> Entry {
        Entry {
            place: self.place(&done.path),
            data: Bytes::new(),
            sequence: done.sequence,
            stat: done.stat,
            owner: self.owner(done.stat),
        }
    }

    fn owner(&self, stat: Option<Stat>) -> Owner {
        match stat.and_then(|stat| stat.owner) {
            None => Owner::Nobody,
            Some(id) => self.owners.get(&id).map_or(Owner::Stranger, |who| Owner::Session(*who)),
        }
    }
}

/// A ticket's name without the suffix of the store.
fn as_asked(name: &str) -> &str {
    let Some((asked, added)) = name.split_once('-') else { return name };
    let is_ticket = asked.strip_prefix(TICKET).is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    if is_ticket { &name[..name.len() - added.len()] } else { name }
}

impl Told {
    pub(crate) fn failed(error: &Error) -> Self {
        Self::Failed { kind: error.kind(), effect: error.effect(), words: text_of(error) }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { words, .. } => write!(f, "an error: {words}"),
            Self::Rejected { index, place, why, look } => {
                write!(f, "rejected: operation {}, /{place}: {why}", index + 1)?;
                look.as_ref().map_or(Ok(()), |look| write!(f, ", looking at {}", listed(look)))
            }
            Self::Committed { done, look, .. } => {
                write!(f, "committed: {}", listed(done))?;
                look.as_ref().map_or(Ok(()), |look| write!(f, ", looking at {}", listed(look)))
            }
            Self::Viewed(entries) => f.write_str(&listed(entries)),
            Self::Over(why) => write!(f, "over: {why}"),
            Self::Nothing { within } => write!(f, "nothing within {within:?}"),
            Self::Vanished => f.write_str("a status that ends without being lost"),
        }
    }
}

fn listed(entries: &[Entry]) -> String {
    let shown: Vec<String> = entries.iter().map(ToString::to_string).collect();
    format!("[{}]", shown.join(", "))
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.place)?;
        if !self.data.is_empty() {
            write!(f, " = {}", String::from_utf8_lossy(&self.data))?;
        }
        if let Some(sequence) = self.sequence {
            write!(f, " #{sequence}")?;
        }
        match (self.stat, self.owner) {
            (None, _) => {}
            (Some(stat), owner) => {
                write!(f, " (c{} m{} v{}", stat.created, stat.modified, stat.version)?;
                match owner {
                    Owner::Nobody => {}
                    Owner::Session(who) => write!(f, " of session {}", who + 1)?,
                    Owner::Stranger => f.write_str(" of a stranger")?,
                }
                f.write_str(")")?;
            }
        }
        Ok(())
    }
}
