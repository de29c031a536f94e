//! [`Queue`]: items that wait for consumers, in order.

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

use crate::cell::patience::Patience;
use crate::line::item_wait::ItemWait;
use crate::queue::backoff::ItemBackoff;
use crate::queue::bunch::take;
use crate::queue::codec::Codec;
use crate::queue::consumer::Consumer;
use crate::queue::delivery::Delivery;
use crate::queue::item_name::{ItemName, MAX_ID};
use crate::queue::place::{DOING, QueuePlace};
use crate::queue::put_options::PutOptions;
use crate::queue::room::{PutOutcome, QueueEntry, Room};
use crate::queue::stock_shared::Reserved;
use crate::queue::taking::claim;
use crate::stamped::date::date;

mod arrivals;
mod backoff;
mod bunch;
mod claimed_item;
mod codec;
mod consume;
mod consumer;
mod consumer_node;
pub(crate) mod delivery;
mod item_name;
pub(crate) mod listing;
mod lost_items;
mod place;
pub(crate) mod put_options;
mod returning;
mod room;
mod shuffled;
mod slots;
mod stock;
mod stock_item;
mod stock_shared;
mod taking;
mod width;

/// The usual number of deliveries of an item.
const DELIVERIES: u32 = 25;

/// The maximum number of items that are taken at once, whatever the caller says: no store takes so many operations in one transaction.
const MAX_BUNCH: usize = 1_000;

#[cfg_attr(not(doctest), doc = include_str!("../docs/queue.md"))]
pub struct Queue<T> {
    place: Arc<QueuePlace>,
    /// Started by the first call that wants an item. Producers need none.
    consumer: Arc<OnceLock<Consumer>>,
    codec: Codec<T>,
    room: Room,
    /// How often an item is delivered at most.
    most: u32,
    backoff: ItemBackoff,
}

impl<T: Serialize + DeserializeOwned> Queue<T> {
    /// The queue at `path`, whose items are stored as JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the path is too long for what is below it.
    pub fn new(client: &Client, path: impl Into<Path>) -> Result<Self> {
        Self::of(client, path.into(), Codec::JSON)
    }
}

impl Queue<Bytes> {
    /// The queue at `path`, whose items are bytes.
    ///
    /// # Errors
    ///
    /// As [`Queue::new`].
    pub fn of_bytes(client: &Client, path: impl Into<Path>) -> Result<Self> {
        Self::of(client, path.into(), Codec::RAW)
    }
}

impl<T> Queue<T> {
    fn of(client: &Client, path: Path, codec: Codec<T>) -> Result<Self> {
        let place = Arc::new(QueuePlace::new(client, path)?);
        let (consumer, room, backoff) = (Arc::default(), Room::default(), ItemBackoff::default());
        Ok(Self { place, consumer, codec, room, most: DELIVERIES, backoff })
    }

    /// Sets how often an item is delivered by [claims](Queue::claim) through this at most: 25 times, if nothing else is said. If
    /// its consumers then put it back, or died, it is moved to the dead letters, and that is logged. [`NonZeroU32::MAX`] is no limit.
    ///
    /// A claim counts when its caller has it, or its process has ended: one that was dropped before does not.
    pub fn deliver_at_most(mut self, times: NonZeroU32) -> Self {
        self.most = times.get();
        self
    }

    /// Sets how long [`Queue::consume`] puts off an item whose work failed: so long after the first delivery, and twice as long
    /// after each further one, up to the longest time. From one second to 15 minutes, if nothing else is said; each time is up to a
    /// quarter shorter, at random.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.backoff = ItemBackoff { first, longest };
        self
    }

    /// Sets how many items may be in the queue, with those that are claimed, when this puts another one there. A put waits for room,
    /// and [`Queue::try_put`] does not. Without it there is no limit, and nothing to pay.
    ///
    /// It limits this producer: all that are to be limited set it, to the same number. Consumers need not.
    pub fn capacity(mut self, most: NonZeroUsize) -> Self {
        self.room = Room::of(most);
        self
    }

    /// Puts an item into the queue, after all others of its priority.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if the store takes less data in a node, [`ErrorKind::Invalid`] if the item cannot be written, and as
    /// every verb of a [`Client`]. With an unknown effect it is in the queue once, or not at all.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has put the item into the queue, or has not.
    pub async fn put(&self, item: &T) -> Result<()> {
        self.put_with(item, PutOptions::default()).await.map(drop)
    }

    /// Puts an item into the queue. Returns false if an item of the same id is there already.
    ///
    /// # Errors
    ///
    /// As [`Queue::put`], and [`ErrorKind::Invalid`] for an id that is empty or too long, or a priority above 999.
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::put`].
    pub async fn put_with(&self, item: &T, options: PutOptions) -> Result<bool> {
        let entry = self.entry(item, &options)?;
        let entered = self.room.enter(&entry).await?;
        self.has_put(&entry, &entered);
        entry.is_new(&entered)
    }

    /// [`Queue::put_with`] that does not wait for room in a queue with a [capacity](Queue::capacity): `None` if it is full.
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
        let Some(entered) = self.room.try_enter(&entry).await? else { return Ok(None) };
        self.has_put(&entry, &entered);
        entry.is_new(&entered).map(Some)
    }

    /// Puts several items into the queue, in this order: all of them, or none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if they are more operations or more data than the store takes in one transaction, or more than the
    /// [capacity](Queue::capacity), before anything is put; and as [`Queue::put`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has put all of them, or none.
    pub async fn put_many(&self, items: &[T]) -> Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        let bunch = self.place.unique_id();
        let items = items.iter().enumerate().map(|(number, item)| {
            let name = ItemName::unique(None, format!("{bunch}-{number:04}"));
            Ok((name, self.codec.encode(&self.place.dir, item)?))
        });
        let items = items.collect::<Result<_>>()?;
        let entry = QueueEntry { place: &self.place, txn: Txn::new(), items };
        let entered = self.room.enter(&entry).await?;
        self.has_put(&entry, &entered);
        entry.is_new(&entered).map(drop)
    }

    /// Lets the consumer of this process know what was put: it need not read that.
    fn has_put(&self, entry: &QueueEntry<'_>, entered: &PutOutcome) {
        if let (Some(consumer), Outcome::Committed(Some(commit))) = (self.consumer.get(), entered) {
            consumer.has_put(entry.nodes(commit));
        }
    }

    fn entry(&self, item: &T, options: &PutOptions) -> Result<QueueEntry<'_>> {
        let data = self.codec.encode(&self.place.dir, item)?;
        Ok(QueueEntry {
            place: &self.place,
            txn: Txn::new(),
            items: vec![(self.name(options)?, data)],
        })
    }

    fn name(&self, options: &PutOptions) -> Result<ItemName> {
        if options.priority.is_some_and(|priority| priority > 999) {
            return Err(Error::new(ErrorKind::Invalid, DOING)
                .at(&self.place.dir)
                .because("a priority is at most 999"));
        }
        let unique = self.place.unique_id();
        let name = match &options.id {
            Some(id) => ItemName::with_id(options.priority, &unique, id)?.ok_or_else(|| {
                Error::new(ErrorKind::Invalid, DOING)
                    .at(&self.place.dir)
                    .because(format!("an id has at most {MAX_ID} bytes as a part of a name"))
            })?,
            None => ItemName::unique(options.priority, unique),
        };
        Ok(match options.after {
            Some(after) => name.not_before(date().saturating_add(after)),
            None => name,
        })
    }
}

impl<T: Send + 'static> Queue<T> {
    /// Waits for an item, and takes it out of the queue. Exactly one caller gets each item, and it is gone from the store: if the
    /// process ends before its work is done, so is the item. For work that must not be lost there is [`Queue::claim`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the item cannot be read; it is moved to the dead letters. With an unknown effect an item may have
    /// been taken that no caller has: the client was closed before the answer. Otherwise as every verb of a [`Client`], except that
    /// an outage, also one in which the session is lost, only lengthens the wait.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has taken nothing, or puts back what it has taken, in its place: in the background, and as soon as the store
    /// answers.
    pub async fn take(&self) -> Result<T> {
        loop {
            if let Some(item) = self.take_many(NonZeroUsize::MIN).await?.pop() {
                return Ok(item);
            }
        }
    }

    /// Waits for an item, and takes it with those that follow it out of the queue: up to so many, and never more than one
    /// transaction takes. They are in their order. One that cannot be read is left for the next take.
    ///
    /// # Errors
    ///
    /// As [`Queue::take`], for all of them together.
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::take`].
    pub async fn take_many(&self, most: NonZeroUsize) -> Result<Vec<T>> {
        let waiting = async |wait: &mut ItemWait| {
            let mut patience = Patience::new(&self.place.client);
            let mut most = most.get().min(MAX_BUNCH);
            loop {
                wait.tries += 1;
                let reserved = self.next(most, &mut patience).await?;
                let since = clock::now();
                match take(self.place.clone(), reserved, self.codec).await {
                    Ok(Some(taken)) => {
                        self.consumer().learn(false, clock::elapsed(since));
                        return Ok(taken.received());
                    }
                    Ok(None) => {
                        self.consumer().learn(true, clock::elapsed(since));
                        // One item that another consumer has fails the whole bunch.
                        most = most.div_ceil(2);
                    }
                    Err(error) if error.has_unknown_effect() => return Err(error),
                    Err(error) => patience.rest(error).await?,
                }
            }
        };
        Box::pin(ItemWait::measured("queue_take", &self.place.dir, waiting)).await
    }

    /// Waits for an item, and claims it: it stays in the queue until it is [acknowledged](Delivery::ack), and no other consumer
    /// gets it meanwhile. If this consumer dies, another one gets it when the session is over.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the item cannot be read; it is moved to the dead letters. Otherwise as every verb of a
    /// [`Client`], except that an outage only lengthens the wait.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what a dropped call has claimed is put back in the background.
    pub async fn claim(&self) -> Result<Delivery<T>> {
        let waiting = async |wait: &mut ItemWait| {
            let mut patience = Patience::new(&self.place.client);
            loop {
                wait.tries += 1;
                let Some(reserved) = self.next(1, &mut patience).await?.pop() else { continue };
                let since = clock::now();
                let (place, consumer) = (self.place.clone(), self.consumer.clone());
                match claim(place, consumer, reserved, self.codec, self.most).await {
                    // A claim counts only while its session is certain.
                    Ok(Some(delivery)) if delivery.is_certain() => {
                        self.consumer().learn(false, clock::elapsed(since));
                        return Ok(delivery.received());
                    }
                    Ok(Some(uncertain)) => {
                        drop(uncertain);
                        let error = Error::new(ErrorKind::Unreachable, DOING).at(&self.place.dir);
                        patience.rest(error.because("its session is uncertain")).await?;
                    }
                    Ok(None) => self.consumer().learn(true, clock::elapsed(since)),
                    Err(error) => patience.rest(error).await?,
                }
            }
        };
        Box::pin(ItemWait::measured("queue", &self.place.dir, waiting)).await
    }

    fn consumer(&self) -> &Consumer {
        self.consumer.get_or_init(|| Consumer::start(&self.place))
    }

    /// The next item that may be tried, and up to so many that follow it.
    async fn next(&self, most: usize, patience: &mut Patience) -> Result<Vec<Reserved>> {
        loop {
            match self.consumer().next(most, self.place.client.random()).await {
                Ok(reserved) => return Ok(reserved),
                Err(error) => patience.rest(error).await?,
            }
        }
    }
}

/// Clones share what they know of the queue.
impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        let Self { place, consumer, room, codec, most, backoff } = self;
        let (place, consumer, room) = (place.clone(), consumer.clone(), room.clone());
        Self { place, consumer, room, codec: *codec, most: *most, backoff: *backoff }
    }
}

/// Shows no data.
impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("path", &self.place.dir).finish_non_exhaustive()
    }
}
