//! [`Stock`]: the items of a queue as one process knows them, and the choice of the items to try.
//! Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::store::Node;

use crate::queue::arrivals::{Arrivals, StockItem};
use crate::queue::item_name::{ItemName, Rank};
use crate::support::time::Due;

#[cfg(test)]
mod tests;

/// The delay before an item is tried again: another consumer may have it, and its report may be
/// next.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// The maximum number of names that are remembered as gone.
const MAX_GONE: usize = 64;

/// The maximum number of items that are read together to learn their positions.
const MAX_BATCH: usize = 50;

/// The known items, by the names of their nodes.
#[derive(Debug, Default)]
pub(super) struct Stock {
    items: BTreeMap<String, StockItem>,
    /// The items that a task of this process tries.
    reserved: BTreeSet<String>,
    /// The names that were removed last. Later reports of these names are outdated.
    gone: VecDeque<String>,
    /// The items that this process cannot move.
    aside: BTreeSet<String>,
    /// The items that may be tried, in their order.
    free: BTreeMap<Rank, String>,
    /// The items that may be tried after a delay, with its end.
    resting: BTreeMap<Rank, (Instant, String)>,
    /// The items that are not delivered before a date.
    delayed: BTreeMap<(Instant, Rank), String>,
    /// The items whose positions are not known.
    arrivals: Arrivals,
}

/// The result of a choice of items.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// Items that are now reserved for the caller.
    Items(Vec<StockItem>),
    /// There are items, but fewer than the requested index.
    TooFew,
    /// Items that must be read first: their positions are not known.
    Unread(Vec<String>),
    /// No item may be tried before this time or the next change.
    None(Option<Instant>),
}

impl Stock {
    /// Adds an item. Other nodes are ignored. `date` is the current date.
    pub(super) fn add(&mut self, node: &Node, now: Instant, date: Duration) {
        let text = node.path.name();
        if self.is_gone(text) {
            return;
        }
        let Some(name) = ItemName::parse(text) else { return };
        let item = StockItem::new(name, node, now, date);
        if item.is_unread() {
            return self.add_unread(text, item, now);
        }
        let is_own = self.arrivals.remove(text);
        self.insert(text, StockItem { is_own, ..item }, now);
    }

    /// Adds an item of which only the name is known. Until its date it need not be read.
    fn add_unread(&mut self, text: &str, item: StockItem, now: Instant) {
        if item.due.is_none_or(|due| due.left(now).is_none()) {
            return self.arrivals.add(&item.name, text);
        }
        if !self.items.contains_key(text) {
            let item = self.arrivals.take_own_named(text).unwrap_or(item);
            self.insert(text, item, now);
        }
    }

    /// Records an item that this process has put. If only its name is reported, the item need not
    /// be read.
    pub(super) fn record_put(&mut self, node: &Node, now: Instant, date: Duration) {
        let text = node.path.name();
        if let Some(item) = self.items.get_mut(text).filter(|item| !item.is_unread()) {
            item.is_own = true;
        } else if let Some(name) = ItemName::parse(text)
            && node.stat.is_some()
            && !self.is_gone(text)
        {
            let item = StockItem { is_own: true, ..StockItem::new(name, node, now, date) };
            if self.items.contains_key(text) {
                self.insert(text, item, now);
            } else {
                self.arrivals.record_put(text.to_owned(), item);
            }
        }
    }

    fn insert(&mut self, text: &str, item: StockItem, now: Instant) {
        if let Some(last) = self.items.insert(text.to_owned(), item) {
            self.dequeue(last.rank(), last.due);
        }
        self.enqueue(text, now, Duration::ZERO);
    }

    /// Records that no item has this name any more, whatever is reported later: a name is never
    /// used again.
    pub(super) fn record_gone(&mut self, name: &str) {
        self.remove(name);
        self.gone.push_back(name.to_owned());
        if self.gone.len() > MAX_GONE {
            self.gone.pop_front();
        }
    }

    /// Returns true if this name was recorded as gone.
    fn is_gone(&self, name: &str) -> bool {
        self.gone.iter().any(|gone| gone == name)
    }

    /// Removes the item of this name.
    pub(super) fn remove(&mut self, name: &str) {
        self.arrivals.remove(name);
        self.aside.remove(name);
        if let Some(item) = self.items.remove(name) {
            let rank = item.rank();
            self.dequeue(rank, item.due);
        }
    }

    /// Records that this process cannot move an item.
    pub(super) fn set_aside(&mut self, name: &str) {
        self.aside.insert(name.to_owned());
    }

    /// Ends a reservation. An item that was tried is tried again after a delay, if it is still
    /// there.
    pub(super) fn release(&mut self, name: &str, was_tried: bool, now: Instant) {
        self.reserved.remove(name);
        self.enqueue(name, now, if was_tried { RETRY_DELAY } else { Duration::ZERO });
    }

    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.free.clear();
        self.resting.clear();
        self.delayed.clear();
        self.arrivals.clear();
    }

    /// Reserves an item that this process has put, if it is among the first `width` items.
    pub(super) fn pick_own(&mut self, width: usize, now: Instant) -> Option<StockItem> {
        self.recover(now);
        let known = self.free.len() + self.resting.len();
        if let Some((name, item)) = self.arrivals.take_own(width.saturating_sub(known)) {
            self.insert(&name, item, now);
        }
        let is_own = |name: &&String| self.items.get(*name).is_some_and(|item| item.is_own);
        let name = self.free.values().take(width).find(is_own)?.clone();
        let item = self.items.get(&name)?.clone();
        self.free.remove(&item.rank());
        self.reserved.insert(name);
        Some(item)
    }

    /// Reserves at most `max` items, from this index among the items that may be tried.
    pub(super) fn pick(&mut self, index: usize, max: usize, now: Instant) -> Pick {
        self.recover(now);
        while let Some((name, item)) = self.arrivals.take_first_own() {
            self.insert(&name, item, now);
        }
        let count = index.saturating_add(max);
        if self.arrivals.may_be_among(&self.first_ranks(count), count) {
            return Pick::Unread(self.arrivals.take_unread(MAX_BATCH));
        }
        let mut all = match self.pick_one(index, now) {
            Ok(first) => vec![first],
            Err(none) => return none,
        };
        while all.len() < max
            && let Ok(next) = self.pick_one(index, now)
        {
            all.push(next);
        }
        Pick::Items(all)
    }

    /// Returns the ranks of the first items that may be tried, now or after a delay.
    fn first_ranks(&self, count: usize) -> Vec<&Rank> {
        let mut first: Vec<_> = self.free.keys().take(count).collect();
        first.extend(self.resting.keys().take(count));
        first.sort();
        first.truncate(count);
        first
    }

    /// Reserves the item at this index among the items that may be tried.
    fn pick_one(&mut self, index: usize, now: Instant) -> Result<StockItem, Pick> {
        // An item with a delay keeps its position.
        let first = self.resting.first_key_value().map(|(rank, (until, _))| (rank, *until));
        let count = match first {
            Some((rank, _)) => self.free.range(..rank).take(index.saturating_add(1)).count(),
            None => self.free.len(),
        };
        if count == 0 {
            let due = self.delayed.first_key_value().map(|((due, _), _)| *due);
            return Err(Pick::None(first.map(|(_, until)| until).into_iter().chain(due).min()));
        }
        let Some((rank, name)) = self.free.iter().take(count).nth(index) else {
            return Err(Pick::TooFew);
        };
        let (rank, name) = (rank.clone(), name.clone());
        self.free.remove(&rank);
        match self.items.get(&name) {
            Some(item) => {
                self.reserved.insert(name);
                Ok(item.clone())
            }
            None => Err(Pick::None(Some(now))),
        }
    }

    /// Releases the items whose delay or date has passed.
    fn recover(&mut self, now: Instant) {
        let rested = self.resting.iter().filter(|(_, (until, _))| *until <= now);
        let rested: Vec<Rank> = rested.map(|(rank, _)| rank.clone()).collect();
        for rank in rested {
            if let Some((_, name)) = self.resting.remove(&rank) {
                self.free.insert(rank, name);
            }
        }
        while let Some(entry) = self.delayed.first_entry().filter(|it| it.key().0 <= now) {
            let ((_, rank), name) = entry.remove_entry();
            let Some(item) = self.items.get_mut(&name) else { continue };
            item.due = item.due.and_then(|due| due.left(now));
            match item.due {
                Some(due) => drop(self.delayed.insert((due.at(), rank), name)),
                None if item.is_unread() => {
                    self.arrivals.add(&item.name, &name);
                    self.items.remove(&name);
                }
                None => drop(self.free.insert(rank, name)),
            }
        }
    }

    /// Returns true if the item of this name, which the store has just listed, may be delivered
    /// now. The consumer may not know the item yet. `date` is the current date.
    pub(super) fn is_deliverable(&self, text: &str, now: Instant, date: Duration) -> bool {
        let Some(name) = ItemName::parse(text).filter(|_| !self.aside.contains(text)) else {
            return false;
        };
        match self.items.get(text) {
            Some(item) => item.due.is_none_or(|due| due.left(now).is_none()),
            None => name.date().is_none_or(|due| due <= date),
        }
    }

    /// Adds an item to the collection that its state requires.
    fn enqueue(&mut self, name: &str, now: Instant, rest: Duration) {
        let Some(item) = self.items.get(name) else { return };
        let (rank, due) = (item.rank(), item.due);
        self.dequeue(rank.clone(), due);
        if self.reserved.contains(name) || self.aside.contains(name) {
            return;
        }
        match due.filter(|due| due.at() > now) {
            Some(due) => drop(self.delayed.insert((due.at(), rank), name.to_owned())),
            None if rest.is_zero() => drop(self.free.insert(rank, name.to_owned())),
            None => drop(self.resting.insert(rank, (now + rest, name.to_owned()))),
        }
    }

    fn dequeue(&mut self, rank: Rank, due: Option<Due>) {
        self.free.remove(&rank);
        self.resting.remove(&rank);
        if let Some(due) = due {
            self.delayed.remove(&(due.at(), rank));
        }
    }
}
