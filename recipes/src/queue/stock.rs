//! [`Stock`]: the items of a queue as one process knows them, and which of them it may try to get. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::store::Node;

use crate::queue::arrivals::Arrivals;
use crate::queue::item_name::{ItemName, Rank};
use crate::queue::stock_item::StockItem;
use crate::stamped::due::Due;

#[cfg(test)]
mod tests;

/// How long an item rests that was tried in vain: another consumer may have it, and that may be reported next.
const REST: Duration = Duration::from_millis(10);

/// How many names are remembered that are gone.
const REMEMBERED: usize = 64;

/// The most items that are read at once to learn their places.
const BATCH: usize = 50;

/// The items that are known, by the names of their nodes.
#[derive(Debug, Default)]
pub(super) struct Stock {
    items: BTreeMap<String, StockItem>,
    /// The names of the items that a task of this process tries to get.
    reserved: BTreeSet<String>,
    /// The last names that are known to be gone. What is reported of them is late.
    gone: VecDeque<String>,
    /// The names of those that this process cannot have.
    aside: BTreeSet<String>,
    /// The names of the items that may be tried, in their order.
    free: BTreeMap<Rank, String>,
    /// Those that may be tried later.
    resting: BTreeMap<Rank, (Instant, String)>,
    /// Those whose time has not come.
    delayed: BTreeMap<(Instant, Rank), String>,
    /// Those whose places are not known.
    arrivals: Arrivals,
}

/// What a look for items finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// They are reserved for the caller.
    Items(Vec<StockItem>),
    /// There are some, fewer than the place that was asked for.
    Few,
    /// These have to be read before: their places are not known.
    Unread(Vec<String>),
    /// There is none before this time, or before there is news.
    None(Option<Instant>),
}

impl Stock {
    /// Adds an item. What is no item is ignored. `date` is that of now.
    pub(super) fn add(&mut self, node: &Node, now: Instant, date: Duration) {
        let text = node.path.name();
        if self.was_gone(text) {
            return;
        }
        let Some(name) = ItemName::parse(text) else { return };
        if node.stat.is_none() && !name.shows_place() {
            return self.arrivals.add(name.priority, text);
        }
        let is_own = self.arrivals.remove(text);
        self.keep(text, StockItem { is_own, ..StockItem::new(name, node, now, date) }, now);
    }

    /// Takes note of an item that this process has put: where it is reported by its name alone, it is not read.
    pub(super) fn has_put(&mut self, node: &Node, now: Instant, date: Duration) {
        let text = node.path.name();
        if let Some(known) = self.items.get_mut(text) {
            known.is_own = true;
        } else if let Some(name) = ItemName::parse(text)
            && node.stat.is_some()
            && !self.was_gone(text)
        {
            let item = StockItem { is_own: true, ..StockItem::new(name, node, now, date) };
            self.arrivals.has_put(text.to_owned(), item);
        }
    }

    fn keep(&mut self, text: &str, item: StockItem, now: Instant) {
        let _last = self.items.insert(text.to_owned(), item);
        self.place(text, now, Duration::ZERO);
    }

    /// Records that there is no item of this name any more, whatever is reported later: a name is never used again.
    pub(super) fn record_gone(&mut self, name: &str) {
        self.remove(name);
        self.gone.push_back(name.to_owned());
        if self.gone.len() > REMEMBERED {
            self.gone.pop_front();
        }
    }

    /// Whether that was recorded.
    fn was_gone(&self, name: &str) -> bool {
        self.gone.iter().any(|gone| gone == name)
    }

    /// Removes the item of this name.
    pub(super) fn remove(&mut self, name: &str) {
        self.arrivals.remove(name);
        self.aside.remove(name);
        if let Some(item) = self.items.remove(name) {
            let rank = item.rank();
            self.unplace(rank, item.due);
        }
    }

    /// Records that this process cannot have an item.
    pub(super) fn set_aside(&mut self, name: &str) {
        self.aside.insert(name.to_owned());
    }

    /// Ends a reservation. An item that was tried is tried again later, if it is still there.
    pub(super) fn give_back(&mut self, name: &str, was_tried: bool, now: Instant) {
        self.reserved.remove(name);
        self.place(name, now, if was_tried { REST } else { Duration::ZERO });
    }

    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.free.clear();
        self.resting.clear();
        self.delayed.clear();
        self.arrivals.clear();
    }

    /// Reserves an item that this process has put, if one is among so many of the first.
    pub(super) fn pick_own(&mut self, width: usize, now: Instant) -> Option<StockItem> {
        self.recover(now);
        let known = self.free.len() + self.resting.len();
        if let Some((name, item)) = self.arrivals.take_own(width.saturating_sub(known)) {
            self.keep(&name, item, now);
        }
        let is_own = |name: &&String| self.items.get(*name).is_some_and(|item| item.is_own);
        let name = self.free.values().take(width).find(is_own)?.clone();
        let item = self.items.get(&name)?.clone();
        self.free.remove(&item.rank());
        self.reserved.insert(name);
        Some(item)
    }

    /// Reserves up to so many items, from this place of those that may be tried on.
    pub(super) fn pick(&mut self, place: usize, most: usize, now: Instant) -> Pick {
        self.recover(now);
        while let Some((name, item)) = self.arrivals.take_first_put() {
            self.keep(&name, item, now);
        }
        let count = place.saturating_add(most);
        if self.arrivals.may_be_among(&self.first_ranks(count), count) {
            return Pick::Unread(self.arrivals.ask(BATCH));
        }
        let mut all = match self.pick_one(place, now) {
            Ok(first) => vec![first],
            Err(none) => return none,
        };
        while all.len() < most
            && let Ok(next) = self.pick_one(place, now)
        {
            all.push(next);
        }
        Pick::Items(all)
    }

    /// The ranks of the first items that may be tried, now or after a rest.
    fn first_ranks(&self, count: usize) -> Vec<&Rank> {
        let mut first: Vec<_> = self.free.keys().take(count).collect();
        first.extend(self.resting.keys().take(count));
        first.sort();
        first.truncate(count);
        first
    }

    /// Reserves the item in this place of those that may be tried.
    fn pick_one(&mut self, place: usize, now: Instant) -> Result<StockItem, Pick> {
        // An item that rests keeps its place.
        let first = self.resting.first_key_value().map(|(rank, (until, _))| (rank, *until));
        let count = match first {
            Some((rank, _)) => self.free.range(..rank).take(place.saturating_add(1)).count(),
            None => self.free.len(),
        };
        if count == 0 {
            let due = self.delayed.first_key_value().map(|((due, _), _)| *due);
            return Err(Pick::None(first.map(|(_, until)| until).into_iter().chain(due).min()));
        }
        let Some((rank, name)) = self.free.iter().take(count).nth(place) else {
            return Err(Pick::Few);
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

    /// Lets those be tried that have rested, and those whose time has come.
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
                None => drop(self.free.insert(rank, name)),
            }
        }
    }

    /// Puts an item where it belongs.
    fn place(&mut self, name: &str, now: Instant, rest: Duration) {
        let Some(item) = self.items.get(name) else { return };
        let (rank, due) = (item.rank(), item.due);
        self.unplace(rank.clone(), due);
        if self.reserved.contains(name) || self.aside.contains(name) {
            return;
        }
        match due.filter(|due| due.at() > now) {
            Some(due) => drop(self.delayed.insert((due.at(), rank), name.to_owned())),
            None if rest.is_zero() => drop(self.free.insert(rank, name.to_owned())),
            None => drop(self.resting.insert(rank, (now + rest, name.to_owned()))),
        }
    }

    fn unplace(&mut self, rank: Rank, due: Option<Due>) {
        self.free.remove(&rank);
        self.resting.remove(&rank);
        if let Some(due) = due {
            self.delayed.remove(&(due.at(), rank));
        }
    }
}
