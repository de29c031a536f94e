//! [`Room`]: the limit of a bounded queue. Each of its items fills a slot, which is a node, so the store counts.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Commit, Node, Outcome, Query, Rejected, Txn, View};

use crate::cell::until::until;
use crate::queue::item_name::ItemName;
use crate::queue::place::{DOING, QueuePlace};
use crate::queue::slots::FilledSlots;

/// The slots that a producer may fill. Clones share what it knows of them. Without a capacity items fill none.
#[derive(Clone, Default)]
pub(super) struct Room {
    capacity: Option<u64>,
    /// Slots that were free when they were listed last, in a random order: so producers seldom try the same one.
    free: Arc<Mutex<Vec<u64>>>,
}

/// The maximum number of free slots that are remembered.
const REMEMBERED: u64 = 256;

/// What became of items that were to come into a queue.
pub(super) type PutOutcome = Outcome<Option<Commit>>;

/// Items that are to come into a queue together, with what else is to happen.
pub(super) struct QueueEntry<'a> {
    pub(super) place: &'a QueuePlace,
    pub(super) txn: Txn,
    pub(super) items: Vec<(ItemName, Bytes)>,
}

impl Room {
    pub(super) fn of(capacity: NonZeroUsize) -> Self {
        Self { capacity: u64::try_from(capacity.get()).ok(), free: Arc::default() }
    }

    /// Sends the transaction, when there is room. It may be rejected for another reason.
    pub(super) async fn enter(&self, entry: &QueueEntry<'_>) -> Result<PutOutcome> {
        loop {
            if let Some(entered) = self.try_enter(entry).await? {
                return Ok(entered);
            }
            let place = entry.place;
            let count = u64::try_from(entry.items.len()).unwrap_or(u64::MAX);
            let has_room = |view: &View| self.filled_in(view).count_free() >= count;
            until(&place.client, Query::children(&place.slots).names_only(), has_room).await?;
        }
    }

    /// Sends the transaction. `None` if there is no room.
    pub(super) async fn try_enter(&self, entry: &QueueEntry<'_>) -> Result<Option<PutOutcome>> {
        let Some(capacity) = self.capacity else {
            return entry.place.writes.insist(&entry.filling(&[])?).await.map(Some);
        };
        if u64::try_from(entry.items.len()).is_ok_and(|items| items > capacity) {
            return Err(Error::new(ErrorKind::TooLarge, DOING)
                .at(&entry.place.dir)
                .because("these are more items than the queue may have"));
        }
        loop {
            let Some(slots) = self.slots(entry).await? else { return Ok(None) };
            match entry.place.writes.insist(&entry.filling(&slots)?).await? {
                // Another producer was faster; what was listed is out of date.
                Outcome::Rejected(no) if entry.place.is_filled_slot(&no) => {
                    self.remember(Vec::new());
                }
                entered => return Ok(Some(entered)),
            }
        }
    }

    /// As many free slots as there are items. `None` if there are fewer.
    async fn slots(&self, entry: &QueueEntry<'_>) -> Result<Option<Vec<u64>>> {
        let count = entry.items.len();
        if let Some(slots) = self.known(count) {
            return Ok(Some(slots));
        }
        let place = entry.place;
        let view = place.client.read(Query::children(&place.slots).names_only()).await?;
        let wanted = u64::try_from(count).unwrap_or(u64::MAX).max(REMEMBERED);
        self.remember(self.filled_in(&view).choose_free(wanted, place.client.random()));
        Ok(self.known(count))
    }

    /// The slots that are filled in a view.
    fn filled_in(&self, view: &View) -> FilledSlots {
        let capacity = self.capacity.unwrap_or(0);
        let names = view.nodes.iter().filter_map(|node| node.path.name().parse().ok());
        // Another producer may have a larger capacity.
        FilledSlots { capacity, slots: names.filter(|slot| *slot < capacity).collect() }
    }

    fn known(&self, count: usize) -> Option<Vec<u64>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let left = free.len().checked_sub(count)?;
        Some(free.split_off(left))
    }

    fn remember(&self, slots: Vec<u64>) {
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) = slots;
    }
}

impl QueueEntry<'_> {
    /// The transaction that puts the items there, into these slots.
    fn filling(&self, slots: &[u64]) -> Result<Txn> {
        let slots = slots.iter().copied().map(Some).chain(std::iter::repeat(None));
        let mut all = self.items.iter().zip(slots);
        all.try_fold(self.txn.clone(), |txn, ((name, data), slot)| {
            self.place.with_item(txn, &name.clone().in_slot(slot), data.clone())
        })
    }

    /// Whether its item was put: it was not if an item of its id is there.
    pub(super) fn is_new(&self, entered: &PutOutcome) -> Result<bool> {
        match entered {
            Outcome::Committed(_) => Ok(true),
            Outcome::Rejected(no) if self.is_known_id(no) => Ok(false),
            Outcome::Rejected(no) => Err(self.place.writes.refused(no)),
        }
    }

    fn is_known_id(&self, no: &Rejected) -> bool {
        self.items.iter().any(|(name, _)| self.place.is_known_id(no, name))
    }

    /// The nodes of its items, as the transaction made them. None of those that the store did not report.
    pub(super) fn nodes(&self, commit: &Commit) -> impl Iterator<Item = Node> {
        let is_item = |path: &Path| path.parent().is_some_and(|dir| dir == self.place.items);
        let made = commit.results.iter().filter(move |done| is_item(&done.path));
        made.zip(&self.items).filter_map(|(done, (_name, data))| {
            Some(Node::new(done.path.clone()).with(data.clone(), done.stat?))
        })
    }
}
