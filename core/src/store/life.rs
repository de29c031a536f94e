//! [`Life`]: what a backend knows of the life of one of its sessions, and whom it tells.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::clock::Instant;
use crate::store::session::{Loss, Status, certain_until};
use crate::store::watching::{End, Feed};

/// The life of one session, counted from the requests that it sent.
///
/// For who writes a backend: it keeps the [`Status`] that [`Store::status`](super::Store::status) shows,
/// lets no session rise again that is lost, and ends the watches that it was given with the session. When
/// a request is a sign of life, and when it is late, only the backend knows. `K` is what it calls a watch.
#[derive(Debug)]
pub struct Life<K = u64> {
    ttl: Duration,
    slack: Duration,
    status: watch::Sender<Status>,
    /// Woken when it is lost. Each call waits for that, and few for the status.
    ended: Notify,
    feeds: Mutex<BTreeMap<K, Feed>>,
}

impl<K: Ord> Life<K> {
    /// A life that began with a request sent at `sent`, at a server that may look at its clock early by
    /// `slack`: see [`certain_until`].
    pub fn new(ttl: Duration, sent: Instant, slack: Duration) -> Self {
        let status = watch::Sender::new(Status::Live { until: certain_until(sent, ttl, slack) });
        Self { ttl, slack, status, ended: Notify::new(), feeds: Mutex::default() }
    }

    /// How long the session outlives its last sign of life.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Whether it lives, as it changes.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Up to when it certainly lives; `None` once it is lost.
    pub fn until(&self) -> Option<Instant> {
        self.status.borrow().until()
    }

    /// Why it is lost, if it is.
    pub fn loss(&self) -> Option<Loss> {
        match *self.status.borrow() {
            Status::Lost { why } => Some(why),
            Status::Live { .. } | Status::Suspended { .. } => None,
        }
    }

    /// Waits until it is lost, and says why.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn lost(&self) -> Loss {
        loop {
            // Listens from here on, so that an end between the look and the wait wakes too.
            let ended = self.ended.notified();
            if let Some(why) = self.loss() {
                return why;
            }
            ended.await;
        }
    }

    /// A request that was sent at `sent` was answered. Never shortens what was certain already.
    pub fn renew(&self, sent: Instant) {
        let renewed = certain_until(sent, self.ttl, self.slack);
        self.change(|until| Status::Live { until: until.max(renewed) });
    }

    /// The server does not answer just now.
    pub fn suspend(&self) {
        self.change(|until| Status::Suspended { until });
    }

    /// The session is over: from here on it stays so, for the first reason that was given, and every watch
    /// is told.
    pub fn lose(&self, why: Loss) {
        self.change(|_| Status::Lost { why });
        self.ended.notify_waiters();
        let why = self.loss().unwrap_or(why);
        for feed in std::mem::take(&mut *self.feeds()).into_values() {
            feed.end(End::SessionOver(why));
        }
    }

    /// Has a watch told when the session is over; at once, if it is.
    pub fn keep(&self, watch: K, feed: Feed) {
        self.feeds().insert(watch, feed);
        if let Some(why) = self.loss() {
            self.lose(why);
        }
    }

    /// The watch is over for another reason.
    pub fn forget(&self, watch: &K) {
        self.feeds().remove(watch);
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

    fn feeds(&self) -> MutexGuard<'_, BTreeMap<K, Feed>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::store::Event;

    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn what_was_certain_stays_so() {
        let sent = clock::now();
        let life = Life::<u64>::new(TTL, sent, Duration::ZERO);
        let certain = life.until().expect("it lives");

        life.renew(sent + TTL);
        let longer = life.until().expect("it lives");
        assert!(longer > certain);

        life.renew(sent);
        life.suspend();
        assert_eq!(*life.status().borrow(), Status::Suspended { until: longer });
    }

    #[tokio::test]
    async fn the_lost_stays_lost_for_its_first_reason() {
        let life = Life::<u64>::new(TTL, clock::now(), Duration::ZERO);
        let (early, mut watched) = Feed::new(1);
        life.keep(1, early);
        life.lose(Loss::Closed);
        life.lose(Loss::Expired);
        life.renew(clock::now());
        assert_eq!(life.lost().await, Loss::Closed);
        assert!(matches!(watched.next().await, Some(Event::Ended(End::SessionOver(Loss::Closed)))));

        let (late, mut watched) = Feed::new(1);
        life.keep(2, late);
        assert!(matches!(watched.next().await, Some(Event::Ended(End::SessionOver(Loss::Closed)))));
    }

    #[test]
    fn who_is_forgotten_is_not_told() {
        let life = Life::<u64>::new(TTL, clock::now(), Duration::ZERO);
        let (feed, watched) = Feed::new(1);
        life.keep(1, feed.clone());
        life.forget(&1);
        life.lose(Loss::Expired);
        assert!(!feed.is_over());
        drop(watched);
    }
}
