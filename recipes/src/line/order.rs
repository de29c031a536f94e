//! [`Tickets`]: the tickets of a line in their order. [`turn`] decides what a ticket does next. Pure: names in, decision
//! out.
//!
//! Which nodes are tickets, and what each claims, is said by [`marks`].

use synod_core::path::Path;
use synod_core::store::{Node, Revision, Sequence, SessionId, View};

use crate::line::marks::{self, Capacity, Claim};
use crate::line::permit_order::{PermitTurn, share};
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
pub(crate) struct Tickets {
    pub(super) entries: Vec<Entry>,
    /// How many permits there are, if a node says so.
    posted: Option<u32>,
}

/// The prefix of the name of the node that says how many permits there are.
pub(crate) const POSTED: &str = "limit-";

impl Tickets {
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
        let limit = if let Capacity::Permits(_) = capacity {
            smallest_limit(ahead).map_or(permits, |limit| limit.min(permits))
        } else {
            permits
        };
        let agree = ahead.iter().all(|other| other.all.is_none_or(|all| all == permits));
        match share(ahead.iter().map(|other| other.claim), claim, limit) {
            PermitTurn::Granted => Turn::Now,
            PermitTurn::Later if agree => {
                ahead.last().map_or(Turn::Next, |other| Turn::After(other.path.clone()))
            }
            // Where limits differ, the predecessor may be a holder, and any release may serve this ticket.
            PermitTurn::Next | PermitTurn::Later => Turn::Next,
        }
    }
}

impl Entry {
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

/// The smallest limit that these tickets name. No owner of a ticket of this library can name zero.
fn smallest_limit(tickets: &[Entry]) -> Option<u32> {
    tickets.iter().filter_map(|one| one.all).filter(|all| *all > 0).min()
}

/// Decides, from the line as it was seen, what the ticket `me` does next.
pub(crate) fn turn(queue: &Tickets, me: &Path, capacity: Capacity) -> Turn {
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

#[cfg(test)]
mod tests;
