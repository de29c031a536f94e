//! Who stands in a line, in which order, and whose turn it is. Pure: names in, decision out.
//!
//! A ticket is told by what its name ends in, in front of the digits that some stores add. So that programs
//! of other kinds can stand in the same line, the marks are those that they use:
//!
//! | mark | whose | wants |
//! |---|---|---|
//! | `lock-`, `latch-` | Curator's mutex and leader latch, and ours | all of it |
//! | `__WRIT__`, `__READ__` | Curator's read-write lock, and ours | all of it, to share it |
//! | `__lock__`, `__rlock__` | kazoo's locks | all of it, to share it |
//! | `lease-` | Curator's semaphore, and ours | one permit |
//! | `x3-lease-`, `x3of5-lease-` | ours | three permits; of five, as its owner believes |
//! | the session's id and nothing else | etcd's own locks and elections | all of it |
//!
//! What has none of these names stands in no line: it is ignored.

use synod_core::clock;
use synod_core::mutant::{self, Mutant};
use synod_core::path::Path;
use synod_core::store::{Node, Query, Revision, Sequence, SessionId, View};

use crate::line::ticket_name;

/// What whoever stands in a line wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Claim {
    /// To be the only one.
    Alone,
    /// To be in with others who want the same.
    Shared,
    /// So many permits.
    Permits(u32),
}

/// How much a line grants at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capacity {
    /// One contender, or all that share.
    One,
    /// So many permits.
    Permits(u32),
    /// As many permits as a node beside the tickets says.
    Posted,
}

/// Whose turn it is, as far as one ticket is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Its own.
    Now,
    /// Not before this one is gone, or has been called.
    After(Path),
    /// It is the next, and depends on everybody who is in.
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
    /// How many permits there are, as he believes who wants some of them.
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

/// What the name of the node starts with that says how many permits there are.
pub(crate) const POSTED: &str = "limit-";

/// What a writer writes to its ticket, in front of its label, when it goes on reading. A ticket that holds this since
/// it was created still wants to write.
pub(crate) const SHARES: &[u8] = b"__READ__";

const MARKS: &[(&str, Claim)] = &[
    ("lock-", Claim::Alone),
    ("latch-", Claim::Alone),
    ("__WRIT__", Claim::Alone),
    ("__READ__", Claim::Shared),
    ("__lock__", Claim::Alone),
    ("__rlock__", Claim::Shared),
];

impl Claim {
    /// What a ticket wants whose name ends so.
    pub(crate) fn of_mark(mark: &str) -> Self {
        claim(mark).unwrap_or(Self::Alone)
    }
}

impl Queue {
    pub(crate) fn of(view: &View) -> Self {
        let mut entries: Vec<Entry> = view.nodes.iter().filter_map(Entry::of).collect();
        if mutant::is(Mutant::SortsByName) {
            entries.sort_by(|a, b| a.path.cmp(&b.path));
        } else {
            entries.sort_by_key(|one| one.order);
        }
        if mutant::is(Mutant::OldDatesIgnored) {
            entries.retain(|one| !ticket_name::seems_left_over(one.path.name(), clock::date()));
        }
        let limits = view.nodes.iter().filter_map(|node| node.path.name().strip_prefix(POSTED));
        // Of two, which cannot be, the one that harms less.
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

    /// Whose turn it is for somebody who came now.
    pub(crate) fn turn_behind(&self, claim: Claim, capacity: Capacity) -> Turn {
        self.turn_of(&self.entries, claim, capacity)
    }

    /// These have given up to be alone.
    pub(crate) fn sharing(mut self, paths: &[Path]) -> Self {
        for one in self.entries.iter_mut().filter(|one| paths.contains(&one.path)) {
            one.claim = Claim::Shared;
        }
        self
    }

    /// None of these is a ticket.
    pub(crate) fn without(mut self, paths: &[Path]) -> Self {
        if !paths.is_empty() {
            self.entries.retain(|one| !paths.contains(&one.path));
        }
        self
    }

    /// Whether any of the tickets may be a container: a listing of names does not always say.
    pub(crate) fn is_unsure(&self) -> bool {
        self.entries.iter().any(|one| one.created.is_none())
    }

    /// Whether any of those has a name of another kind than this library gives. To look at the others, too, would cost
    /// a request for each lock that is held.
    pub(crate) fn has_suspects(&self) -> bool {
        self.entries.iter().any(Entry::is_suspect)
    }

    /// At this path only what stands in this place: something else may have been made there since.
    pub(crate) fn placed(mut self, path: &Path, place: Sequence) -> Self {
        self.entries.retain(|one| one.path != *path || one.order == place);
        self
    }

    /// Whether somebody came after this one.
    pub(crate) fn goes_on_behind(&self, me: &Path) -> bool {
        self.entries.last().is_some_and(|last| last.path != *me)
    }

    /// Whose turn it is for somebody behind all those `ahead`.
    fn turn_of(&self, ahead: &[Entry], claim: Claim, capacity: Capacity) -> Turn {
        let Some(permits) = self.permits(capacity) else {
            let shares = |other: &&Entry| claim == Claim::Shared && other.claim == claim;
            let mut blocking = ahead.iter().rev().find(|other| !shares(other));
            if mutant::is(Mutant::WriterPassesReaders) {
                blocking = ahead.iter().rev().find(|other| other.claim == Claim::Alone);
            }
            if mutant::is(Mutant::ReaderPassesWriters) && claim == Claim::Shared {
                blocking = blocking.and(ahead.first()).filter(|first| !shares(first));
            }
            return blocking.map_or(Turn::Now, |other| Turn::After(other.path.clone()));
        };
        let weight = |claim| match claim {
            Claim::Permits(permits) => u64::from(permits),
            // Who wants it alone takes whatever there is, and a little more.
            Claim::Alone | Claim::Shared => u64::from(permits).max(1),
        };
        let mut taken: u64 = ahead.iter().map(|other| weight(other.claim)).sum();
        if mutant::is(Mutant::PermitsMiscounted) {
            taken = ahead.len() as u64;
        }
        if mutant::is(Mutant::PermitsBarge) {
            taken = ahead.iter().map(|other| weight(other.claim)).fold(0, |taken, more| {
                if taken + more <= permits.into() { taken + more } else { taken }
            });
        }
        if taken + weight(claim) <= permits.into() {
            Turn::Now
        } else if taken <= permits.into() {
            // All who are ahead are in.
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

/// What a listing with stats shows to be no node.
pub(crate) fn containers(view: &View) -> impl Iterator<Item = Path> + '_ {
    view.nodes.iter().filter(|node| node.stat.is_none()).map(|node| node.path.clone())
}

impl Entry {
    /// Whether it may be a container, and has another name than this library gives to tickets.
    pub(crate) fn is_suspect(&self) -> bool {
        self.created.is_none() && !self.path.name().starts_with("_c_")
    }

    /// The ticket that a node is, if it is one.
    pub(crate) fn of(node: &Node) -> Option<Self> {
        let sequence = node.sequence?;
        let (name, owner) = (node.path.name(), node.stat.and_then(|stat| stat.owner));
        // Where the store adds no digits, only what is named as we name it is a ticket.
        let stem = without_digits(name, sequence).or(name.starts_with("_c_").then_some(name));
        let all = stem.and_then(|stem| permits(stem.strip_suffix("lease-")?).1);
        let claim = stem.and_then(claim).or_else(|| {
            let is_owners = owner.is_some_and(|owner| owner.to_string() == name);
            (is_owners || mutant::is(Mutant::StrangersCount)).then_some(Claim::Alone)
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

/// A name without the digits that the store added: the sequence, as ten of them or more.
fn without_digits(name: &str, sequence: Sequence) -> Option<&str> {
    let (mut stem, mut left, mut digits) = (name, sequence.get(), 0);
    while digits < 10 || left > 0 {
        let digit = char::from_digit(u32::try_from(left % 10).ok()?, 10)?;
        stem = stem.strip_suffix(digit)?;
        (left, digits) = (left / 10, digits + 1);
    }
    Some(stem)
}

/// What a ticket wants whose name, without the digits of the store, is this.
fn claim(stem: &str) -> Option<Claim> {
    let is_marked = |mark: &str| {
        let before = stem.strip_suffix(mark);
        // `block-` is no lock.
        before.is_some_and(|it| mark.starts_with('_') || it.is_empty() || it.ends_with('-'))
    };
    if let Some((_, claim)) = MARKS.iter().find(|(mark, _)| is_marked(mark)) {
        return Some(*claim);
    }
    stem.strip_suffix("lease-").map(|before| Claim::Permits(permits(before).0))
}

/// The mark of a ticket for so many permits.
pub(crate) fn permits_mark(permits: u32, capacity: Capacity) -> String {
    match capacity {
        Capacity::Permits(all) => format!("x{permits}of{all}-lease-"),
        _ if permits == 1 => "lease-".to_owned(),
        _ => format!("x{permits}-lease-"),
    }
}

/// Of `...-x3of5-`, three, and that there are five; of `...-x3-`, three; of anything else, one.
fn permits(before: &str) -> (u32, Option<u32>) {
    let part = before.strip_suffix('-').and_then(|rest| rest.rsplit_once('-'));
    let Some(told) = part.and_then(|(_, part)| part.strip_prefix('x')) else { return (1, None) };
    let (wanted, all) = told.split_once("of").map_or((told, None), |(it, all)| (it, Some(all)));
    (wanted.parse().unwrap_or(1), all.and_then(|all| all.parse().ok()))
}

/// Decides, from the line as it was seen, what whoever holds the ticket `me` does next.
pub(crate) fn turn(queue: &Queue, me: &Path, capacity: Capacity) -> Turn {
    let Some(place) = queue.entries.iter().position(|one| one.path == *me) else {
        return if mutant::is(Mutant::MissingIsFirst) { Turn::Now } else { Turn::Gone };
    };
    let (ahead, own) = (&queue.entries[..place], &queue.entries[place]);
    match queue.turn_of(ahead, own.claim, capacity) {
        Turn::After(_) if mutant::is(Mutant::WatchesFirst) => {
            Turn::After(queue.entries[0].path.clone())
        }
        turn => turn,
    }
}

/// Whether a ticket that was drawn to write goes on reading.
pub(crate) fn shares(node: &Node) -> bool {
    // On any other ticket the data is a label, and labels may be anything.
    if !node.path.name().contains("__WRIT__") && !mutant::is(Mutant::LabelIsMode) {
        return false;
    }
    let written = node.stat.is_some_and(|stat| stat.modified != stat.created);
    (written || mutant::is(Mutant::LabelIsMode)) && node.data.starts_with(SHARES)
}

#[cfg(test)]
mod tests;
