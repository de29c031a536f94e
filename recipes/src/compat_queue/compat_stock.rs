//! [`CompatStock`]: the known items of a queue of another library, and the choice of the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::store::Node;

use crate::compat_queue::layout::{CompatRank, QueueLayout};
use crate::mutant::mistake;
use crate::support::time::Due;

/// The delay before a retry of an item that another consumer has locked or taken, but whose event
/// has not arrived yet.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// The known items, by the names of their nodes.
#[derive(Debug)]
pub(super) struct CompatStock {
    layout: QueueLayout,
    items: BTreeMap<String, KnownItem>,
    /// The names of the items that consumers have locked.
    locked: BTreeSet<String>,
    /// The names of the items that a task of this process tries to take.
    reserved: BTreeSet<String>,
    /// The items that may be tried, in order.
    free: BTreeMap<CompatRank, String>,
    /// The items that may be tried later, because they are delayed or were not available.
    later: BTreeSet<(Instant, String)>,
}

#[derive(Debug)]
struct KnownItem {
    rank: CompatRank,
    /// The time before which the item must not be delivered.
    due: Option<Due>,
    /// The time before which the item is not tried again, after it was not available.
    retry_at: Option<Instant>,
    /// True if the data of the item cannot be read.
    is_unreadable: bool,
}

impl KnownItem {
    /// The next time at which the item may be tried, if that is not now.
    fn until(&self, now: Instant) -> Option<Instant> {
        let due = self.due.map(Due::at);
        [due, self.retry_at].into_iter().flatten().filter(|until| *until > now).max()
    }
}

/// The result of the choice of an item.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CompatPick {
    /// An item, reserved for the caller.
    Item(String),
    /// No item is available before this time, or before there is news.
    None(Option<Instant>),
}

impl CompatStock {
    pub(super) fn new(layout: QueueLayout) -> Self {
        let (locked, reserved) = (BTreeSet::new(), BTreeSet::new());
        let (items, free, later) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { layout, items, locked, reserved, free, later }
    }

    /// Adds an item. A node that is not an item of the layout is ignored. `date` is the current
    /// date.
    pub(super) fn add(&mut self, node: &Node, now: Instant, date: Duration) {
        let name = node.path.name();
        let rank = self.layout.rank(name, node.stat.map(|stat| stat.created));
        let Some(rank) = rank else { return };
        self.remove(name);
        let delay = Duration::from_millis(rank.due).saturating_sub(date);
        mistake!(DelayIgnored: let delay = Duration::ZERO);
        let due = Due::after(delay, now).left(now);
        let item = KnownItem { rank, due, retry_at: None, is_unreadable: false };
        self.items.insert(name.to_owned(), item);
        self.place(name, now);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.unplace(name);
        self.items.remove(name);
    }

    pub(super) fn clear(&mut self) {
        *self = Self {
            locked: std::mem::take(&mut self.locked),
            reserved: std::mem::take(&mut self.reserved),
            ..Self::new(self.layout)
        };
    }

    pub(super) fn lock(&mut self, name: &str, now: Instant) {
        self.locked.insert(name.to_owned());
        self.place(name, now);
    }

    /// Records that a lock was removed. The item may be tried again without a delay.
    pub(super) fn unlock(&mut self, name: &str, now: Instant) {
        self.locked.remove(name);
        self.change(name, now, |item| item.retry_at = None);
    }

    pub(super) fn clear_locks(&mut self, now: Instant) {
        for name in std::mem::take(&mut self.locked) {
            self.place(&name, now);
        }
    }

    /// Ends a reservation.
    pub(super) fn give_back(&mut self, name: &str, now: Instant) {
        self.reserved.remove(name);
        self.place(name, now);
    }

    /// Records that a known item was not available.
    pub(super) fn set_aside(&mut self, name: &str, now: Instant) {
        self.change(name, now, |item| item.retry_at = Some(now + RETRY_DELAY));
    }

    /// Records that the data of an item cannot be read. The item is skipped as long as it
    /// exists.
    pub(super) fn set_unreadable(&mut self, name: &str, now: Instant) {
        self.change(name, now, |item| item.is_unreadable = true);
    }

    /// Reserves the first item that may be tried.
    pub(super) fn pick(&mut self, now: Instant) -> CompatPick {
        while let Some((_until, name)) = self.later.first().filter(|(until, _)| *until <= now) {
            let name = name.clone();
            self.change(&name, now, |item| item.due = item.due.and_then(|due| due.left(now)));
        }
        let Some(name) = self.free.first_key_value().map(|(_rank, name)| name.clone()) else {
            return CompatPick::None(self.later.first().map(|(until, _name)| *until));
        };
        self.reserved.insert(name.clone());
        self.unplace(&name);
        CompatPick::Item(name)
    }

    /// Returns `true` if the item of this name, which the store has just listed, may be taken now
    /// unless it is locked. The consumer may not know the item yet. `date` is the current date.
    pub(super) fn is_deliverable(&self, name: &str, now: Instant, date: Duration) -> bool {
        match self.items.get(name) {
            Some(item) if item.is_unreadable => false,
            Some(item) => item.due.is_none_or(|due| due.left(now).is_none()),
            None => {
                let rank = self.layout.rank(name, None);
                rank.is_some_and(|rank| Duration::from_millis(rank.due) <= date)
            }
        }
    }

    fn change(&mut self, name: &str, now: Instant, change: impl FnOnce(&mut KnownItem)) {
        self.unplace(name);
        if let Some(item) = self.items.get_mut(name) {
            change(item);
        }
        self.place(name, now);
    }

    /// Adds an item to those that may be tried now, or to those that may be tried later.
    fn place(&mut self, name: &str, now: Instant) {
        self.unplace(name);
        let Some(item) = self.items.get(name) else { return };
        if item.is_unreadable || self.reserved.contains(name) || self.locked.contains(name) {
            return;
        }
        match item.until(now) {
            Some(until) => drop(self.later.insert((until, name.to_owned()))),
            None => drop(self.free.insert(item.rank.clone(), name.to_owned())),
        }
    }

    fn unplace(&mut self, name: &str) {
        let Some(item) = self.items.get(name) else { return };
        self.free.remove(&item.rank);
        for until in [item.due.map(Due::at), item.retry_at].into_iter().flatten() {
            self.later.remove(&(until, name.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use synod_core::clock;
    use synod_core::path::Path;

    use super::*;

    fn stock(layout: QueueLayout, names: &[&str]) -> CompatStock {
        let mut stock = CompatStock::new(layout);
        for name in names {
            stock.add(&node(name), clock::now(), DATE);
        }
        stock
    }

    const DATE: Duration = Duration::from_millis(0x10);

    fn node(name: &str) -> Node {
        Node::new(Path::root().join(name).expect("a name"))
    }

    fn item(name: &str) -> CompatPick {
        CompatPick::Item(name.to_owned())
    }

    #[test]
    fn an_item_that_another_has_or_that_cannot_be_read_is_not_tried() {
        let now = clock::now();
        let mut stock = stock(QueueLayout::KazooLocking, &["entry-1", "entry-2", "entry-3", "x"]);
        stock.lock("entry-1", now);
        let pick = |stock: &mut CompatStock| stock.pick(now);
        assert_eq!(pick(&mut stock), item("entry-2"));
        assert_eq!(pick(&mut stock), item("entry-3"), "the other is reserved");
        assert_eq!(pick(&mut stock), CompatPick::None(None));

        stock.give_back("entry-2", now);
        stock.set_unreadable("entry-2", now);
        assert_eq!(pick(&mut stock), CompatPick::None(None));
        stock.unlock("entry-1", now);
        assert_eq!(pick(&mut stock), item("entry-1"));
        stock.give_back("entry-3", now);
        stock.remove("entry-3");
        assert_eq!(pick(&mut stock), CompatPick::None(None), "it is gone");
        stock.add(&node("entry-2"), now, DATE);
        assert_eq!(pick(&mut stock), item("entry-2"), "it is another one of this name");
    }

    #[test]
    fn an_item_that_rests_or_is_delayed_is_tried_later() {
        let now = clock::now();
        let mut delayed = CompatStock::new(QueueLayout::CuratorDelay);
        for name in ["queue-|20|1", "queue-|30|0", "queue-|8|2"] {
            delayed.add(&node(name), now, DATE);
        }
        assert_eq!(delayed.pick(now), item("queue-|8|2"));
        let due = now + DATE;
        assert_eq!(delayed.pick(now), CompatPick::None(Some(due)));
        assert_eq!(delayed.pick(due), item("queue-|20|1"));

        // The time in the name of an item is not the time of a lock.
        delayed.add(&node("queue-|40|3"), now, DATE);
        delayed.lock("queue-|40|3", now);
        delayed.unlock("queue-|40|3", now);
        assert_eq!(delayed.pick(now + 2 * DATE), item("queue-|30|0"));
        assert_eq!(delayed.pick(now + 2 * DATE), CompatPick::None(Some(now + 3 * DATE)));
        let year = Duration::from_secs(365 * 24 * 60 * 60);
        delayed.add(&node("queue-|FFFFFFFFFFFFFFFF|4"), now, DATE);
        assert_eq!(delayed.pick(now + 3 * DATE), item("queue-|40|3"));
        assert_eq!(delayed.pick(now + year), CompatPick::None(Some(now + year * 2)));

        let mut resting = stock(QueueLayout::CuratorSimple, &["qn-1"]);
        resting.set_aside("qn-1", now);
        assert_eq!(resting.pick(now), CompatPick::None(Some(now + RETRY_DELAY)));
        assert_eq!(resting.pick(now + RETRY_DELAY), item("qn-1"));
        resting.clear();
        resting.add(&node("qn-1"), now, DATE);
        assert_eq!(resting.pick(now), CompatPick::None(None), "the reservation stays");
    }
}
