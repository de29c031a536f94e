//! [`CompatQueue`]: a queue of another library, shared by programs of that library and of this
//! one.
//!
//! | node | content | created by | removed by |
//! |---|---|---|---|
//! | in the directory of the items | an item, or several | a producer | a consumer |
//! | in the directory of the locks | the lock of a consumer of the other library on an item | that consumer | that consumer, or with its session |
//! | `NAME.synod/queue-` for the queue `NAME` | a [write id](crate::support::exactly_once) | a client | that client, or a consumer a day later |
//!
//! - **An item is taken by the transaction that deletes its node**, and checks that the item is not
//!   locked.
//! - **The write ids are not below the path of the queue**: the other library takes all nodes
//!   there.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Feature, Lifetime, Outcome, Query, RejectReason, Rejected, Txn};

use crate::compat_queue::compat_consumer::{CompatConsumer, CompatItem};
use crate::compat_queue::layout::{DOING, ItemPlace, NewName, QueueLayout};
use crate::support::detached::{Handed, hand_over};
use crate::support::exactly_once::settling::{Sent, is_only_lost};
use crate::support::exactly_once::write_id::WriteIds;
use crate::support::exactly_once::writes::ExactlyOnceWrites;
use crate::support::names::dir_for_any_name;
use crate::support::retry::ItemCallBackoff;
use crate::support::time::date;
use crate::support::wait::ItemWait;

mod compat_consumer;
mod compat_stock;
mod curator_items;
pub(crate) mod layout;

#[cfg_attr(not(doctest), doc = include_str!("../docs/compat_queue.md"))]
#[derive(Clone)]
pub struct CompatQueue {
    client: Client,
    dir: Path,
    layout: QueueLayout,
    /// An error if the path is the root, or too long for the nodes below it.
    shared: Result<Arc<CompatShared>>,
    /// Started by the first call that takes an item. Producers do not need it.
    consumer: Arc<OnceLock<CompatConsumer>>,
}

/// The time after which a name with the current time is free.
const TICK: Duration = Duration::from_millis(1);

/// The paths and the layout of a queue, and the sender of its transactions.
struct CompatShared {
    client: Client,
    layout: QueueLayout,
    items: Path,
    locks: Option<Path>,
    writes: ExactlyOnceWrites,
    /// True if the directory of the items is known to exist.
    has_dir: AtomicBool,
}

/// A node that was taken, to be put back if its caller is gone.
struct TakenNode {
    path: Path,
    data: Bytes,
}

impl CompatQueue {
    /// Creates a handle of the queue at `path`, in the layout of another library. If the path is
    /// the root, or too long for the nodes below it, each call fails with [`ErrorKind::Invalid`].
    pub fn new(client: &Client, path: impl Into<Path>, layout: QueueLayout) -> Self {
        let dir = path.into();
        let shared = layout
            .locks(&dir)
            .and_then(|locks| CompatShared::new(client.clone(), &dir, layout, locks));
        Self::of(client, dir, layout, shared)
    }

    /// Creates a queue whose consumers lock each item with a node in this directory: the `lockPath`
    /// of Curator's `DistributedQueue` and its variants.
    pub fn locked_at(
        client: &Client,
        path: impl Into<Path>,
        layout: QueueLayout,
        locks: impl Into<Path>,
    ) -> Self {
        let dir = path.into();
        let shared = CompatShared::new(client.clone(), &dir, layout, Some(locks.into()));
        Self::of(client, dir, layout, shared)
    }

    fn of(client: &Client, dir: Path, layout: QueueLayout, shared: Result<CompatShared>) -> Self {
        let (client, consumer) = (client.clone(), Arc::default());
        Self { client, dir, layout, shared: shared.map(Arc::new), consumer }
    }

    fn shared(&self) -> Result<&Arc<CompatShared>> {
        self.shared.as_ref().map_err(Clone::clone)
    }

    /// Puts an item at the end of the queue.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if the store accepts less data in a node, and the errors that are
    /// common to all calls: see [`Client`]. With an unknown effect the item is in the queue once,
    /// or not at all.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have put the item into the queue.
    pub async fn put(&self, item: impl Into<Bytes>) -> Result<()> {
        self.put_at(&[item.into()], ItemPlace::default()).await
    }

    /// Puts items into one node at this place of the queue: they are taken together. Only Curator's
    /// `DistributedQueue` and its variants have more than one item in a node.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the layout has no such place, or if it stores one item per node;
    /// otherwise as [`CompatQueue::put`].
    ///
    /// # Cancel safety
    ///
    /// As [`CompatQueue::put`], for all of them together.
    pub async fn put_at(&self, items: &[Bytes], place: ItemPlace) -> Result<()> {
        self.shared()?.put(items, place).await
    }

    /// Waits for the first available node, and takes it out of the queue with its items (usually
    /// one). Exactly one caller gets them, here or in a program of the other library, and they are
    /// removed from the store. A node that cannot be read stays there, and does not block later
    /// nodes.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`]; but an outage, even with a lost
    /// session, only lengthens the wait. With an unknown effect a node may have been taken without
    /// being returned: the client was closed before the answer.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has taken nothing, or puts the node back at its place in the background, as
    /// soon as the store answers.
    pub async fn take(&self) -> Result<Vec<Bytes>> {
        let waiting = async |wait: &mut ItemWait| {
            let mut backoff = ItemCallBackoff::waiting(&self.client);
            self.take_next(&mut backoff, &mut wait.tries).await
        };
        let taken = ItemWait::measured("compat_queue", &self.dir, waiting);
        Box::pin(taken).await.map(Option::unwrap_or_default)
    }

    /// Takes a node as [`CompatQueue::take`] does, but does not wait for one. Returns `None` only
    /// if, at some moment during the call, no node of the queue could be taken: each was delayed,
    /// unreadable, or locked by a consumer of the other library.
    ///
    /// # Errors
    ///
    /// As [`CompatQueue::take`], but an outage ends the call at its time limit, unless a request to
    /// take a node is in flight.
    ///
    /// # Cancel safety
    ///
    /// As [`CompatQueue::take`].
    pub async fn try_take(&self) -> Result<Option<Vec<Bytes>>> {
        let mut backoff = ItemCallBackoff::limited(&self.client);
        Box::pin(self.take_next(&mut backoff, &mut 0)).await
    }

    /// Takes the next node. Returns `None` if the call does not wait and no node is available.
    async fn take_next(
        &self,
        backoff: &mut ItemCallBackoff,
        tries: &mut u32,
    ) -> Result<Option<Vec<Bytes>>> {
        let shared = self.shared()?;
        let consumer = self.consumer(shared);
        loop {
            *tries += 1;
            let next = match backoff {
                ItemCallBackoff::Waiting(_) => consumer.next().await.map(Some),
                ItemCallBackoff::Limited(..) => consumer.try_next(&self.client).await,
            };
            let taken = match next {
                Ok(Some(item)) => Self::take_item(shared, item).await,
                Ok(None) => return Ok(None),
                Err(error) => Err(error),
            };
            match taken {
                Ok(Some(taken)) => return Ok(Some(taken.received())),
                Ok(None) => {}
                Err(error) if error.has_unknown_effect() => return Err(error),
                Err(error) => backoff.wait(error).await?,
            }
        }
    }

    fn consumer(&self, shared: &Arc<CompatShared>) -> &CompatConsumer {
        let CompatShared { client, layout, items, locks, .. } = &**shared;
        let old = || shared.writes.old_write_ids();
        let start = || CompatConsumer::start(client, *layout, items, locks.as_ref(), old());
        self.consumer.get_or_init(start)
    }

    /// Tries to take this item. `None` if another consumer was faster.
    async fn take_item(
        shared: &Arc<CompatShared>,
        item: CompatItem,
    ) -> Result<Option<Handed<Vec<Bytes>>>> {
        let (shared, own) = (shared.clone(), shared.clone());
        let take = async move { own.take(&item).await };
        let undo = async move |TakenNode { path, data }| {
            let mut at = path.clone();
            let create = |at: &Path| Txn::new().create(at, data.clone(), Lifetime::Persistent);
            // If the numbering of names has started again, another item may have this name. The
            // name with a `0` appended is the next one in the order.
            let instead = |no: &Rejected| {
                let next = at.parent()?.join(&format!("{}0", at.name())).ok();
                at = next.filter(|_at| no.reason == RejectReason::Exists)?;
                Some(create(&at))
            };
            shared.writes.put_back(&path, create(&path), instead).await;
        };
        hand_over(DOING, take, undo).await
    }
}

impl CompatShared {
    fn new(client: Client, dir: &Path, layout: QueueLayout, locks: Option<Path>) -> Result<Self> {
        let Some(parent) = dir.parent() else {
            return Err(Error::new(ErrorKind::Invalid, DOING).because("the root is no queue"));
        };
        let write_ids = dir_for_any_name(parent.join(&format!("{}.synod", dir.name()))?)?;
        let write_ids = WriteIds::persistent(write_ids, "queue-", DOING);
        let (items, locks) =
            (dir_for_any_name(layout.items(dir)?)?, locks.map(dir_for_any_name).transpose()?);
        let writes = ExactlyOnceWrites::new(&client, write_ids);
        let has_dir = AtomicBool::new(false);
        Ok(Self { client, layout, items, locks, writes, has_dir })
    }

    async fn put(&self, items: &[Bytes], place: ItemPlace) -> Result<()> {
        let data = self.layout.encode(items)?;
        self.create_dir().await?;
        let session = self.client.session().await?;
        let has_numbers = !session.info().limits.missing_features.contains(&Feature::NumberedNames);
        loop {
            let name = self.layout.new_name(place, date(), has_numbers)?;
            let txn = match &name {
                NewName::Numbered(name) => {
                    let path = self.items.join(name)?;
                    Txn::new().create_sequential(path, data.clone(), Lifetime::Persistent)
                }
                NewName::Time(name) => {
                    Txn::new().create(self.items.join(name)?, data.clone(), Lifetime::Persistent)
                }
            };
            match (self.writes.commit(&txn).await?, name) {
                (Outcome::Committed(_), _) => return Ok(()),
                // Another program has put an item with the same time.
                (Outcome::Rejected(no), NewName::Time(_)) if no.reason == RejectReason::Exists => {
                    sleep(TICK).await;
                }
                (Outcome::Rejected(no), _) => return Err(self.writes.refused(&no)),
            }
        }
    }

    /// Creates a node for the directory of the items, as kazoo does. An empty container is removed,
    /// and its numbers start again: then another item could get the name of an item that was read.
    async fn create_dir(&self) -> Result<()> {
        if self.has_dir.load(Ordering::Relaxed) {
            return Ok(());
        }
        // The node belongs to no client, so it stays even if this call is dropped.
        if !self.client.exists(&self.items).await?
            && let Err(error) = self.client.put(&self.items, "").await
        {
            // A container stays as long as it has nodes. The next put tries again.
            return if error.kind() == ErrorKind::Refused { Ok(()) } else { Err(error) };
        }
        self.has_dir.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Takes a node, unless another consumer has it.
    async fn take(&self, item: &CompatItem) -> Result<Option<(Vec<Bytes>, TakenNode)>> {
        let session = self.client.session().await?;
        let path = self.items.join(&item.name)?;
        let view = match session.read(Query::node(&path).local()).await {
            Err(error) if is_only_lost(&error) => return Ok(None),
            view => view?,
        };
        let Some((data, stat)) = view.into_node().and_then(|node| Some((node.data, node.stat?)))
        else {
            item.remove();
            return Ok(None);
        };
        let Some(items) = self.layout.decode(&data) else {
            tracing::warn!(%path, "cannot read an item of a queue; it stays there");
            item.set_unreadable();
            return Ok(None);
        };
        let txn = self.unlocked(&item.name)?;
        let txn = txn.delete(path.clone(), Expect::Version(stat.version));
        match self.writes.send_without_limit(&session, txn, Some(&path)).await {
            Ok(Sent::Applied(_)) => {
                item.remove();
                Ok(Some((items, TakenNode { path, data })))
            }
            Ok(Sent::Rejected(no)) if matches!(no.reason, RejectReason::Missing) => {
                item.remove();
                Ok(None)
            }
            Ok(Sent::Rejected(no))
                if matches!(no.reason, RejectReason::Exists | RejectReason::OtherVersion) =>
            {
                item.set_aside();
                Ok(None)
            }
            Ok(Sent::Rejected(no)) => Err(self.writes.refused(&no)),
            Ok(Sent::Lost) => Ok(None),
            Err(error) if is_only_lost(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns a transaction that checks that no consumer of the other library has locked the item.
    fn unlocked(&self, name: &str) -> Result<Txn> {
        match &self.locks {
            Some(locks) => Ok(Txn::new().check(locks.join(name)?, Expect::Absent)),
            None => Ok(Txn::new()),
        }
    }
}

/// Shows no data.
impl fmt::Debug for CompatQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompatQueue")
            .field("path", &self.dir)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}
