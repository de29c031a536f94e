//! Deliveries one after the other: as a stream, and as work that is done for each.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures_core::Stream;
use futures_util::FutureExt as _;
use futures_util::future::{Either, Shared, join_all, select};
use futures_util::stream::unfold;
use synod_core::clock::sleep;
use synod_core::error::{ErrorKind, Result};
use synod_core::held::Held as _;
use synod_core::retry::Retry;
use tokio::sync::Notify;

use crate::mutant::mistake;
use crate::queue::Queue;
use crate::queue::delivery::Delivery;

/// The maximum number of items that are worked on at once, whatever the caller says.
const MAX_HANDS: usize = 1_024;

/// # Consuming
impl<T: Send + Sync + 'static> Queue<T> {
    /// The deliveries of [`Queue::claim`], one after the other. It never ends; after an error the next one is waited for.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. When the stream is dropped, what it has claimed and not yielded is put back in the background.
    pub fn deliveries(&self) -> impl Stream<Item = Result<Delivery<T>>> + Send + use<T> {
        unfold(self.clone(), |queue| async {
            let next = queue.claim().await;
            Some((next, queue))
        })
    }

    /// Does `work` for each item, up to `most` at once (and 1,024), until `stop` completes. An item whose work returned `Ok` is
    /// acknowledged. One whose work failed or panicked is put back, not to be delivered before a time that
    /// [grows](Queue::backoff) with its deliveries; the others are worked on meanwhile. After
    /// [as many deliveries](Queue::deliver_at_most) as it may have it is a dead letter. What the work has done with the delivery itself
    /// counts: [acknowledged](Delivery::ack_with), [put off](Delivery::put_back_after) or [rejected](Delivery::reject). Work whose
    /// claim is lost is dropped. After `stop` nothing more is claimed, and this returns when the work in hand is done.
    ///
    /// All of it runs in the task of the caller: spawn the parts of `work` that keep a processor busy. Failures of the work are logged.
    ///
    /// # Errors
    ///
    /// The error with which the store refuses, and [`ErrorKind::SessionLost`] once the client is closed, when the work in hand is done.
    /// Outages, lost sessions, and items that cannot be read, which are moved to the dead letters, end nothing.
    ///
    /// # Cancel safety
    ///
    /// A dropped call drops the work, and puts the items in hand back in the background.
    pub async fn consume<F, E>(
        &self,
        most: NonZeroUsize,
        stop: impl Future<Output = ()>,
        work: impl Fn(Arc<Delivery<T>>) -> F,
    ) -> Result<()>
    where
        F: Future<Output = std::result::Result<(), E>>,
        E: Display,
    {
        let failed = Notify::new();
        let stop = async {
            let _either = select(pin!(stop), pin!(failed.notified())).await;
        };
        let (stop, work, failed) = (stop.shared(), &work, &failed);
        let hands = (0..most.get().min(MAX_HANDS)).map(|_| {
            let stop = stop.clone();
            async move {
                let done = self.work_until(stop, work).await;
                // The others finish what they have in hand.
                done.is_err().then(|| failed.notify_one());
                done
            }
        });
        join_all(hands).await.into_iter().collect()
    }

    /// Does the work for one item after the other.
    async fn work_until<F, E>(
        &self,
        stop: Shared<impl Future<Output = ()>>,
        work: &impl Fn(Arc<Delivery<T>>) -> F,
    ) -> Result<()>
    where
        F: Future<Output = std::result::Result<(), E>>,
        E: Display,
    {
        let mut pauses = None;
        loop {
            let claimed = match select(stop.clone(), pin!(self.claim())).await {
                Either::Left(_) => return Ok(()),
                Either::Right((claimed, _)) => claimed,
            };
            let has_ended = match claimed {
                Ok(delivery) => self.work_on(Arc::new(delivery), work).await,
                // It is a dead letter.
                Err(error) if error.kind() == ErrorKind::Corrupt => true,
                Err(error) => return Err(error),
            };
            if has_ended {
                pauses = None;
                continue;
            }
            // The store is in trouble, not the item.
            let random = self.place.client.random();
            let pauses = pauses.get_or_insert_with(|| Retry::forever().delays(random));
            let pause = sleep(pauses.next().unwrap_or_default());
            let _either = select(stop.clone(), pin!(pause)).await;
        }
    }

    /// Does the work for one item. Returns whether the delivery has ended as the work says.
    async fn work_on<F, E>(
        &self,
        delivery: Arc<Delivery<T>>,
        work: &impl Fn(Arc<Delivery<T>>) -> F,
    ) -> bool
    where
        F: Future<Output = std::result::Result<(), E>>,
        E: Display,
    {
        let (path, item) = (&self.place.dir, delivery.path());
        // A panic is the item's: the work on others goes on.
        let working = AssertUnwindSafe(async { work(delivery.clone()).await }).catch_unwind();
        let done = match select(pin!(working), pin!(delivery.lost())).await {
            Either::Left((Ok(done), _)) => done.map_err(|why| why.to_string()),
            Either::Left((Err(_panic), _)) => Err("it panicked".to_owned()),
            Either::Right(_) => {
                tracing::warn!(%path, %item, "the claim of an item was lost during the work");
                return false;
            }
        };
        mistake!(FailedWorkAcknowledged: let done = done.or(Ok::<(), String>(())));
        let delivered = delivery.delivered();
        let ended = match done {
            _ if delivery.is_over() => Ok(()),
            Ok(()) => delivery.is_done().await,
            Err(why) if delivery.is_last() => {
                tracing::warn!(%path, %item, %why, delivered, "an item is moved to the dead letters");
                delivery.reject().await
            }
            Err(why) => {
                tracing::warn!(%path, %item, %why, delivered, "the work for an item failed");
                let after = self.backoff.after(delivered, self.place.client.random());
                delivery.put_back_after(after).await
            }
        };
        if let Err(error) = &ended {
            tracing::warn!(%path, %item, %error, "an item may be delivered again");
        }
        ended.is_ok()
    }
}
