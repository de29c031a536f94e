//! [`Life`]: what a session knows of its own life, and whom it tells.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::store::{End, Feed, Loss, Status, certain_until};
use tokio::sync::watch;

use crate::watches::WatchId;

/// The life of one session, counted from the requests that it sent.
#[derive(Debug)]
pub(crate) struct Life {
    ttl: Duration,
    status: watch::Sender<Status>,
    feeds: Mutex<BTreeMap<WatchId, Feed>>,
}

impl Life {
    /// A life that began with a request sent at `sent`.
    pub(crate) fn new(ttl: Duration, sent: Instant) -> Self {
        let until = certain_until(sent, ttl, Duration::ZERO);
        let status = watch::Sender::new(Status::Live { until });
        Self { ttl, status, feeds: Mutex::default() }
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    pub(crate) fn until(&self) -> Option<Instant> {
        self.status.borrow().until()
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        match *self.status.borrow() {
            Status::Lost { why } => Some(why),
            _ => None,
        }
    }

    /// Waits until the session is lost.
    pub(crate) async fn lost(&self) {
        let mut status = self.status.subscribe();
        // The sender is here, so waiting can only end with the loss.
        let _lost = status.wait_for(Status::is_lost).await.is_ok();
    }

    /// A request that was sent at `sent` was answered.
    pub(crate) fn renew(&self, sent: Instant) {
        let until = certain_until(sent, self.ttl, Duration::ZERO);
        self.change(|_| Status::Live { until });
    }

    /// A request was not answered in time.
    pub(crate) fn suspend(&self) {
        self.change(|until| Status::Suspended { until });
    }

    /// The session is over: from here on it stays so, and every watch is told.
    pub(crate) fn lose(&self, why: Loss) {
        self.change(|_| Status::Lost { why });
        for feed in std::mem::take(&mut *self.feeds()).into_values() {
            feed.end(End::SessionOver(why));
        }
    }

    fn change(&self, next: impl FnOnce(Instant) -> Status) {
        self.status.send_if_modified(|status| match status.until() {
            Some(until) => {
                let next = next(until);
                std::mem::replace(status, next) != next
            }
            None => false,
        });
    }

    /// Has a watch told when the session is over; at once, if it is.
    pub(crate) fn keep(&self, watch: WatchId, feed: Feed) {
        self.feeds().insert(watch, feed);
        if let Some(why) = self.loss() {
            self.lose(why);
        }
    }

    pub(crate) fn forget(&self, watch: WatchId) {
        self.feeds().remove(&watch);
    }

    fn feeds(&self) -> MutexGuard<'_, BTreeMap<WatchId, Feed>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
