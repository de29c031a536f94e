//! [`Arrivals`]: items of a queue of which only the names are known. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use synod_core::clock::Instant;
use synod_core::store::{Node, Revision};

use crate::mutant::mistake;
use crate::queue::item_name::{ItemName, Rank};
use crate::support::time::Due;

/// An item of the queue, as the store reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StockItem {
    pub(super) name: ItemName,
    /// The revision of the node. Not used if the name contains the position of the item.
    pub(super) created: Revision,
    /// The data, or `None` if it is too large to be cached, or was not reported.
    pub(super) data: Option<Bytes>,
    /// The time before which the item is not delivered.
    pub(super) due: Option<Due>,
    /// True if this process has put the item.
    pub(super) is_own: bool,
}

/// Returns the data unless it is empty. A local copy leaves out large data.
fn some(data: &Bytes) -> Option<Bytes> {
    Some(data).filter(|data| !data.is_empty()).cloned()
}

impl StockItem {
    pub(super) fn new(name: ItemName, node: &Node, now: Instant, date: Duration) -> Self {
        let created = node.stat.map(|stat| stat.created).unwrap_or_default();
        let due = name.date().map(|due| Due::after(due.saturating_sub(date), now));
        mistake!(DelayIgnored: let due = None);
        Self { name, created, data: some(&node.data), due, is_own: false }
    }

    /// Returns true if the position of the item is not known: only its name was reported.
    pub(super) fn is_unread(&self) -> bool {
        self.created == Revision::ZERO && !self.name.shows_place()
    }

    pub(super) fn rank(&self) -> Rank {
        let created = self.created;
        mistake!(QueueIgnoresOrder: let created = Revision::ZERO);
        self.name.rank(created)
    }
}

/// The maximum number of own items that are remembered: items that this process has put, and that
/// were not reported yet or are not the first.
const MAX_OWN: usize = 64;

/// The priority of an item, true if it has no date, and the order of its arrival. Dated items are
/// delivered first.
type ArrivalKey = (u16, bool, u64);

/// Items whose positions are not known, and that may be delivered now, in the order in which they
/// were reported. A consumer reads them in batches when it may have to try one of them. So items
/// that other consumers take meanwhile are never read.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// The names in the order in which they are read.
    names: BTreeMap<ArrivalKey, String>,
    /// The key in `names` of each name.
    keys: BTreeMap<String, ArrivalKey>,
    /// The names that a consumer has requested to read.
    requested: BTreeSet<String>,
    /// The last items that this process has put. They need not be read.
    own: VecDeque<(String, StockItem)>,
    count: u64,
    /// True if the names may have been reported in another order than that of their creation, as
    /// part of a copy.
    is_mixed: bool,
}

impl Default for Arrivals {
    /// Starts unordered: the first report may be a copy.
    fn default() -> Self {
        let (names, keys, requested) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { names, keys, requested, own: VecDeque::new(), count: 0, is_mixed: true }
    }
}

impl Arrivals {
    /// Adds an item with this name, which is written `text`.
    pub(super) fn add(&mut self, name: &ItemName, text: &str) {
        if self.keys.contains_key(text) {
            return;
        }
        self.count += 1;
        let key = (name.priority, !name.is_dated(), self.count);
        self.names.insert(key, text.to_owned());
        self.keys.insert(text.to_owned(), key);
    }

    /// Records an item that this process has put.
    pub(super) fn record_put(&mut self, name: String, item: StockItem) {
        self.own.push_back((name, item));
        if self.own.len() > MAX_OWN {
            self.own.pop_front();
        }
    }

    /// Removes and returns the item of this name, if this process has put it.
    pub(super) fn take_own_named(&mut self, name: &str) -> Option<StockItem> {
        let index = self.own.iter().position(|(own, _item)| own == name)?;
        self.own.remove(index).map(|(_name, item)| item)
    }

    /// Removes and returns the first item, if this process has put it. A later own item stays: the
    /// items before it must be read first.
    pub(super) fn take_first_own(&mut self) -> Option<(String, StockItem)> {
        let (_key, first) = self.names.first_key_value()?;
        let index = self.own.iter().position(|(name, _item)| name == first)?;
        let own = self.own.remove(index)?;
        self.remove(&own.0);
        Some(own)
    }

    /// Removes and returns the first own item, if it is among the first `width` items. A copy has
    /// no order. An item that was not reported yet comes after all reported ones.
    pub(super) fn take_own(&mut self, width: usize) -> Option<(String, StockItem)> {
        let own = |reported: &String| self.own.iter().position(|(name, _item)| name == reported);
        let ordered = if self.is_mixed { 0 } else { width };
        let index = self.names.values().take(ordered).find_map(own).or_else(|| {
            let has_room = self.names.len() < width;
            self.own.iter().position(|(name, _item)| has_room && !self.keys.contains_key(name))
        })?;
        let own = self.own.remove(index)?;
        self.remove(&own.0);
        Some(own)
    }

    /// Removes an item: its position is known, or it is gone. Returns whether this process has put
    /// it.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let before = self.own.len();
        self.own.retain(|(known, _item)| known != name);
        if let Some(key) = self.keys.remove(name) {
            self.names.remove(&key);
            self.requested.remove(name);
            self.is_mixed &= !self.names.is_empty();
        }
        self.own.len() < before
    }

    /// Removes all items. A copy will be reported next.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns true if one of these items may precede the last of `known`, or is needed because
    /// `known` has fewer than `count` items.
    pub(super) fn may_be_among(&self, known: &[&Rank], count: usize) -> bool {
        let Some((&(priority, is_undated, _), _)) = self.names.first_key_value() else {
            return false;
        };
        let may_precede = |rank: &&Rank| rank.may_follow(priority, !is_undated);
        self.is_mixed || known.len() < count || known.iter().any(may_precede)
    }

    /// Returns the names of at most `max` first items that were not requested yet, and marks them
    /// as requested.
    pub(super) fn take_unread(&mut self, max: usize) -> Vec<String> {
        let is_own = |name: &String| self.own.iter().any(|(known, _item)| known == name);
        let is_known = |name: &String| self.requested.contains(name) || is_own(name);
        let unread = self.names.values().filter(|name| !is_known(name));
        let names: Vec<String> = unread.take(max).cloned().collect();
        self.requested.extend(names.iter().cloned());
        names
    }
}
