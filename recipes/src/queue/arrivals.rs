//! [`Arrivals`]: the items of a queue that are known by their names alone. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::queue::item_name::Rank;
use crate::queue::stock_item::StockItem;

/// How many items are remembered that this process has put, and that were not reported yet or are not the first.
const REMEMBERED: usize = 64;

/// Items whose places are not known, in the order in which they were reported. A consumer reads them when it may have to try one of
/// them, many at once: what other consumers have taken by then is never read.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// By priority, and by arrival.
    names: BTreeMap<(u16, u64), String>,
    /// Where each of them is.
    keys: BTreeMap<String, (u16, u64)>,
    /// Those that were asked for.
    asked: BTreeSet<String>,
    /// The last items that this process has put: these need not be read.
    put: VecDeque<(String, StockItem)>,
    count: u64,
    /// Whether they may have been reported in another order than that of their creation: as a copy of what is there.
    is_mixed: bool,
}

impl Default for Arrivals {
    /// What is reported first may be a copy.
    fn default() -> Self {
        let (names, keys, asked) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { names, keys, asked, put: VecDeque::new(), count: 0, is_mixed: true }
    }
}

impl Arrivals {
    /// Adds an item of this priority.
    pub(super) fn add(&mut self, priority: u16, name: &str) {
        if self.keys.contains_key(name) {
            return;
        }
        self.count += 1;
        self.names.insert((priority, self.count), name.to_owned());
        self.keys.insert(name.to_owned(), (priority, self.count));
    }

    /// Takes note of an item that this process has put.
    pub(super) fn has_put(&mut self, name: String, item: StockItem) {
        self.put.push_back((name, item));
        if self.put.len() > REMEMBERED {
            self.put.pop_front();
        }
    }

    /// Removes the first item, if this process has put it. A later one is left where it is: those before it are to be read first.
    pub(super) fn take_first_put(&mut self) -> Option<(String, StockItem)> {
        let (_place, first) = self.names.first_key_value()?;
        let place = self.put.iter().position(|(name, _item)| name == first)?;
        let known = self.put.remove(place)?;
        self.remove(&known.0);
        Some(known)
    }

    /// Removes the first item that this process has put, if it is among so many of the first. What may be a copy has no order, and what
    /// was not reported yet comes after all that was.
    pub(super) fn take_own(&mut self, width: usize) -> Option<(String, StockItem)> {
        let own = |reported: &String| self.put.iter().position(|(name, _item)| name == reported);
        let ordered = if self.is_mixed { 0 } else { width };
        let place = self.names.values().take(ordered).find_map(own).or_else(|| {
            let has_room = self.names.len() < width;
            self.put.iter().position(|(name, _item)| has_room && !self.keys.contains_key(name))
        })?;
        let known = self.put.remove(place)?;
        self.remove(&known.0);
        Some(known)
    }

    /// Removes an item: its place is known, or it is gone. Returns whether this process has put it.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let before = self.put.len();
        self.put.retain(|(known, _item)| known != name);
        if let Some(key) = self.keys.remove(name) {
            self.names.remove(&key);
            self.asked.remove(name);
            self.is_mixed &= !self.names.is_empty();
        }
        self.put.len() < before
    }

    /// Forgets all of them. A copy of what is there will be reported.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether one of them may be before the last of these, or is needed because these are fewer than `count`.
    pub(super) fn may_be_among(&self, known: &[&Rank], count: usize) -> bool {
        let Some(((priority, _), _)) = self.names.first_key_value() else { return false };
        self.is_mixed || known.len() < count || known.iter().any(|rank| rank.may_follow(*priority))
    }

    /// The first of them that were not asked for, at most so many. They are from now on.
    pub(super) fn ask(&mut self, most: usize) -> Vec<String> {
        let is_put = |name: &String| self.put.iter().any(|(known, _item)| known == name);
        let is_known = |name: &String| self.asked.contains(name) || is_put(name);
        let unasked = self.names.values().filter(|name| !is_known(name));
        let names: Vec<String> = unasked.take(most).cloned().collect();
        self.asked.extend(names.iter().cloned());
        names
    }
}
