//! Deliveries one after the other: as a stream, and as work that is done for each.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;

use futures_core::Stream;
use futures_util::FutureExt as _;
use futures_util::future::{Either, Shared, join_all, select};
use futures_util::stream::unfold;
use synod_core::clock::sleep;
use synod_core::error::{ErrorKind, Result};
use synod_core::held::Held as _;
use synod_core::path::Path;
use synod_core::retry::Retry;
use tokio::sync::Notify;

use crate::mutant::mistake;
use crate::queue::Queue;
use crate::queue::delivery::Delivery;

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

    /// Does `work` for each item, up to `most` at once, until `stop` completes. An item whose work returned `Ok` is acknowledged, unless
    /// the work has [done so itself](Delivery::ack_with); otherwise it is put back, and the next item is claimed after a pause, which
    /// grows with each failure in succession. Work whose claim is lost is dropped. After `stop` nothing more is claimed, and this returns
    /// when the work in hand is done.
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
        let hands = (0..most.get()).map(|_| {
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
            let is_done = match claimed {
                Ok(delivery) => is_done(&self.place.dir, Arc::new(delivery), work).await,
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    tracing::warn!(%error, "an item is moved to the dead letters");
                    true
                }
                Err(error) => return Err(error),
            };
            if is_done {
                pauses = None;
                continue;
            }
            let chance = self.place.client.chance();
            let pauses = pauses.get_or_insert_with(|| Retry::forever().delays(chance));
            let pause = sleep(pauses.next().unwrap_or_default());
            let _either = select(stop.clone(), pin!(pause)).await;
        }
    }
}

/// Does the work for one item. Returns whether it is done, and will not be delivered again.
async fn is_done<T: Send + Sync, F, E>(
    path: &Path,
    delivery: Arc<Delivery<T>>,
    work: &impl Fn(Arc<Delivery<T>>) -> F,
) -> bool
where
    F: Future<Output = std::result::Result<(), E>>,
    E: Display,
{
    let working = work(delivery.clone());
    let done = match select(pin!(working), pin!(delivery.lost())).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => {
            tracing::warn!(%path, item = %delivery.path(), "the claim of an item was lost during the work");
            return false;
        }
    };
    let is_done = done.is_ok();
    mistake!(FailedWorkAcknowledged: let is_done = true);
    if let Err(why) = &done {
        tracing::warn!(%path, item = %delivery.path(), %why, "the work for an item failed");
    }
    let ended = match is_done {
        _ if delivery.is_over() => Ok(()),
        true => delivery.is_done().await,
        false => delivery.gives_up().await,
    };
    if let Err(error) = &ended {
        tracing::warn!(%path, item = %delivery.path(), %error, "an item may be delivered again");
    }
    is_done && ended.is_ok()
}
