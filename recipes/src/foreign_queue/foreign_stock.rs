//! [`ForeignStock`]: the items of a queue of another library as one process knows them, and which one may be tried. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::store::Node;

use crate::foreign_queue::layout::{ForeignRank, QueueLayout};
use crate::mutant::mistake;

/// How long an item rests that another consumer has locked or taken, before it is tried again: what is known of it is late.
const REST: Duration = Duration::from_millis(20);

/// The longest time after which an item is looked at again, whatever time its name has.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The items that are known, by the names of their nodes.
#[derive(Debug)]
pub(super) struct ForeignStock {
    layout: QueueLayout,
    order: BTreeMap<ForeignRank, String>,
    ranks: BTreeMap<String, ForeignRank>,
    /// The names of the items that consumers have locked.
    locked: BTreeSet<String>,
    /// The names of the items that a task of this process tries to take.
    reserved: BTreeSet<String>,
    /// Those that may be tried later: their time has not come, or they were not to be had.
    resting: BTreeMap<String, Instant>,
    /// Those whose data cannot be read.
    unreadable: BTreeSet<String>,
}

/// What a look for an item finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ForeignPick {
    /// It is reserved for the caller.
    Item(String),
    /// There is none before this time, or before there is news.
    None(Option<Instant>),
}

impl ForeignStock {
    pub(super) fn new(layout: QueueLayout) -> Self {
        Self {
            layout,
            order: BTreeMap::new(),
            ranks: BTreeMap::new(),
            locked: BTreeSet::new(),
            reserved: BTreeSet::new(),
            resting: BTreeMap::new(),
            unreadable: BTreeSet::new(),
        }
    }

    /// Adds an item. What is no item of the layout is ignored. `date` is that of now.
    pub(super) fn add(&mut self, node: &Node, now: Instant, date: Duration) {
        let name = node.path.name();
        let rank = self.layout.rank(name, node.stat.map(|stat| stat.created));
        let Some(rank) = rank else { return };
        self.remove(name);
        let delay = Duration::from_millis(rank.due).saturating_sub(date);
        mistake!(DelayIgnored: let delay = Duration::ZERO);
        if !delay.is_zero() {
            self.resting.insert(name.to_owned(), now + delay.min(LONGEST));
        }
        self.ranks.insert(name.to_owned(), rank.clone());
        self.order.insert(rank, name.to_owned());
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(rank) = self.ranks.remove(name) {
            self.order.remove(&rank);
        }
        self.resting.remove(name);
        self.unreadable.remove(name);
    }

    pub(super) fn clear(&mut self) {
        *self = Self {
            locked: std::mem::take(&mut self.locked),
            reserved: std::mem::take(&mut self.reserved),
            ..Self::new(self.layout)
        };
    }

    pub(super) fn lock(&mut self, name: &str) {
        self.locked.insert(name.to_owned());
    }

    pub(super) fn unlock(&mut self, name: &str) {
        self.locked.remove(name);
        self.resting.remove(name);
    }

    pub(super) fn clear_locks(&mut self) {
        self.locked.clear();
    }

    /// Ends a reservation.
    pub(super) fn give_back(&mut self, name: &str) {
        self.reserved.remove(name);
    }

    /// Records that an item was not to be had, though it is known.
    pub(super) fn rests(&mut self, name: &str, now: Instant) {
        self.resting.insert(name.to_owned(), now + REST);
    }

    /// Records that the data of an item cannot be read. It is in no other's way as long as it is there.
    pub(super) fn is_unreadable(&mut self, name: &str) {
        self.unreadable.insert(name.to_owned());
    }

    /// The first item that may be tried.
    pub(super) fn pick(&mut self, now: Instant) -> ForeignPick {
        let mut until: Option<Instant> = None;
        let found = self.order.values().find(|name| {
            let rest = self.resting.get(*name).copied().filter(|rest| *rest > now);
            if let Some(rest) = rest {
                until = Some(until.map_or(rest, |until| until.min(rest)));
            }
            rest.is_none() && !self.is_taken(name)
        });
        let Some(name) = found.cloned() else { return ForeignPick::None(until) };
        self.reserved.insert(name.clone());
        ForeignPick::Item(name)
    }

    fn is_taken(&self, name: &str) -> bool {
        self.reserved.contains(name) || self.unreadable.contains(name) || self.locked.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use synod_core::clock;
    use synod_core::path::Path;

    use super::*;

    fn stock(layout: QueueLayout, names: &[&str]) -> ForeignStock {
        let mut stock = ForeignStock::new(layout);
        for name in names {
            stock.add(&node(name), clock::now(), DATE);
        }
        stock
    }

    const DATE: Duration = Duration::from_millis(0x10);

    fn node(name: &str) -> Node {
        Node::new(Path::root().join(name).expect("a name"))
    }

    fn item(name: &str) -> ForeignPick {
        ForeignPick::Item(name.to_owned())
    }

    #[test]
    fn an_item_that_another_has_or_that_cannot_be_read_is_not_tried() {
        let now = clock::now();
        let mut stock = stock(QueueLayout::KazooLocking, &["entry-1", "entry-2", "entry-3", "x"]);
        stock.lock("entry-1");
        let pick = |stock: &mut ForeignStock| stock.pick(now);
        assert_eq!(pick(&mut stock), item("entry-2"));
        assert_eq!(pick(&mut stock), item("entry-3"), "the other is reserved");
        assert_eq!(pick(&mut stock), ForeignPick::None(None));

        stock.give_back("entry-2");
        stock.is_unreadable("entry-2");
        assert_eq!(pick(&mut stock), ForeignPick::None(None));
        stock.unlock("entry-1");
        assert_eq!(pick(&mut stock), item("entry-1"));
        stock.give_back("entry-3");
        stock.remove("entry-3");
        assert_eq!(pick(&mut stock), ForeignPick::None(None), "it is gone");
        stock.add(&node("entry-2"), now, DATE);
        assert_eq!(pick(&mut stock), item("entry-2"), "it is another one of this name");
    }

    #[test]
    fn an_item_that_rests_or_is_delayed_is_tried_later() {
        let now = clock::now();
        let mut delayed = ForeignStock::new(QueueLayout::CuratorDelay);
        for name in ["queue-|20|1", "queue-|30|0", "queue-|8|2"] {
            delayed.add(&node(name), now, DATE);
        }
        assert_eq!(delayed.pick(now), item("queue-|8|2"));
        let due = now + DATE;
        assert_eq!(delayed.pick(now), ForeignPick::None(Some(due)));
        assert_eq!(delayed.pick(due), item("queue-|20|1"));

        let mut resting = stock(QueueLayout::CuratorSimple, &["qn-1"]);
        resting.rests("qn-1", now);
        assert_eq!(resting.pick(now), ForeignPick::None(Some(now + REST)));
        assert_eq!(resting.pick(now + REST), item("qn-1"));
        resting.clear();
        resting.add(&node("qn-1"), now, DATE);
        assert_eq!(resting.pick(now), ForeignPick::None(None), "the reservation stays");
    }
}
