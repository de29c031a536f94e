//! [`Queue`]: items that wait for consumers, in order.

pub use crate::compat_queue::CompatQueue;
pub use crate::compat_queue::layout::{ItemPlace, QueueLayout};
pub use crate::queue::batches::PutBatches;
pub use crate::queue::consume::WorkOutcome;
pub use crate::queue::delivery::Delivery;
pub use crate::queue::failures::FailedDelivery;
pub use crate::queue::item_name::is_item;
pub use crate::queue::listing::{QueueClaim, QueuedItem};
pub use crate::queue::put::PutOptions;
pub use crate::queue::stats::QueueStats;

use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Outcome, Txn};

use crate::queue::backoff::ItemBackoff;
use crate::queue::consumer::Consumer;
use crate::queue::item_name::ItemName;
use crate::queue::layout::{Codec, DOING, QueueShared};
use crate::queue::put::{PutOutcome, QueueBound, QueueEntry};
use crate::queue::stock_shared::Reserved;
use crate::queue::take::{claim, take};
use crate::support::retry::ItemCallBackoff;
use crate::support::wait::ItemWait;

mod arrivals;
mod backoff;
pub(crate) mod batches;
pub(crate) mod consume;
mod consumer;
pub(crate) mod delivery;
pub(crate) mod failures;
mod item_name;
mod layout;
pub(crate) mod listing;
pub(crate) mod put;
mod returns;
pub(crate) mod stats;
mod stock;
mod stock_shared;
mod take;

/// The default limit of deliveries of an item.
const MAX_DELIVERIES: u32 = 25;

/// The maximum number of items of one take, also if the caller allows more: no store accepts so
/// many operations in one transaction.
const MAX_TAKEN: usize = 1_000;

#[cfg_attr(not(doctest), doc = include_str!("../docs/queue.md"))]
pub struct Queue<T> {
    client: Client,
    dir: Path,
    /// An error if the path is too long for the nodes below it.
    shared: Result<Arc<QueueShared>>,
    /// Started by the first call that needs an item. A producer has none.
    consumer: Arc<OnceLock<Consumer>>,
    codec: Codec<T>,
    capacity: QueueBound,
    /// The maximum number of deliveries of an item.
    max_deliveries: u32,
    backoff: ItemBackoff,
}

impl<T: Serialize + DeserializeOwned> Queue<T> {
    /// Creates a handle of the queue at `path`, whose items are stored as JSON. If the path is too
    /// long for the nodes below it, each call fails with [`ErrorKind::Invalid`].
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self::of(client, path.into(), Codec::JSON)
    }
}

impl Queue<Bytes> {
    /// [`Queue::new`] for items that are bytes, as in a format of the application. There is no
    /// option for compression: put the compressed bytes.
    pub fn new_bytes(client: &Client, path: impl Into<Path>) -> Self {
        Self::of(client, path.into(), Codec::RAW)
    }
}

impl<T> Queue<T> {
    fn of(client: &Client, dir: Path, codec: Codec<T>) -> Self {
        Self {
            client: client.clone(),
            shared: QueueShared::new(client, dir.clone()).map(Arc::new),
            dir,
            consumer: Arc::default(),
            codec,
            capacity: QueueBound::default(),
            max_deliveries: MAX_DELIVERIES,
            backoff: ItemBackoff::default(),
        }
    }

    fn shared(&self) -> Result<&Arc<QueueShared>> {
        self.shared.as_ref().map_err(Clone::clone)
    }

    /// Sets the maximum number of deliveries of an item by [claims](Queue::claim) through this
    /// handle. The default is 25. An item that is put back after its last delivery, or whose
    /// consumer dies then, is moved to the dead letters, and a warning is logged.
    /// [`NonZeroU32::MAX`] means no limit.
    ///
    /// A claim counts as a delivery once its caller has received it, or if the process ends before.
    /// A claim whose caller was dropped earlier does not count.
    pub fn max_deliveries(mut self, times: NonZeroU32) -> Self {
        self.max_deliveries = times.get();
        self
    }

    /// Sets the delay before [`Queue::consume`] retries an item whose work failed: `first` after
    /// the first delivery, and twice as long after each further one, up to `longest`. The default
    /// is from one second to 15 minutes. Each delay is shortened at random by up to a quarter.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.backoff = ItemBackoff { first, longest };
        self
    }

    /// Sets the maximum number of items in the queue, including claimed ones, for puts through this
    /// handle. While the queue is full [`Queue::put`] waits, and [`Queue::try_put`] returns `None`.
    /// By default there is no limit, and no cost.
    ///
    /// The limit applies to this producer: all producers that are to be limited must set the same
    /// number. Consumers need not set it.
    pub fn capacity(mut self, max: NonZeroUsize) -> Self {
        self.capacity = QueueBound::of(max);
        self
    }

    /// Puts an item into the queue, after all other items of its priority.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if the item is larger than the store accepts, [`ErrorKind::Invalid`]
    /// if it cannot be serialized, and the common errors of a [`Client`]. If the effect is unknown,
    /// the item was stored once or not at all.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has put the item into the queue, or has not.
    pub async fn put(&self, item: &T) -> Result<()> {
        self.put_with(item, PutOptions::default()).await.map(drop)
    }

    /// Puts an item into the queue. Returns false if an item with the same id is already there.
    ///
    /// # Errors
    ///
    /// As [`Queue::put`], and [`ErrorKind::Invalid`] for an id that is empty or too long, or a
    /// priority above 999.
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::put`].
    pub async fn put_with(&self, item: &T, options: PutOptions) -> Result<bool> {
        let entry = self.entry(item, &options)?;
        let outcome = self.capacity.put(&entry).await?;
        self.record_put(&entry, &outcome);
        entry.is_new(&outcome)
    }

    /// Puts an item as [`Queue::put_with`] does, but does not wait for free
    /// [capacity](Queue::capacity): returns `None` if the queue is full.
    ///
    /// # Errors
    ///
    /// As [`Queue::put_with`].
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::put`].
    pub async fn try_put(&self, item: &T, options: PutOptions) -> Result<Option<bool>> {
        let entry = self.entry(item, &options)?;
        let Some(outcome) = self.capacity.try_put(&entry).await? else { return Ok(None) };
        self.record_put(&entry, &outcome);
        entry.is_new(&outcome).map(Some)
    }

    /// Puts several items into the queue, in this order: all of them, or none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if the items are more operations or more data than the store accepts
    /// in one transaction, or more than the [capacity](Queue::capacity); then nothing was sent, and
    /// [`Queue::put_in_batches`] can put them. Otherwise as [`Queue::put`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has put all of them, or none.
    pub async fn put_many(&self, items: &[T]) -> Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        let shared = self.shared()?;
        let batch = shared.unique_id();
        let items = items.iter().enumerate().map(|(number, item)| {
            let name = ItemName::unique(None, format!("{batch}-{number:04}"));
            Ok((name, self.codec.encode(&self.dir, item)?))
        });
        let items = items.collect::<Result<_>>()?;
        let entry = QueueEntry { shared, txn: Txn::new(), items, is_unlimited: false };
        let outcome = self.capacity.put(&entry).await?;
        self.record_put(&entry, &outcome);
        entry.is_new(&outcome).map(drop)
    }

    /// Passes the stored items to the consumer of this process, which then need not read them.
    fn record_put(&self, entry: &QueueEntry<'_>, outcome: &PutOutcome) {
        if let (Some(consumer), Outcome::Committed(Some(commit))) = (self.consumer.get(), outcome) {
            consumer.record_put(entry.nodes(commit));
        }
    }

    fn entry(&self, item: &T, options: &PutOptions) -> Result<QueueEntry<'_>> {
        let (shared, data) = (self.shared()?, self.codec.encode(&self.dir, item)?);
        let items = vec![(options.name(shared)?, data)];
        Ok(QueueEntry { shared, txn: Txn::new(), items, is_unlimited: false })
    }
}

impl<T: Send + 'static> Queue<T> {
    /// Waits for an item, and removes it from the queue. Exactly one caller receives each item. The
    /// item is then no longer in the store: if the process ends before its work is done, the item
    /// is lost. For work that must not be lost use [`Queue::claim`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the item cannot be deserialized; it is moved to the dead letters.
    /// If the effect is unknown, an item may have been removed that no caller received: the client
    /// was closed before the answer. Otherwise the common errors of a [`Client`], except that an
    /// outage only prolongs the wait, even if the session is lost.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has taken nothing, or puts the item back in its place, in the background, as
    /// soon as the store answers.
    pub async fn take(&self) -> Result<T> {
        loop {
            if let Some(item) = self.take_many(NonZeroUsize::MIN).await?.pop() {
                return Ok(item);
            }
        }
    }

    /// Takes an item as [`Queue::take`] does, but does not wait for one. Returns `None` only if at
    /// some moment during the call no item could be delivered: the queue was empty, or each of its
    /// items was claimed or [delayed](PutOptions::after).
    ///
    /// # Errors
    ///
    /// As [`Queue::take`], but an outage ends the call at its time limit, unless a request to take
    /// an item is in flight.
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::take`].
    pub async fn try_take(&self) -> Result<Option<T>> {
        let mut backoff = ItemCallBackoff::limited(&self.client);
        loop {
            let mut tries = 0;
            let taking = self.take_next(NonZeroUsize::MIN, &mut backoff, &mut tries);
            match Box::pin(taking).await?.map(|mut taken| taken.pop()) {
                Some(None) => {}
                Some(item) => return Ok(item),
                None => return Ok(None),
            }
        }
    }

    /// Waits for an item, and removes it from the queue together with the items that follow: at
    /// most `max`, and no more than fit into one transaction. The items are returned in their
    /// order. An item that cannot be deserialized is left for the next take.
    ///
    /// # Errors
    ///
    /// As [`Queue::take`], for all items together.
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::take`].
    pub async fn take_many(&self, max: NonZeroUsize) -> Result<Vec<T>> {
        let waiting = async |wait: &mut ItemWait| {
            let mut backoff = ItemCallBackoff::waiting(&self.client);
            self.take_next(max, &mut backoff, &mut wait.tries).await
        };
        let taken = ItemWait::measured("queue_take", &self.dir, waiting);
        Box::pin(taken).await.map(Option::unwrap_or_default)
    }

    /// Takes the next items. Returns `None` if there are none, unless the call waits for them.
    async fn take_next(
        &self,
        max: NonZeroUsize,
        backoff: &mut ItemCallBackoff,
        tries: &mut u32,
    ) -> Result<Option<Vec<T>>> {
        let shared = self.shared()?;
        let mut max = max.get().min(MAX_TAKEN);
        loop {
            *tries += 1;
            let Some(reserved) = self.next(shared, max, backoff).await? else { return Ok(None) };
            let since = clock::now();
            match take(shared.clone(), reserved, self.codec).await {
                Ok(Some(taken)) => {
                    self.consumer(shared).record_try(false, clock::elapsed(since));
                    return Ok(Some(taken.received()));
                }
                Ok(None) => {
                    self.consumer(shared).record_try(true, clock::elapsed(since));
                    // One item that another consumer took rejects the whole transaction.
                    max = max.div_ceil(2);
                }
                Err(error) if error.has_unknown_effect() => return Err(error),
                Err(error) => backoff.wait(error).await?,
            }
        }
    }

    /// Waits for an item, and claims it: it stays in the queue until it is
    /// [acknowledged](Delivery::ack), and no other consumer receives it meanwhile. If this consumer
    /// dies, the item is delivered to another one once the session has expired.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the item cannot be deserialized; it is moved to the dead letters.
    /// Otherwise the common errors of a [`Client`], except that an outage only prolongs the wait.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: an item that a dropped call has claimed is put back in the background.
    pub async fn claim(&self) -> Result<Delivery<T>> {
        let waiting = async |wait: &mut ItemWait| {
            let mut backoff = ItemCallBackoff::waiting(&self.client);
            loop {
                if let Some(claimed) = self.claim_next(&mut backoff, &mut wait.tries).await? {
                    return Ok(claimed);
                }
            }
        };
        Box::pin(ItemWait::measured("queue", &self.dir, waiting)).await
    }

    /// Claims an item as [`Queue::claim`] does, but does not wait for one. Returns `None` only if
    /// at some moment during the call no item could be delivered: the queue was empty, or each of
    /// its items was claimed or [delayed](PutOptions::after).
    ///
    /// # Errors
    ///
    /// As [`Queue::claim`], but an outage ends the call at its time limit, unless a request to
    /// claim an item is in flight.
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::claim`].
    pub async fn try_claim(&self) -> Result<Option<Delivery<T>>> {
        let mut backoff = ItemCallBackoff::limited(&self.client);
        Box::pin(self.claim_next(&mut backoff, &mut 0)).await
    }

    /// Claims the next item. Returns `None` if there is none, unless the call waits for one.
    async fn claim_next(
        &self,
        backoff: &mut ItemCallBackoff,
        tries: &mut u32,
    ) -> Result<Option<Delivery<T>>> {
        let shared = self.shared()?;
        loop {
            *tries += 1;
            let Some(mut reserved) = self.next(shared, 1, backoff).await? else { return Ok(None) };
            let Some(reserved) = reserved.pop() else { continue };
            let since = clock::now();
            let (held, consumer) = (shared.clone(), self.consumer.clone());
            match claim(held, consumer, reserved, self.codec, self.max_deliveries).await {
                // A claim is valid only while its session is certain.
                Ok(Some(delivery)) if delivery.is_certain() => {
                    self.consumer(shared).record_try(false, clock::elapsed(since));
                    return Ok(Some(delivery.mark_received()));
                }
                Ok(Some(uncertain)) => {
                    drop(uncertain);
                    let error = Error::new(ErrorKind::Unreachable, DOING).at(&self.dir);
                    backoff.wait(error.because("the session of the claim is uncertain")).await?;
                }
                Ok(None) => self.consumer(shared).record_try(true, clock::elapsed(since)),
                Err(error) => backoff.wait(error).await?,
            }
        }
    }

    fn consumer(&self, shared: &Arc<QueueShared>) -> &Consumer {
        self.consumer.get_or_init(|| Consumer::start(shared))
    }

    /// Reserves the next item that may be tried, and at most `max - 1` items that follow it.
    /// Returns `None` if there is none, unless the call waits for one.
    async fn next(
        &self,
        shared: &Arc<QueueShared>,
        max: usize,
        backoff: &mut ItemCallBackoff,
    ) -> Result<Option<Vec<Reserved>>> {
        let consumer = self.consumer(shared);
        loop {
            let reserved = match backoff {
                ItemCallBackoff::Waiting(_) => {
                    consumer.reserve(max, self.client.random()).await.map(Some)
                }
                ItemCallBackoff::Limited(..) => consumer.try_reserve(shared, max).await,
            };
            match reserved {
                Ok(reserved) => return Ok(reserved),
                Err(error) => backoff.wait(error).await?,
            }
        }
    }
}

/// Clones share the local state of the queue.
impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            dir: self.dir.clone(),
            shared: self.shared.clone(),
            consumer: self.consumer.clone(),
            codec: self.codec,
            capacity: self.capacity.clone(),
            max_deliveries: self.max_deliveries,
            backoff: self.backoff,
        }
    }
}

/// Omits the data.
impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("path", &self.dir).finish_non_exhaustive()
    }
}
