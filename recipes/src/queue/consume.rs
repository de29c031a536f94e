//! Consuming: the work on the items of a queue, and its outcome.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use futures_util::FutureExt as _;
use futures_util::future::{Either, Shared, join_all, select};
use futures_util::stream::unfold;
use synod_core::error::{ErrorKind, Result};
use synod_core::held::Held as _;
use synod_core::path::Path;
use tokio::sync::Notify;

use crate::mutant::mistake;
use crate::queue::Queue;
use crate::queue::delivery::Delivery;
use crate::support::metrics::record_retry;
use crate::support::retry::RetryDelays;

/// The maximum number of items that one call of [`Queue::consume`] works on concurrently, also if
/// the caller allows more.
const MAX_CONCURRENT: usize = 1_024;

/// The outcome of the work on an item in [`Queue::consume`]. Work that returns `()` is done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkOutcome {
    /// The work is done: the item is acknowledged.
    Done,
    /// The item is delivered again after this time, in place of the [backoff](Queue::backoff).
    /// After its [last delivery](Queue::max_deliveries) it is a dead letter.
    RetryAfter(Duration),
    /// No consumer can do the work: the item is a dead letter, with this
    /// [reason](crate::queue::QueuedItem::reason).
    Reject(String),
}

impl From<()> for WorkOutcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// The reason of a dead letter whose work requested a retry after the last delivery.
const NO_MORE_RETRIES: &str =
    "its work requested a retry, and it has reached the maximum number of deliveries";

/// # Consuming
impl<T: Send + Sync + 'static> Queue<T> {
    /// Returns a stream of deliveries: the results of [`Queue::claim`], one after the other. It
    /// never ends: after an error it waits for the next item.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. When the stream is dropped, an item that it has claimed and not yielded is put
    /// back in the background.
    pub fn deliveries(&self) -> impl Stream<Item = Result<Delivery<T>>> + Send + use<T> {
        unfold(self.clone(), |queue| async {
            let next = queue.claim().await;
            Some((next, queue))
        })
    }

    /// Does `work` for each item, on at most `max` items concurrently (and at most 1,024), until
    /// `stop` completes. An item whose work returns `Ok` is acknowledged, unless the work returns a
    /// [`WorkOutcome`] that requests a retry or rejects the item. If the work fails or panics, the
    /// item is put back and retried after a delay that [grows](Queue::backoff) with the number of
    /// its deliveries; the work on other items continues. After the [maximum number of
    /// deliveries](Queue::max_deliveries) the item is a dead letter, and the error of its work is
    /// the [reason](crate::queue::QueuedItem::reason). If the work itself has
    /// [acknowledged](Delivery::ack_with), [delayed](Delivery::put_back_after) or
    /// [rejected](Delivery::reject) the delivery, that holds. The work is dropped if its claim is
    /// lost. After `stop` nothing more is claimed, and this returns when the current work is done.
    ///
    /// All work runs in the task of the caller: spawn work that keeps a processor busy. Failures of
    /// the work are logged.
    ///
    /// # Errors
    ///
    /// The error with which the store rejects a request for good, and [`ErrorKind::SessionLost`]
    /// once the client is closed; both after the current work is done. Outages, lost sessions and
    /// items that cannot be deserialized (these are moved to the dead letters) do not end the call.
    ///
    /// # Cancel safety
    ///
    /// A dropped call drops the work, and puts the claimed items back in the background.
    pub async fn consume<F, V, E>(
        &self,
        max: NonZeroUsize,
        stop: impl Future<Output = ()>,
        work: impl Fn(Arc<Delivery<T>>) -> F,
    ) -> Result<()>
    where
        F: Future<Output = std::result::Result<V, E>>,
        V: Into<WorkOutcome>,
        E: Display,
    {
        let failed = Notify::new();
        let stop = async {
            let _either = select(pin!(stop), pin!(failed.notified())).await;
        };
        let (stop, work, failed) = (stop.shared(), &work, &failed);
        let loops = (0..max.get().min(MAX_CONCURRENT)).map(|_| {
            let stop = stop.clone();
            async move {
                let result = self.work_until(stop, work).await;
                // The other loops finish their current work.
                result.is_err().then(|| failed.notify_one());
                result
            }
        });
        join_all(loops).await.into_iter().collect()
    }

    /// Does the work for one item after the other, until `stop` completes.
    async fn work_until<F, V, E>(
        &self,
        stop: Shared<impl Future<Output = ()>>,
        work: &impl Fn(Arc<Delivery<T>>) -> F,
    ) -> Result<()>
    where
        F: Future<Output = std::result::Result<V, E>>,
        V: Into<WorkOutcome>,
        E: Display,
    {
        let mut delays = RetryDelays::forever(self.client.random());
        loop {
            let claimed = match select(stop.clone(), pin!(self.claim())).await {
                Either::Left(_) => return Ok(()),
                Either::Right((claimed, _)) => claimed,
            };
            let has_ended = match claimed {
                Ok(delivery) => self.work_on(Arc::new(delivery), work).await,
                // The item was moved to the dead letters.
                Err(error) if error.kind() == ErrorKind::Corrupt => true,
                Err(error) => return Err(error),
            };
            if has_ended {
                delays.reset();
                continue;
            }
            // The cause is the store, not the item.
            let _either = select(stop.clone(), pin!(delays.wait())).await;
        }
    }

    /// Does the work for one item. Returns whether the delivery has ended as the result of the work
    /// requires.
    async fn work_on<F, V, E>(
        &self,
        delivery: Arc<Delivery<T>>,
        work: &impl Fn(Arc<Delivery<T>>) -> F,
    ) -> bool
    where
        F: Future<Output = std::result::Result<V, E>>,
        V: Into<WorkOutcome>,
        E: Display,
    {
        let (path, item) = (&self.dir, delivery.path());
        // A panic concerns this item alone: the work on other items continues.
        let working = AssertUnwindSafe(async { work(delivery.clone()).await }).catch_unwind();
        let done = match select(pin!(working), pin!(delivery.lost())).await {
            Either::Left((Ok(done), _)) => done.map(V::into).map_err(|why| why.to_string()),
            Either::Left((Err(_panic), _)) => Err("the work panicked".to_owned()),
            Either::Right(_) => {
                tracing::warn!(%path, %item, "the claim of an item was lost during its work");
                return false;
            }
        };
        mistake!(FailedWorkAcknowledged: let done = done.or(Ok::<_, String>(WorkOutcome::Done)));
        let delivered = delivery.delivered();
        let ended = match done {
            _ if delivery.is_over() => Ok(()),
            Ok(WorkOutcome::Done) => delivery.ack_shared().await,
            Ok(WorkOutcome::Reject(why)) => bury(&delivery, path, why).await,
            Ok(WorkOutcome::RetryAfter(_)) if delivery.is_last() => {
                bury(&delivery, path, NO_MORE_RETRIES.to_owned()).await
            }
            Ok(WorkOutcome::RetryAfter(after)) => {
                tracing::debug!(%path, %item, ?after, delivered, "an item is retried on request");
                record_retry("queue");
                delivery.put_back_after(after).await
            }
            Err(why) if delivery.is_last() => bury(&delivery, path, why).await,
            Err(why) => {
                tracing::warn!(%path, %item, %why, delivered, "the work for an item failed");
                record_retry("queue");
                let after = self.backoff.after(delivered, self.client.random());
                delivery.fail(why, after).await
            }
        };
        if let Err(error) = &ended {
            tracing::warn!(%path, %item, %error, "an item may be delivered again");
        }
        ended.is_ok()
    }
}

/// Moves an item to the dead letters whose work has ended.
async fn bury<T: Send + Sync>(delivery: &Delivery<T>, path: &Path, why: String) -> Result<()> {
    let (item, delivered) = (delivery.path(), delivery.delivered());
    tracing::warn!(%path, %item, %why, delivered, "an item is moved to the dead letters");
    delivery.reject(why).await
}
