//! [`Life`]: whether a session lives, and until when for certain.

use std::time::Duration;

use synod_core::store::{Loss, Status, certain_until};
use tokio::sync::watch;
use tokio::time::Instant;

/// The life of one session, counted from the requests that it sent.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) ttl: Duration,
    slack: Duration,
    status: watch::Sender<Status>,
}

impl Life {
    /// A life that began with a request sent at `sent`.
    ///
    /// A sign of life that a server answered reaches the leader up to half a beat later, and may be
    /// lost on the way with that server. No session is shorter than two beats, unless it is so
    /// configured: hence the bound.
    pub(crate) fn new(ttl: Duration, sent: Instant, tick: Duration) -> Self {
        let slack = tick.min(ttl / 4);
        let status = watch::Sender::new(Status::Live { until: certain_until(sent, ttl, slack) });
        Self { ttl, slack, status }
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
        let renewed = certain_until(sent, self.ttl, self.slack);
        self.change(|until| Status::Live { until: until.max(renewed) });
    }

    /// The server does not answer just now.
    pub(crate) fn suspend(&self) {
        self.change(|until| Status::Suspended { until });
    }

    /// The session is over: from here on it stays so.
    pub(crate) fn lose(&self, why: Loss) {
        self.change(|_| Status::Lost { why });
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
}
