//! [`Tickets`]: the tickets of a queue in their order, and [`Contender`], which shows one of them
//! to a reader.
//!
//! [`turn`] decides what a ticket does next. It is a pure function of names. [`ticket_name`]
//! defines which nodes are tickets, and the claim of each.

use std::time::SystemTime;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::held::Token;
use synod_core::path::Path;
use synod_core::store::{Node, Query, Revision, Sequence, SessionId, View};

use crate::line::ticket_name::{self, Capacity, Claim, since};
use crate::mutant::mistake;

/// The next step of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The ticket is granted.
    Now,
    /// The ticket waits until this predecessor is gone, or was granted.
    After(Path),
    /// The ticket is the first waiter, and depends on all holders.
    Next,
    /// The ticket is not in the queue.
    Gone,
}

/// A ticket in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: Path,
    pub(crate) claim: Claim,
    pub(crate) created: Option<Revision>,
    pub(crate) owner: Option<SessionId>,
    /// The number of permits that exist, according to the owner of the ticket.
    pub(crate) all: Option<u32>,
    order: Sequence,
}

/// The tickets of a view, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tickets {
    pub(super) entries: Vec<Entry>,
    /// The number of permits that exist, if a node in the directory has it in its name.
    pub(super) posted: Option<u32>,
}

/// The prefix of the name of the node that contains the number of permits.
pub(crate) const POSTED: &str = "limit-";

impl Tickets {
    pub(crate) fn of(view: &View) -> Self {
        let mut entries: Vec<Entry> = view.nodes.iter().filter_map(Entry::of).collect();
        entries.sort_by_key(|one| one.order);
        mistake!(SortsByName: entries.sort_by(|a, b| a.path.cmp(&b.path)));
        mistake!(OldDatesIgnored: entries.retain(|one| !crate::mutant::line::is_old(one)));
        let limits = view.nodes.iter().filter_map(|node| node.path.name().strip_prefix(POSTED));
        // There should be only one. If there are two, the lower number is the safer choice.
        let posted = limits.filter_map(|limit| limit.parse().ok()).min();
        Self { entries, posted }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The number of permits that exist.
    pub(crate) fn permits(&self, capacity: Capacity) -> Option<u32> {
        match capacity {
            Capacity::One => None,
            Capacity::Permits(permits) => Some(permits),
            Capacity::Posted => Some(self.posted.unwrap_or(0)),
        }
    }

    /// The next step of a ticket that is created now.
    pub(crate) fn turn_behind(&self, claim: Claim, capacity: Capacity) -> Turn {
        self.turn_of(&self.entries, claim, capacity)
    }

    /// Keeps the entry at this path only if its sequence is `place`: another node may have been
    /// created at the path since.
    pub(crate) fn placed(mut self, path: &Path, place: Sequence) -> Self {
        self.entries.retain(|one| one.path != *path || one.order == place);
        self
    }

    /// Returns `true` if there is a later ticket than this one.
    pub(crate) fn has_later_ticket(&self, me: &Path) -> bool {
        self.entries.last().is_some_and(|last| last.path != *me)
    }

    /// Removes these paths, which are not tickets.
    pub(crate) fn without(mut self, paths: &[Path]) -> Self {
        if !paths.is_empty() {
            self.entries.retain(|one| !paths.contains(&one.path));
        }
        self
    }

    /// Returns `true` if any of the tickets may be a container: a listing of names does not always
    /// show that.
    pub(crate) fn is_unsure(&self) -> bool {
        self.entries.iter().any(|one| one.created.is_none())
    }

    /// Returns `true` if any entry that may be a container has a name that this library has not
    /// given to a ticket recently. Checking all names would cost a request for each held lock.
    pub(crate) fn has_suspects(&self, now: SystemTime) -> bool {
        self.entries.iter().any(|one| one.is_suspect(now))
    }

    /// Marks these tickets as shared: they were downgraded.
    pub(crate) fn sharing(mut self, paths: &[Path]) -> Self {
        for one in self.entries.iter_mut().filter(|one| paths.contains(&one.path)) {
            one.claim = Claim::Shared;
        }
        self
    }

    /// The next step of a ticket after all those in `ahead`.
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
            // If the limits differ, the predecessor may be a holder, and any release may grant this
            // ticket.
            PermitTurn::Next | PermitTurn::Later => Turn::Next,
        }
    }
}

impl Entry {
    /// The ticket that a node represents, if any.
    pub(crate) fn of(node: &Node) -> Option<Self> {
        let sequence = node.sequence?;
        let (name, owner) = (node.path.name(), node.stat.and_then(|stat| stat.owner));
        // If the store appends no digits, a node is a ticket only if its name has the format of
        // this library.
        let stem =
            ticket_name::without_digits(name, sequence).or(name.starts_with("_c_").then_some(name));
        let all = stem.and_then(|stem| ticket_name::permits(stem.strip_suffix("lease-")?).1);
        let claim = stem.and_then(ticket_name::claim).or_else(|| {
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

    /// Returns `true` if it may be a container, and its name is not one that this library gave to a
    /// ticket recently. An older name may belong to a container: a client may have written below
    /// the path of a removed ticket.
    fn is_suspect(&self, now: SystemTime) -> bool {
        self.created.is_none() && !ticket_name::is_recent(self.path.name(), now)
    }
}

/// The smallest limit in the names of these tickets. Tickets of this library never have the limit
/// zero.
fn smallest_limit(tickets: &[Entry]) -> Option<u32> {
    tickets.iter().filter_map(|one| one.all).filter(|all| *all > 0).min()
}

/// Decides the next step of the ticket `me` from a view of the queue.
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

/// A query that shows which names are containers: containers have no stat.
pub(crate) fn with_stats(dir: &Path) -> Query {
    Query::children(dir.clone())
}

/// The containers in a listing with stats.
pub(crate) fn containers(view: &View) -> impl Iterator<Item = Path> + '_ {
    let nodes = view.nodes.as_slice();
    mistake!(ContainerIsTicket: let nodes = &nodes[..0]);
    nodes.iter().filter(|node| node.stat.is_none()).map(|node| node.path.clone())
}

/// The position of a ticket for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermitTurn {
    /// The ticket gets its permits.
    Granted,
    /// The ticket is the first for which there are too few permits.
    Next,
    /// An earlier ticket waits, too.
    Later,
}

/// The position of a ticket with this claim after the tickets `ahead`, if there are this many
/// permits.
pub(super) fn share(
    ahead: impl Iterator<Item = Claim> + Clone,
    claim: Claim,
    permits: u32,
) -> PermitTurn {
    let weight = |claim| match claim {
        Claim::Permits(permits) => u64::from(permits),
        // An exclusive claim takes all permits, and at least one.
        Claim::Alone | Claim::Shared => u64::from(permits).max(1),
    };
    let weights = ahead.map(weight);
    let taken: u64 = weights.clone().sum();
    mistake!(PermitsMiscounted: let taken = weights.clone().count() as u64);
    mistake!(PermitsBarge: let taken = crate::mutant::line::fitting(weights.clone(), permits));
    if taken + weight(claim) <= permits.into() {
        PermitTurn::Granted
    } else if taken <= permits.into() {
        PermitTurn::Next
    } else {
        PermitTurn::Later
    }
}

/// The prefix that a writer writes to its ticket, in front of its label, when it downgrades. A
/// ticket that was created with this prefix is still the ticket of a writer.
pub(crate) const SHARES: &[u8] = b"__READ__";

/// Returns `true` if this is the ticket of a writer that downgraded.
pub(crate) fn shares(node: &Node) -> bool {
    // The data of any other ticket is a label, with any content.
    let is_writers = node.path.name().contains("__WRIT__");
    let is_written = node.stat.is_some_and(|stat| stat.modified != stat.created);
    let has_prefix = node.data.starts_with(SHARES);
    mistake!(LabelIsMode: return has_prefix);
    is_writers && is_written && has_prefix
}

/// A holder of a lock, of permits or of the leadership, or a waiter for them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    /// The path of its ticket.
    pub path: Path,
    /// The claim of its ticket: exclusive, shared, or a number of permits.
    pub claim: Claim,
    /// True if it is a holder. `None` if that depends on a number that only the contender knows:
    /// the number of permits of another library's semaphore.
    pub holds: Option<bool>,
    /// The token of its ticket.
    pub token: Token,
    /// The time of its request, to the second, by the clock of its own host. `None` for tickets of
    /// other libraries.
    pub since: Option<SystemTime>,
    /// The session that owns its ticket.
    pub owner: Option<SessionId>,
    /// The limit of its permits, as its owner specified it with [`Semaphore::new`]. Contenders of
    /// one semaphore should agree: see
    /// [`Semaphore::require_same_limit`](crate::lock::Semaphore::require_same_limit).
    ///
    /// [`Semaphore::new`]: crate::lock::Semaphore::new
    pub limit: Option<u32>,
    /// Its label.
    pub label: Bytes,
}

impl Contender {
    /// The contender with this ticket and node.
    pub(crate) fn of(one: &Entry, node: &Node, holds: Option<bool>) -> Option<Self> {
        let stat = node.stat?;
        let prefix = if shares(node) { SHARES.len() } else { 0 };
        Some(Self {
            path: one.path.clone(),
            claim: one.claim,
            holds,
            token: Token::new(stat.created),
            since: since(one.path.name()),
            owner: stat.owner,
            limit: one.all,
            label: node.data.slice(prefix..),
        })
    }
}

/// All contenders in the queue at `dir`, in order.
pub(crate) async fn contenders(
    client: &Client,
    dir: &Path,
    capacity: Capacity,
) -> Result<Vec<Contender>> {
    let view = client.read(Query::children(dir.clone())).await?;
    let sharing = view.nodes.iter().filter(|node| shares(node)).map(|node| node.path.clone());
    let queue = Tickets::of(&view).sharing(&sharing.collect::<Vec<_>>());
    let capacity =
        if queue.permits(Capacity::Posted) > Some(0) { Capacity::Posted } else { capacity };
    let contenders = queue.entries().iter().filter_map(|one| {
        let node = view.nodes.iter().find(|node| node.path == one.path)?;
        Contender::of(one, node, holds(&queue, one, capacity))
    });
    Ok(contenders.collect())
}

fn holds(queue: &Tickets, one: &Entry, capacity: Capacity) -> Option<bool> {
    let capacity = match (one.claim, one.all) {
        // The contender's own limit, which may differ from the limit of the reading client.
        (Claim::Permits(_), Some(all)) if capacity != Capacity::Posted => Capacity::Permits(all),
        (Claim::Permits(_), None) if capacity == Capacity::One => return None,
        _ => capacity,
    };
    Some(turn(queue, &one.path, capacity) == Turn::Now)
}

#[cfg(test)]
mod tests;
