//! [`Grants`]: each process that entered was entitled to enter, at some time between creating its
//! ticket and entering. Checked against the store's history, without a clock and without
//! exceptions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use synod_core::path::Path;
use synod_core::store::{Kind, Node, Revision};
use synod_recipes::Held;

use crate::findings::Truth;
use crate::process::Process;
use crate::setup::Sim;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// Holding alone.
    All,
    /// Sharing with others.
    Share,
    /// This many permits.
    Permits(u32),
}

/// The grants in one directory. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Grants {
    dir: Path,
    permits: Option<u32>,
    granted: Arc<Mutex<Vec<Granted>>>,
    returned: Arc<Mutex<BTreeSet<Path>>>,
}

#[derive(Clone, Debug)]
struct Granted {
    ticket: Path,
    /// The revision of its creation: an earlier ticket may have had its name.
    drawn: Option<Revision>,
    wants: Wants,
    /// The number of commits when the process knew that it held.
    by: usize,
}

/// A ticket in the lock queue.
#[derive(Clone, Debug)]
struct Ticket {
    path: Path,
    wants: Wants,
}

/// A snapshot of the lock queue.
#[derive(Debug, Default)]
struct Line {
    tickets: BTreeMap<Revision, Ticket>,
    /// The limit of permits, by the nodes that contain it.
    posted: BTreeMap<Path, u32>,
}

/// The reason why a grant was wrong, which determines the broken law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The ticket does not exist.
    Gone,
    /// An exclusive ticket is before it.
    Writer,
    /// A shared ticket is before it.
    Reader,
    /// An earlier ticket waits for more permits than are free.
    Passed,
    /// There are not enough permits.
    Full,
}

impl Wants {
    /// The kind of request of a ticket of this name.
    fn of(name: &str) -> Option<Self> {
        if name.contains("__READ__") {
            return Some(Self::Share);
        }
        if ["__WRIT__", "-lock-", "-latch-"].iter().any(|mark| name.contains(mark)) {
            return Some(Self::All);
        }
        let (before, _) = name.rsplit_once("lease-")?;
        let many = before.strip_suffix('-').and_then(|rest| rest.rsplit_once("-x"));
        let many = many.map(|(_, many)| many.split_once("of").map_or(many, |(many, _)| many));
        Some(Self::Permits(many.and_then(|many| many.parse().ok()).unwrap_or(1)))
    }

    fn permits(self) -> u32 {
        if let Self::Permits(permits) = self { permits } else { u32::MAX }
    }
}

impl Grants {
    /// The grants in a lock queue with one exclusive holder or several shared ones.
    pub(super) fn of(dir: Path) -> Self {
        Self { dir, permits: None, granted: Arc::default(), returned: Arc::default() }
    }

    /// The grants in a queue for permits: with this limit, or the limit in its nodes.
    pub(super) fn of_permits(dir: Path, permits: Option<u32>) -> Self {
        Self { dir, permits, granted: Arc::default(), returned: Arc::default() }
    }

    /// Records that a process knows that it holds.
    pub(super) fn note(&self, me: &Process, held: &dyn Held, wants: Wants) {
        let (ticket, drawn) = (held.seen_path().clone(), me.born(held).map(|(drawn, _)| drawn));
        self.returned().remove(&ticket);
        self.lock().push(Granted { ticket, drawn, wants, by: me.committed() });
    }

    /// Records that a process releases its lock or permits.
    pub(super) fn returns(&self, held: &dyn Held) {
        self.returned().insert(held.seen_path().clone());
    }

    /// Returns `true` if this ticket was released.
    pub(super) fn was_returned(&self, ticket: &Path) -> bool {
        self.returned().contains(ticket)
    }

    /// Returns `true` if a process knew that it held with this node.
    pub(super) fn was_in(&self, node: &Node) -> bool {
        let drawn = node.stat.map(|stat| stat.created);
        self.lock().iter().any(|granted| granted.ticket == node.path && granted.drawn == drawn)
    }

    /// The line.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Adds the check at the end.
    pub(super) fn watch(&self, mut sim: Sim) -> Sim {
        let own = self.clone();
        sim.checks.push(Box::new(move |truth| own.check(truth)));
        sim
    }

    fn check(&self, truth: &Truth) -> Result<(), (String, String)> {
        let mut waiting = self.lock().clone();
        let mut why: BTreeMap<Path, Why> = BTreeMap::new();
        let mut line = Line::default();
        for (index, entry) in truth.log.iter().enumerate() {
            // A process that held before this commit.
            let late = waiting.iter().find(|one| one.by <= index);
            if let Some(one) = late {
                return Err(one.unentitled(why.get(&one.ticket)));
            }
            for change in &entry.changes {
                line.apply(&self.dir, change.kind, &change.path, change.node.as_ref());
            }
            waiting.retain(|one| match line.entitles(one, self.permits) {
                Ok(()) => false,
                Err(no) => {
                    // The later removal of the ticket is ignored.
                    if no != Why::Gone {
                        why.insert(one.ticket.clone(), no);
                    }
                    true
                }
            });
        }
        match waiting.first() {
            Some(one) => Err(one.unentitled(why.get(&one.ticket))),
            None => Ok(()),
        }
    }

    fn returned(&self) -> MutexGuard<'_, BTreeSet<Path>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Granted>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Granted {
    /// The law that the grant breaks.
    fn unentitled(&self, why: Option<&Why>) -> (String, String) {
        let (law, what) = match (self.wants, why) {
            (_, None | Some(Why::Gone)) => ("L-MX-2", "whose ticket was never seen in the line"),
            (Wants::Share, _) => ("L-RW-3", "although a writer was before it all the time"),
            (Wants::All, Some(Why::Reader)) => {
                ("L-RW-2", "although a reader was before it all the time")
            }
            (Wants::All, _) => ("L-MX-2", "although another ticket was before it all the time"),
            (Wants::Permits(_), Some(Why::Passed)) => {
                ("L-SEM-6", "although an earlier ticket waits for more")
            }
            (Wants::Permits(_), _) => ("L-SEM-1", "though there were never permits enough"),
        };
        (law.to_owned(), format!("{} is in, {what}", self.ticket))
    }
}

impl Line {
    fn apply(&mut self, dir: &Path, kind: Kind, path: &Path, node: Option<&Node>) {
        if path.parent().as_ref() != Some(dir) {
            return;
        }
        if let Some(limit) = path.name().strip_prefix("limit-") {
            match limit.parse() {
                Ok(limit) if kind != Kind::Deleted => drop(self.posted.insert(path.clone(), limit)),
                _ => drop(self.posted.remove(path)),
            }
            return;
        }
        let Some(wants) = Wants::of(path.name()) else { return };
        let Some(node) = node.filter(|_| kind != Kind::Deleted) else {
            self.tickets.retain(|_, ticket| ticket.path != *path);
            return;
        };
        let Some(stat) = node.stat else { return };
        let ticket = self.tickets.entry(stat.created);
        let ticket = ticket.or_insert_with(|| Ticket { path: path.clone(), wants });
        let goes_on_reading =
            path.name().contains("__WRIT__") && node.data.starts_with(b"__READ__");
        if kind != Kind::Created && goes_on_reading {
            ticket.wants = Wants::Share;
        }
    }

    /// Succeeds if this ticket is next in the current queue.
    fn entitles(&self, one: &Granted, permits: Option<u32>) -> Result<(), Why> {
        let is_own = |(drawn, ticket): &(&Revision, &Ticket)| {
            ticket.path == one.ticket && one.drawn.is_none_or(|own| own == **drawn)
        };
        let own = self.tickets.iter().find(is_own);
        let Some((place, _)) = own else { return Err(Why::Gone) };
        let ahead = self.tickets.range(..place).map(|(_, ticket)| ticket.wants);
        let Wants::Permits(wanted) = one.wants else {
            let shares = |other: &Wants| one.wants == Wants::Share && *other == Wants::Share;
            return match ahead.filter(|other| !shares(other)).max_by_key(|it| *it == Wants::All) {
                None => Ok(()),
                Some(Wants::All) => Err(Why::Writer),
                Some(_) => Err(Why::Reader),
            };
        };
        // If there are two limits, which should not happen, the smaller one.
        let there = u64::from(permits.or(self.posted.values().min().copied()).unwrap_or(0));
        let (mut taken, mut held) = (0, 0);
        for other in ahead.map(|other| u64::from(other.permits())) {
            taken += other;
            held += if taken <= there { other } else { 0 };
        }
        if taken + u64::from(wanted) <= there {
            Ok(())
        } else if held + u64::from(wanted) <= there {
            Err(Why::Passed)
        } else {
            Err(Why::Full)
        }
    }
}

#[cfg(test)]
mod tests {
    use synod_core::store::{Stat, Version};

    use super::*;

    fn dir() -> Path {
        Path::new("/d").expect("valid")
    }

    /// Builds a queue of tickets with these names, and judges the last one.
    fn judged(names: &[&str], permits: Option<u32>) -> Result<(), Why> {
        let mut line = Line::default();
        let mut last = None;
        for (at, name) in (1..).zip(names) {
            let path = dir().join(name).expect("valid");
            let at = Revision::new(at);
            let node = Node::new(path.clone()).with_stat(Stat::new(at, at, Version::new(0), None));
            line.apply(&dir(), Kind::Created, &path, Some(&node));
            last = Wants::of(name)
                .map(|wants| Granted { ticket: path, drawn: Some(at), wants, by: 0 })
                .or(last);
        }
        line.entitles(&last.expect("there is one"), permits)
    }

    #[test]
    fn earlier_tickets_decide_which_tickets_may_hold() {
        assert_eq!(judged(&["_c_1-lock-1"], None), Ok(()));
        assert_eq!(judged(&["_c_1-lock-1", "_c_2-lock-2"], None), Err(Why::Writer));
        assert_eq!(judged(&["foreign-0", "_c_2-latch-2"], None), Ok(()));
        assert_eq!(judged(&["_c_1-__READ__1", "_c_2-__READ__2"], None), Ok(()));
        assert_eq!(judged(&["_c_1-__READ__1", "_c_2-__WRIT__2"], None), Err(Why::Reader));
        assert_eq!(judged(&["_c_1-__WRIT__1", "_c_2-__READ__2"], None), Err(Why::Writer));
        assert_eq!(judged(&["_c_1-lease-1", "_c_2-lease-2"], Some(2)), Ok(()));
        assert_eq!(judged(&["_c_1-x2-lease-1", "_c_2-lease-2"], Some(2)), Err(Why::Full));
        assert_eq!(judged(&["_c_1-x2of2-lease-1", "_c_2-x1of2-lease-2"], Some(2)), Err(Why::Full));
        assert_eq!(
            judged(&["_c_1-lease-1", "_c_2-x3-lease-2", "_c_3-lease-3"], Some(3)),
            Err(Why::Passed)
        );
        assert_eq!(judged(&["limit-2", "limit-3", "_c_1-x3-lease-1"], None), Err(Why::Full));
        assert_eq!(judged(&["limit-3", "_c_1-x3-lease-1"], None), Ok(()));
    }
}
