//! [`PutBatches`]: any number of items that are put in several transactions.

use std::fmt;

use futures_core::future::BoxFuture;
use synod_core::error::{Error, Result};
use synod_core::store::Txn;

use crate::queue::Queue;
use crate::queue::item_name::ItemName;
use crate::queue::put::QueueEntry;

/// The room in a transaction for the operation that sets the write id, in bytes.
const WRITE_ID_ROOM: usize = 4_096;

/// The size of an operation in a transaction, without the data and the path of the queue.
const OP_ROOM: usize = 256;

/// Items that are put in several transactions, each with as many items as it can have:
/// [`Queue::put_in_batches`].
#[must_use = "nothing is put before `put` is called"]
pub struct PutBatches<'a, T> {
    queue: &'a Queue<T>,
    /// The items that are not stored yet.
    rest: &'a [T],
    stored: usize,
    /// The batch that was sent last, until its effect is known.
    in_flight: Option<ItemBatch<'a>>,
    /// The error after which it is unknown whether a batch was stored.
    unknown: Option<Error>,
}

/// Items of one transaction, with the call that puts them.
struct ItemBatch<'a> {
    count: usize,
    put: BoxFuture<'a, Result<()>>,
}

impl<T> PutBatches<'_, T> {
    /// Puts the items that are not stored yet. After an error, and after a dropped call, the next
    /// call continues: it stores no item again. An outage during a transaction prolongs the call.
    ///
    /// # Errors
    ///
    /// As [`Queue::put`]. The items before the one that cannot be put are stored. If the effect is
    /// unknown, the client was closed before the answer: the next items were stored or were not,
    /// and each further call fails.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next call continues with the transaction of a dropped one. If there is no
    /// next call, its items are stored, or none of them.
    pub async fn put(&mut self) -> Result<()> {
        if let Some(error) = &self.unknown {
            return Err(error.clone());
        }
        while self.in_flight.is_some() || !self.rest.is_empty() {
            let batch = match self.in_flight.take() {
                Some(batch) => batch,
                None => self.queue.first_batch(self.rest).await?,
            };
            let count = batch.count;
            let put = (&mut self.in_flight.insert(batch).put).await;
            self.in_flight = None;
            if let Err(error) = put {
                self.unknown = Some(error.clone()).filter(Error::has_unknown_effect);
                return Err(error);
            }
            self.stored += count;
            self.rest = &self.rest[count..];
        }
        Ok(())
    }

    /// The number of items that are stored, in the given order: the next item is the one with this
    /// index.
    pub fn stored(&self) -> usize {
        self.stored
    }
}

/// Omits the items.
impl<T> fmt::Debug for PutBatches<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, rest) = (&self.queue.dir, self.rest.len());
        f.debug_struct("PutBatches")
            .field("path", path)
            .field("stored", &self.stored)
            .field("rest", &rest)
            .finish_non_exhaustive()
    }
}

/// # Batches
impl<T> Queue<T> {
    /// Prepares to put any number of items, in this order, in as few transactions as they need.
    /// Nothing is put before [`PutBatches::put`] is called. Other producers may put items between
    /// them; [`Queue::put_many`] puts all items or none.
    pub fn put_in_batches<'a>(&'a self, items: &'a [T]) -> PutBatches<'a, T> {
        PutBatches { queue: self, rest: items, stored: 0, in_flight: None, unknown: None }
    }

    /// Prepares the first of these items, as many as fit into one transaction. An item that is too
    /// large for a transaction is a batch of its own.
    async fn first_batch<'a>(&'a self, items: &'a [T]) -> Result<ItemBatch<'a>> {
        let (shared, session) = (self.shared()?, self.client.session().await?);
        let limits = &session.info().limits;
        let (nodes, max) = self.capacity.batch_limits(limits.operations.saturating_sub(1));
        let names = nodes * (self.dir.as_str().len() + OP_ROOM);
        let mut room = limits.request.saturating_sub(WRITE_ID_ROOM);
        let (id, mut batch) = (shared.unique_id(), Vec::new());
        for (number, item) in items.iter().take(max).enumerate() {
            let data = match self.codec.encode(&self.dir, item) {
                Ok(data) => data,
                Err(error) if batch.is_empty() => return Err(error),
                // The items before it are put first.
                Err(_error) => break,
            };
            let size = data.len() + names;
            if size > room && !batch.is_empty() {
                break;
            }
            room = room.saturating_sub(size);
            batch.push((ItemName::unique(None, format!("{id}-{number:04}")), data));
        }
        let count = batch.len();
        let entry = QueueEntry { shared, txn: Txn::new(), items: batch, is_unlimited: true };
        let put = async move {
            let outcome = self.capacity.put(&entry).await?;
            self.record_put(&entry, &outcome);
            entry.is_new(&outcome).map(drop)
        };
        Ok(ItemBatch { count, put: Box::pin(put) })
    }
}
