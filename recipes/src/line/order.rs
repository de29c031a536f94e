//! [`Queue`]: the tickets of a line in their order. [`turn`] decides what a ticket does next. Pure: names in, decision
//! out.
//!
//! Which nodes are tickets, and what each claims, is said by [`marks`].

use std::time::SystemTime;

use synod_core::path::Path;
use synod_core::store::{Node, Query, Revision, Sequence, SessionId, View};

use crate::line::marks::{self, Capacity, Claim};
use crate::line::ticket_name;
use crate::mutant::mistake;

/// What a ticket does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is granted.
    Now,
    /// It waits until this predecessor is gone, or was granted.
    After(Path),
    /// It is the first waiter, and depends on all holders.
    Next,
    /// It is not in the line.
    Gone,
}

/// A ticket in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: Path,
    pub(crate) claim: Claim,
    pub(crate) created: Option<Revision>,
    pub(crate) owner: Option<SessionId>,
    /// How many permits there are, according to the owner of the ticket.
    pub(crate) all: Option<u32>,
    order: Sequence,
}

/// The tickets of a view, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queue {
    entries: Vec<Entry>,
    /// How many permits there are, if a node says so.
    posted: Option<u32>,
}

/// The prefix of the name of the node that says how many permits there are.
pub(crate) const POSTED: &str = "limit-";

/// What a writer writes to its ticket, in front of its label, when it downgrades. A ticket that contains this since
/// it was created is still a writer's.
pub(crate) const SHARES: &[u8] = b"__READ__";

impl Queue {
    pub(crate) fn of(view: &View) -> Self {
        let mut entries: Vec<Entry> = view.nodes.iter().filter_map(Entry::of).collect();
        entries.sort_by_key(|one| one.order);
        mistake!(SortsByName: entries.sort_by(|a, b| a.path.cmp(&b.path)));
        mistake!(OldDatesIgnored: entries.retain(|one| !crate::mutant::line::is_old(one)));
        let limits = view.nodes.iter().filter_map(|node| node.path.name().strip_prefix(POSTED));
        // There is only one. If there were two, the lower number would harm less.
        let posted = limits.filter_map(|limit| limit.parse().ok()).min();
        Self { entries, posted }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many permits there are.
    pub(crate) fn permits(&self, capacity: Capacity) -> Option<u32> {
        match capacity {
            Capacity::One => None,
            Capacity::Permits(permits) => Some(permits),
            Capacity::Posted => Some(self.posted.unwrap_or(0)),
        }
    }

    /// What a ticket that is created now does next.
    pub(crate) fn turn_behind(&self, claim: Claim, capacity: Capacity) -> Turn {
        self.turn_of(&self.entries, claim, capacity)
    }

    /// Marks these tickets as shared: they were downgraded.
    pub(crate) fn sharing(mut self, paths: &[Path]) -> Self {
        for one in self.entries.iter_mut().filter(|one| paths.contains(&one.path)) {
            one.claim = Claim::Shared;
        }
        self
    }

    /// Removes these paths, which are no tickets.
    pub(crate) fn without(mut self, paths: &[Path]) -> Self {
        if !paths.is_empty() {
            self.entries.retain(|one| !paths.contains(&one.path));
        }
        self
    }

    /// Whether any of the tickets may be a container: a listing of names does not always show that.
    pub(crate) fn is_unsure(&self) -> bool {
        self.entries.iter().any(|one| one.created.is_none())
    }

    /// Whether any of those has a name that no ticket of this library was given lately. A check of the other names,
    /// too, would cost a request for each lock that is held.
    pub(crate) fn has_suspects(&self, now: SystemTime) -> bool {
        self.entries.iter().any(|one| one.is_suspect(now))
    }

    /// Keeps the entry at this path only if its sequence is `place`: another node may have been created there since.
    pub(crate) fn placed(mut self, path: &Path, place: Sequence) -> Self {
        self.entries.retain(|one| one.path != *path || one.order == place);
        self
    }

    /// Whether there is a later ticket than this one.
    pub(crate) fn has_later_ticket(&self, me: &Path) -> bool {
        self.entries.last().is_some_and(|last| last.path != *me)
    }

    /// What a ticket after all those in `ahead` does next.
    fn turn_of(&self, ahead: &[Entry], claim: Claim, capacity: Capacity) -> Turn {
        let Some(permits) = self.permits(capacity) else {
            let shares = |other: &&Entry| claim == Claim::Shared && other.claim == claim;
            let blocking = ahead.iter().rev().find(|other| !shares(other));
            mistake!(WriterPassesReaders: let blocking = {
                ahead.iter().rev().find(|other| other.claim == Claim::Alone)
            });
            mistake!(ReaderPassesWriters: let blocking = {
                blocking.filter(|_| !ahead.first().is_some_and(|first| shares(&first)))
            });
            return blocking.map_or(Turn::Now, |other| Turn::After(other.path.clone()));
        };
        let weight = |claim| match claim {
            Claim::Permits(permits) => u64::from(permits),
            // An exclusive claim takes all permits that there are, and at least one.
            Claim::Alone | Claim::Shared => u64::from(permits).max(1),
        };
        let taken: u64 = ahead.iter().map(|other| weight(other.claim)).sum();
        mistake!(PermitsMiscounted: let taken = ahead.len() as u64);
        mistake!(PermitsBarge: let taken = {
            crate::mutant::line::fitting(ahead.iter().map(|other| weight(other.claim)), permits)
        });
        if taken + weight(claim) <= permits.into() {
            Turn::Now
        } else if taken <= permits.into() {
            // All earlier tickets are granted.
            Turn::Next
        } else {
            ahead.last().map_or(Turn::Next, |other| Turn::After(other.path.clone()))
        }
    }
}

/// A query that shows which names are those of containers: they have no stat.
pub(crate) fn with_stats(dir: &Path) -> Query {
    Query::children(dir.clone())
}

/// The containers in a listing with stats.
pub(crate) fn containers(view: &View) -> impl Iterator<Item = Path> + '_ {
    let nodes = view.nodes.as_slice();
    mistake!(ContainerIsTicket: let nodes = &nodes[..0]);
    nodes.iter().filter(|node| node.stat.is_none()).map(|node| node.path.clone())
}

impl Entry {
    /// Whether it may be a container, and its name is not one that this library gave to a ticket lately. A name that
    /// it gave longer ago may be a container's: somebody wrote below the path of a ticket that was gone.
    fn is_suspect(&self, now: SystemTime) -> bool {
        self.created.is_none() && !ticket_name::is_recent(self.path.name(), now)
    }

    /// The ticket that a node is, if it is one.
    pub(crate) fn of(node: &Node) -> Option<Self> {
        let sequence = node.sequence?;
        let (name, owner) = (node.path.name(), node.stat.and_then(|stat| stat.owner));
        // If the store adds no digits, a node is a ticket only if its name has the format of this library.
        let stem =
            marks::without_digits(name, sequence).or(name.starts_with("_c_").then_some(name));
        let all = stem.and_then(|stem| marks::permits(stem.strip_suffix("lease-")?).1);
        let claim = stem.and_then(marks::claim).or_else(|| {
            let is_owners = owner.is_some_and(|owner| owner.to_string() == name);
            mistake!(StrangersCount: let is_owners = true);
            is_owners.then_some(Claim::Alone)
        })?;
        Some(Self {
            path: node.path.clone(),
            claim,
            created: node.stat.map(|stat| stat.created),
            owner,
            all,
            order: sequence,
        })
    }
}

/// Decides, from the line as it was seen, what the ticket `me` does next.
pub(crate) fn turn(queue: &Queue, me: &Path, capacity: Capacity) -> Turn {
    let Some(place) = queue.entries.iter().position(|one| one.path == *me) else {
        mistake!(MissingIsFirst: return Turn::Now);
        return Turn::Gone;
    };
    let (ahead, own) = (&queue.entries[..place], &queue.entries[place]);
    let turn = queue.turn_of(ahead, own.claim, capacity);
    mistake!(WatchesFirst: if let Turn::After(_) = turn {
        return Turn::After(queue.entries[0].path.clone());
    });
    turn
}

/// Whether this is the ticket of a writer that downgraded.
pub(crate) fn shares(node: &Node) -> bool {
    // On any other ticket the data is a label, and a label may be anything.
    let is_writers = node.path.name().contains("__WRIT__");
    let written = node.stat.is_some_and(|stat| stat.modified != stat.created);
    let says_so = node.data.starts_with(SHARES);
    mistake!(LabelIsMode: return says_so);
    is_writers && written && says_so
}

#[cfg(test)]
mod tests;
