//! Puts into a queue: [`PutOptions`], the transaction of a put ([`QueueEntry`]), and the capacity
//! that limits puts.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::random::Random;
use synod_core::store::{Commit, Node, Outcome, Query, Rejected, Txn, View};

use crate::queue::item_name::{ItemName, MAX_ID};
use crate::queue::layout::{DOING, QueueShared};
use crate::support::time::date;
use crate::support::wait::until;

/// The options of a put into a [`Queue`](crate::queue::Queue).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PutOptions {
    pub(super) id: Option<String>,
    pub(super) priority: Option<u16>,
    pub(super) delay: Option<PutDelay>,
}

/// The earliest time of the delivery of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PutDelay {
    After(Duration),
    At(SystemTime),
}

impl PutOptions {
    /// Sets the id of the item. While an item with this id is in the queue, no other one is put
    /// there. An id has at most 120 bytes; each byte of a character that cannot be part of a node
    /// name, such as `/`, counts as three.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the priority of the item, at most 999. A lower number is delivered earlier. The default
    /// is 100.
    pub fn priority(mut self, priority: u16) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Delays the delivery of the item by `after`, until a date by the wall clock of the producer.
    /// A delay of zero is none. It replaces an earlier delay or date.
    pub fn after(mut self, after: Duration) -> Self {
        self.delay = Some(PutDelay::After(after));
        self
    }

    /// Delays the delivery of the item until this date, by the wall clock of the consumer. Items
    /// whose dates have passed precede the items of their priority without a date, the earliest
    /// date first. It replaces an earlier delay or date.
    pub fn at(mut self, date: SystemTime) -> Self {
        self.delay = Some(PutDelay::At(date));
        self
    }

    /// Returns the name of an item with these options.
    pub(super) fn name(&self, shared: &QueueShared) -> Result<ItemName> {
        let invalid =
            |why: String| Error::new(ErrorKind::Invalid, DOING).at(&shared.dir).because(why);
        if self.priority.is_some_and(|priority| priority > 999) {
            return Err(invalid("the maximum priority is 999".to_owned()));
        }
        let unique = shared.unique_id();
        let name = match &self.id {
            Some(id) => ItemName::with_id(self.priority, &unique, id)?
                .ok_or_else(|| invalid(format!("an id in a name has at most {MAX_ID} bytes")))?,
            None => ItemName::unique(self.priority, unique),
        };
        Ok(match self.delay.and_then(|delay| delay.date(date())) {
            Some(date) => name.not_before(date),
            None => name,
        })
    }
}

impl PutDelay {
    /// Returns the date, since the beginning of 1970, before which the item is not delivered, or
    /// `None` for a delay of zero. `now` is the current date.
    pub(super) fn date(self, now: Duration) -> Option<Duration> {
        match self {
            Self::After(Duration::ZERO) => None,
            Self::After(after) => Some(now.saturating_add(after)),
            Self::At(date) => Some(date.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()),
        }
    }
}

/// The capacity of a queue, as this producer set it. Each item of a bounded queue fills a slot,
/// which is a node, so the store enforces the limit. Without a capacity items fill no slots. Clones
/// share the list of free slots.
#[derive(Clone, Default)]
pub(super) struct QueueBound {
    max: Option<u64>,
    /// Slots that were free when they were last listed, in random order, so that producers seldom
    /// try the same slot.
    free: Arc<Mutex<Vec<u64>>>,
}

/// The maximum number of free slots that are remembered.
const MAX_FREE: u64 = 256;

/// The outcome of the transaction of a put.
pub(super) type PutOutcome = Outcome<Option<Commit>>;

/// Items that are put into a queue together, and further operations of the same transaction.
pub(super) struct QueueEntry<'a> {
    pub(super) shared: &'a QueueShared,
    pub(super) txn: Txn,
    pub(super) items: Vec<(ItemName, Bytes)>,
    /// True if a transaction in doubt is not given up at the time limit of a call.
    pub(super) is_unlimited: bool,
}

impl QueueBound {
    pub(super) fn of(max: NonZeroUsize) -> Self {
        Self { max: u64::try_from(max.get()).ok(), free: Arc::default() }
    }

    /// Returns the number of nodes of an item, and the maximum number of items in a transaction of
    /// this many operations. A batch that fills a small queue would wait until it is empty.
    pub(super) fn batch_limits(&self, operations: usize) -> (usize, usize) {
        let Some(capacity) = self.max else { return (1, operations.max(1)) };
        let half = usize::try_from(capacity.div_ceil(2)).unwrap_or(usize::MAX);
        (2, (operations / 2).min(half).max(1))
    }

    /// Sends the transaction once there are enough free slots. It may be rejected for another
    /// reason.
    pub(super) async fn put(&self, entry: &QueueEntry<'_>) -> Result<PutOutcome> {
        loop {
            if let Some(outcome) = self.try_put(entry).await? {
                return Ok(outcome);
            }
            let shared = entry.shared;
            let count = u64::try_from(entry.items.len()).unwrap_or(u64::MAX);
            let has_room = |view: &View| self.filled_in(view).count_free() >= count;
            until(&shared.client, Query::children(&shared.slots).names_only(), has_room).await?;
        }
    }

    /// Sends the transaction. Returns `None` if there are not enough free slots.
    pub(super) async fn try_put(&self, entry: &QueueEntry<'_>) -> Result<Option<PutOutcome>> {
        let Some(capacity) = self.max else {
            return entry.commit_into(&[]).await.map(Some);
        };
        if u64::try_from(entry.items.len()).is_ok_and(|items| items > capacity) {
            return Err(Error::new(ErrorKind::TooLarge, DOING)
                .at(&entry.shared.dir)
                .because("more items than the capacity of the queue"));
        }
        loop {
            let Some(slots) = self.take_free_slots(entry).await? else { return Ok(None) };
            match entry.commit_into(&slots).await? {
                // Another producer filled the slot first: the list is out of date.
                Outcome::Rejected(no) if entry.shared.is_filled_slot(&no) => {
                    self.set_free(Vec::new());
                }
                outcome => return Ok(Some(outcome)),
            }
        }
    }

    /// Takes a free slot for each item. Returns `None` if there are too few.
    async fn take_free_slots(&self, entry: &QueueEntry<'_>) -> Result<Option<Vec<u64>>> {
        let count = entry.items.len();
        if let Some(slots) = self.take_known(count) {
            return Ok(Some(slots));
        }
        let shared = entry.shared;
        let view = shared.client.read(Query::children(&shared.slots).names_only()).await?;
        let wanted = u64::try_from(count).unwrap_or(u64::MAX).max(MAX_FREE);
        self.set_free(self.filled_in(&view).choose_free(wanted, shared.client.random()));
        Ok(self.take_known(count))
    }

    /// Returns the filled slots in a view.
    fn filled_in(&self, view: &View) -> FilledSlots {
        let capacity = self.max.unwrap_or(0);
        let names = view.nodes.iter().filter_map(|node| node.path.name().parse().ok());
        // Another producer may have set a larger capacity.
        FilledSlots { capacity, slots: names.filter(|slot| *slot < capacity).collect() }
    }

    fn take_known(&self, count: usize) -> Option<Vec<u64>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let left = free.len().checked_sub(count)?;
        Some(free.split_off(left))
    }

    fn set_free(&self, slots: Vec<u64>) {
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) = slots;
    }
}

impl QueueEntry<'_> {
    /// Sends the transaction that puts the items into these slots.
    async fn commit_into(&self, slots: &[u64]) -> Result<PutOutcome> {
        let (txn, writes) = (self.txn_into(slots)?, &self.shared.writes);
        if self.is_unlimited {
            writes.commit_without_limit(&txn).await
        } else {
            writes.commit(&txn).await
        }
    }

    /// Builds the transaction that puts the items into these slots.
    fn txn_into(&self, slots: &[u64]) -> Result<Txn> {
        let slots = slots.iter().copied().map(Some).chain(std::iter::repeat(None));
        let mut all = self.items.iter().zip(slots);
        all.try_fold(self.txn.clone(), |txn, ((name, data), slot)| {
            self.shared.with_item(txn, &name.clone().in_slot(slot), data.clone())
        })
    }

    /// Returns whether the items were stored. They were not if an item with the same id is in the
    /// queue.
    pub(super) fn is_new(&self, outcome: &PutOutcome) -> Result<bool> {
        match outcome {
            Outcome::Committed(_) => Ok(true),
            Outcome::Rejected(no) if self.is_known_id(no) => Ok(false),
            Outcome::Rejected(no) => Err(self.shared.writes.refused(no)),
        }
    }

    fn is_known_id(&self, no: &Rejected) -> bool {
        self.items.iter().any(|(name, _)| self.shared.is_known_id(no, name))
    }

    /// Returns the nodes of the items, as the transaction created them, if the store reported them.
    pub(super) fn nodes(&self, commit: &Commit) -> impl Iterator<Item = Node> {
        let is_item = |path: &Path| path.parent().is_some_and(|dir| dir == self.shared.items);
        let created = commit.results.iter().filter(move |done| is_item(&done.path));
        created.zip(&self.items).filter_map(|(done, (_name, data))| {
            Some(Node::new(done.path.clone()).with(data.clone(), done.stat?))
        })
    }
}

/// The filled slots of a bounded queue.
pub(super) struct FilledSlots {
    pub(super) capacity: u64,
    /// The filled slots below the capacity.
    pub(super) slots: BTreeSet<u64>,
}

impl FilledSlots {
    pub(super) fn count_free(&self) -> u64 {
        let filled = u64::try_from(self.slots.len()).unwrap_or(u64::MAX);
        self.capacity.saturating_sub(filled)
    }

    /// Returns at most `max` free slots in random order. The effort grows with the number of
    /// returned and of filled slots, not with the capacity.
    pub(super) fn choose_free(&self, max: u64, random: &Random) -> Vec<u64> {
        let wanted = self.count_free().min(max);
        let filled = self.capacity - self.count_free();
        if self.capacity / 2 <= filled + wanted {
            let free = (0..self.capacity).filter(|slot| !self.slots.contains(slot));
            let mut free = shuffled(free.collect(), random);
            free.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
            return free;
        }
        // At least every second slot is free and not chosen yet.
        let (mut chosen, mut all) = (BTreeSet::new(), Vec::new());
        for _ in 0..wanted {
            let slot = loop {
                let slot = random.below(self.capacity);
                if !self.slots.contains(&slot) && chosen.insert(slot) {
                    break slot;
                }
            };
            all.push(slot);
        }
        all
    }
}

/// Returns the elements in random order, so that several processes that choose from one list seldom
/// choose the same element first.
pub(super) fn shuffled<T>(mut all: Vec<T>, random: &Random) -> Vec<T> {
    for last in (1..all.len()).rev() {
        let other = random.below(u64::try_from(last + 1).unwrap_or(1));
        all.swap(last, usize::try_from(other).unwrap_or(0));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_slots_are_chosen_once_each_whatever_the_capacity() {
        let random = Random::seeded(7);
        for (capacity, filled, wanted, expected) in [
            (0, 0, 5, 0),
            (1, 0, 5, 1),
            (1, 1, 5, 0),
            (10, 3, 5, 5),
            (10, 3, 9, 7),
            (600, 1, 256, 256),
            (u64::MAX, 1_000, 256, 256),
        ] {
            let slots = FilledSlots { capacity, slots: (0..filled).collect() };
            let chosen = slots.choose_free(wanted, &random);
            let distinct: BTreeSet<u64> = chosen.iter().copied().collect();
            assert_eq!((chosen.len(), distinct.len()), (expected, expected), "{capacity}");
            assert!(distinct.iter().all(|slot| (filled..capacity).contains(slot)), "{capacity}");
            assert_eq!(slots.count_free(), capacity - filled);
        }
    }
}
