//! The life of one session in its backend, and the watches that end with it: [`Life`].

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::clock::Instant;
use crate::mutant::mistake;
use crate::store::session::{SessionEnd, Status, certain_until};
use crate::store::watching::{End, Feed};

/// The life of one session, computed from the times at which its requests were sent.
///
/// For authors of backends: it maintains the [`Status`] of [`Store::status`](super::Store::status),
/// keeps a lost session lost, and ends the watches that were added to it with the session. The
/// backend decides which answer proves that the session is alive, and when an answer is late. `K`
/// identifies a watch.
#[derive(Debug)]
pub struct Life<K = u64> {
    terms: Mutex<Terms>,
    slack: Duration,
    status: watch::Sender<Status>,
    /// Woken when the session is lost. Each call waits for that; few wait for the status.
    ended: Notify,
    feeds: Mutex<BTreeMap<K, Feed>>,
}

/// The values from which `until` is computed.
#[derive(Clone, Copy, Debug)]
struct Terms {
    ttl: Duration,
    /// The latest sending from which the store certainly counts the TTL.
    sent: Instant,
}

impl<K: Ord> Life<K> {
    /// Creates a life that began with a request sent at `sent`, at a server that may check its
    /// clock early by `slack`: see [`certain_until`].
    pub fn new(ttl: Duration, sent: Instant, slack: Duration) -> Self {
        let status = watch::Sender::new(Status::Live { until: certain_until(sent, ttl, slack) });
        let terms = Mutex::new(Terms { ttl, sent });
        Self { terms, slack, status, ended: Notify::new(), feeds: Mutex::default() }
    }

    /// Returns the negotiated TTL.
    pub fn ttl(&self) -> Duration {
        self.terms().ttl
    }

    /// Returns a receiver of the status.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Returns the instant up to which the session certainly lives; `None` once it is lost.
    pub fn until(&self) -> Option<Instant> {
        self.status.borrow().until()
    }

    /// Returns the reason for the loss of the session, if it is lost.
    pub fn loss(&self) -> Option<SessionEnd> {
        match *self.status.borrow() {
            Status::Lost { reason } => Some(reason),
            Status::Live { .. } | Status::Suspended { .. } => None,
        }
    }

    /// Waits until the session is lost, and returns the reason.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn lost(&self) -> SessionEnd {
        loop {
            // Listens before the check, so that an end between the check and the wait also wakes.
            let ended = self.ended.notified();
            if let Some(reason) = self.loss() {
                return reason;
            }
            ended.await;
        }
    }

    /// Records the answer to a request that was sent at `sent`. Never shortens the certain time.
    pub fn renew(&self, sent: Instant) {
        let mut terms = self.terms();
        terms.sent = terms.sent.max(sent);
        let renewed = certain_until(terms.sent, terms.ttl, self.slack);
        self.change(|until| Status::Live { until: until.max(renewed) });
    }

    /// Records an answer that does not prove how long the session lives: the session becomes live,
    /// and its certain time is unchanged.
    pub fn answered(&self) {
        self.change(|until| Status::Live { until });
    }

    /// Changes the TTL, as a store may at a reconnect. A shorter TTL shortens the certain time
    /// immediately.
    ///
    /// The store applies it when the reconnect extends the session, which is later than every
    /// sending that was passed to [`renew`](Self::renew).
    pub fn renegotiated(&self, ttl: Duration) {
        let mut terms = self.terms();
        mistake!(FirstTtlKept: let ttl = terms.ttl);
        terms.ttl = ttl;
        let until = certain_until(terms.sent, ttl, self.slack);
        self.change_status(|status| match status {
            Status::Live { .. } => Status::Live { until },
            Status::Suspended { .. } => Status::Suspended { until },
            Status::Lost { reason } => Status::Lost { reason },
        });
    }

    /// Records that the server currently does not answer.
    pub fn suspend(&self) {
        self.change(|until| Status::Suspended { until });
    }

    /// Ends the session. It stays lost, for the first reason that was recorded, and every watch
    /// ends with that reason.
    pub fn lose(&self, reason: SessionEnd) {
        self.change(|_| Status::Lost { reason });
        self.ended.notify_waiters();
        let reason = self.loss().unwrap_or(reason);
        // Taken out first, so that the readers are woken without the lock.
        let feeds = std::mem::take(&mut *self.feeds());
        for feed in feeds.into_values() {
            feed.end(End::SessionOver(reason));
        }
    }

    /// Adds a watch that ends when the session is over; immediately, if it is over.
    pub fn keep(&self, watch: K, feed: Feed) {
        self.feeds().insert(watch, feed);
        if let Some(reason) = self.loss() {
            self.lose(reason);
        }
    }

    /// Removes a watch that ended for another reason.
    pub fn forget(&self, watch: &K) {
        self.feeds().remove(watch);
    }

    fn change(&self, next: impl FnOnce(Instant) -> Status) {
        self.change_status(|status| status.until().map_or(status, next));
    }

    fn change_status(&self, next: impl FnOnce(Status) -> Status) {
        self.status.send_if_modified(|status| {
            let next = next(*status);
            std::mem::replace(status, next) != next
        });
    }

    fn terms(&self) -> MutexGuard<'_, Terms> {
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn feeds(&self) -> MutexGuard<'_, BTreeMap<K, Feed>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::clock;
    use crate::runtime::{self, laptop::Laptop};
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

    #[test]
    fn another_time_to_live_counts_from_the_same_sending() {
        let sent = clock::now();
        let life = Life::<u64>::new(TTL, sent, Duration::ZERO);
        life.renew(sent + TTL / 2);

        life.renegotiated(TTL / 10);
        let shorter = certain_until(sent + TTL / 2, TTL / 10, Duration::ZERO);
        assert_eq!(*life.status().borrow(), Status::Live { until: shorter });
        assert_eq!(life.ttl(), TTL / 10);
        life.suspend();
        life.renegotiated(TTL);
        let longer = certain_until(sent + TTL / 2, TTL, Duration::ZERO);
        assert_eq!(*life.status().borrow(), Status::Suspended { until: longer });

        life.answered();
        assert_eq!(*life.status().borrow(), Status::Live { until: longer });
        life.lose(SessionEnd::Expired);
        life.renegotiated(TTL);
        life.answered();
        assert_eq!(life.loss(), Some(SessionEnd::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_machine_slept_counts() {
        let laptop = Rc::new(Laptop::default());
        let _here = runtime::set(laptop.clone());
        let started = clock::now();
        let life = Life::<u64>::new(TTL, started, Duration::ZERO);
        let status = life.status();
        assert!(status.borrow().is_certain());

        laptop.slept.set(TTL);

        assert!(!status.borrow().is_certain(), "it slept for longer than the session lives");
        assert!(clock::elapsed(started) >= TTL);
        life.renew(clock::now());
        assert!(status.borrow().is_certain());
        let Status::Live { until } = *status.borrow() else { panic!("it was renewed") };
        assert!(until > started + TTL, "the heartbeat was sent after the machine went on");
    }

    #[tokio::test]
    async fn the_lost_stays_lost_for_its_first_reason() {
        let life = Life::<u64>::new(TTL, clock::now(), Duration::ZERO);
        let (early, mut watched) = Feed::new(1);
        life.keep(1, early);
        life.lose(SessionEnd::Closed);
        life.lose(SessionEnd::Expired);
        life.renew(clock::now());
        assert_eq!(life.lost().await, SessionEnd::Closed);
        assert!(matches!(
            watched.next().await,
            Some(Event::Ended(End::SessionOver(SessionEnd::Closed)))
        ));

        let (late, mut watched) = Feed::new(1);
        life.keep(2, late);
        assert!(matches!(
            watched.next().await,
            Some(Event::Ended(End::SessionOver(SessionEnd::Closed)))
        ));
    }

    #[test]
    fn a_forgotten_watch_is_not_notified() {
        let life = Life::<u64>::new(TTL, clock::now(), Duration::ZERO);
        let (feed, watched) = Feed::new(1);
        life.keep(1, feed.clone());
        life.forget(&1);
        life.lose(SessionEnd::Expired);
        assert!(!feed.is_over());
        drop(watched);
    }
}
