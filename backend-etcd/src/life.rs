//! [`Life`]: what a session knows of its own life, and whom it tells.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{End, Feed, Loss, Status, certain_until};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::endpoints::{Call, Endpoints};
use crate::link::Link;

/// However long a session may be silent, it is heard of this often.
const SLOWEST_BEAT: Duration = Duration::from_secs(10);

/// The life of one session, counted from the requests that it sent.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) lease: i64,
    pub(crate) ttl: Duration,
    status: watch::Sender<Status>,
    feeds: Mutex<BTreeMap<i64, Feed>>,
}

impl Life {
    /// A life that began with a request sent at `sent`.
    pub(crate) fn new(lease: i64, ttl: Duration, sent: Instant) -> Self {
        let until = certain_until(sent, ttl, Duration::ZERO);
        let status = watch::Sender::new(Status::Live { until });
        Self { lease, ttl, status, feeds: Mutex::default() }
    }

    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        match *self.status.borrow() {
            Status::Lost { why } => Some(why),
            _ => None,
        }
    }

    fn until(&self) -> Option<Instant> {
        self.status.borrow().until()
    }

    /// Waits until the session is lost, and says why.
    pub(crate) async fn lost(&self) -> Loss {
        let mut status = self.status.subscribe();
        loop {
            if let Status::Lost { why } = *status.borrow_and_update() {
                return why;
            }
            // The sender is here.
            let _changed = status.changed().await.is_ok();
        }
    }

    /// The server knows the lease no more.
    pub(crate) fn ended(&self) {
        self.lose(Loss::Expired);
    }

    /// The session is over: from here on it stays so, and every watch is told.
    pub(crate) fn lose(&self, why: Loss) {
        self.change(|_| Status::Lost { why });
        let why = self.loss().unwrap_or(why);
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
    pub(crate) fn keep(&self, watch: i64, feed: Feed) {
        self.feeds().insert(watch, feed);
        if let Some(why) = self.loss() {
            self.lose(why);
        }
    }

    pub(crate) fn forget(&self, watch: i64) {
        self.feeds().remove(&watch);
    }

    fn feeds(&self) -> MutexGuard<'_, BTreeMap<i64, Feed>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the lease alive until the session is lost, and sees to it that it is lost in time.
///
/// Who is slow to answer is asked again, on another connection, and still listened to: on a busy
/// machine each answer may take longer than a third of the time to live.
pub(crate) async fn beat(life: Arc<Life>, endpoints: Arc<Endpoints>) {
    let interval = (life.ttl / 3).min(SLOWEST_BEAT);
    let mut asked = FuturesUnordered::new();
    while let Some(until) = life.until() {
        let begun = Instant::now();
        asked.push(Box::pin(renew(&endpoints, life.lease, interval, interval * 3)));
        let patience = sleep_until(until.min(begun + interval));
        let next = match select(pin!(patience), asked.next()).await {
            Either::Left(_) if Instant::now() >= until => break,
            Either::Left(_) => {
                life.change(|until| Status::Suspended { until });
                endpoints.doubt();
                continue;
            }
            Either::Right((Some(Ok(sent)), _)) => {
                asked.clear();
                let until = certain_until(sent, life.ttl, Duration::ZERO);
                life.change(|_| Status::Live { until });
                begun + interval
            }
            Either::Right((Some(Err(error)), _)) if error.kind() == ErrorKind::SessionLost => {
                life.ended();
                return;
            }
            Either::Right((Some(Err(error)), _)) if error.kind() == ErrorKind::Denied => {
                tracing::warn!(%error, "the session cannot be kept alive");
                life.lose(Loss::Denied);
                return;
            }
            Either::Right((failed, _)) => {
                let error = failed.and_then(Result::err);
                tracing::debug!(?error, "the session was not kept alive just now");
                life.change(|until| Status::Suspended { until });
                Instant::now() + (interval / 10).min(Duration::from_millis(100))
            }
        };
        // The next round begins when the session's certain life is over, if not before.
        sleep_until(life.until().map_or(next, |until| next.min(until))).await;
    }
    life.lose(Loss::Expired);
    // What hung on it need not wait until the server finds out.
    let _tried = revoke(&endpoints, life.lease, life.ttl).await.is_ok();
}

/// Has the server count the lease's time anew; says when the request that was answered was sent.
/// Where there are several members, each has so much `patience` to answer.
pub(crate) async fn renew(
    endpoints: &Endpoints,
    lease: i64,
    patience: Duration,
    limit: Duration,
) -> Result<Instant> {
    let call = Call { first: patience, ..Call::read("keeping a lease alive", limit) };
    // A stream of its own each time: an answer on an older one may be that to an older question.
    let renewal = |link: Arc<Link>| async move {
        let sent = Instant::now();
        link.lease.clone().keep_alive(lease).await.map(|_answered| sent)
    };
    endpoints.call(call, renewal).await
}

/// Ends a lease, and with it everything that hangs on it.
pub(crate) async fn revoke(endpoints: &Endpoints, lease: i64, limit: Duration) -> Result<()> {
    // To end it twice is to end it.
    let call = Call::read("close", limit);
    let end = |link: Arc<Link>| async move { link.lease.clone().revoke(lease).await };
    match endpoints.call(call, end).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::SessionLost => Ok(()),
        Err(error) => Err(error),
    }
}

/// What every call of a lost session is told.
pub(crate) fn lost(doing: &'static str, why: Loss) -> Error {
    Error::new(ErrorKind::SessionLost, doing).because(why.to_string())
}
