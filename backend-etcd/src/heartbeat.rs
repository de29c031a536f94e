//! Keeps the lease of a session alive, and ends it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select, try_join};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use synod_core::clock::{self, Instant, Vigil};
use synod_core::error::{ErrorKind, Result};
use synod_core::store::{Life, Loss};

use crate::endpoints::{Call, Endpoints};
use crate::link::Link;

/// The longest time between heartbeats, however long the time to live is.
const SLOWEST_BEAT: Duration = Duration::from_secs(10);

/// When a heartbeat is tried again that failed: less than a third of the shortest time to live.
const SOON: Duration = Duration::from_millis(100);

/// Keeps the lease alive until the session is lost, and makes sure that the session is lost in
/// time.
///
/// A member that is slow gets another request, and its first answer still counts: on a busy machine
/// each answer may take longer than a third of the time to live. Only when it is silent for longer
/// than its answers take is a new connection used.
pub(crate) async fn beat(life: Arc<Life<i64>>, lease: i64, endpoints: Arc<Endpoints>) {
    let interval = (life.ttl() / 3).min(SLOWEST_BEAT);
    let mut asked = FuturesUnordered::new();
    let mut vigil = Vigil::new();
    let mut unanswered_since = None;
    while let Some(until) = life.until() {
        let begun = clock::now();
        if vigil.resumed() {
            // The machine slept: only an answer shows whether the session is alive.
            life.suspend();
        }
        if begun >= until {
            break;
        }
        // Connections are judged by the clock of timers, which does not count a suspension.
        let begun_awake = Instant::now();
        let call = Call::read("keeping a lease alive", interval * 3).urgent(interval / 2);
        asked.push(Box::pin(renew(&endpoints, lease, call)));
        // Half of the remaining time, so that a session without answers is suspended before it is
        // lost.
        let left = until.saturating_duration_since(begun);
        let patience = interval.min((left / 2).max(interval / 10));
        let patience = vigil.sleep_until(until.min(begun + patience));
        let next = match select(pin!(patience), asked.next()).await {
            Either::Left(_) => {
                life.suspend();
                // Two intervals leave one for another connection.
                endpoints.doubt(*unanswered_since.get_or_insert(begun_awake), interval * 2);
                continue;
            }
            Either::Right((Some(Ok(sent)), _)) => {
                asked.clear();
                unanswered_since = None;
                life.renew(sent);
                // A late answer leaves less time for the next.
                sent + interval
            }
            Either::Right((Some(Err(error)), _)) if error.kind() == ErrorKind::SessionLost => {
                life.lose(Loss::Expired);
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
                life.suspend();
                clock::now() + SOON
            }
        };
        // The next round begins at the latest when the certain life of the session is over.
        vigil.sleep_until(life.until().map_or(next, |until| next.min(until))).await;
    }
    life.lose(Loss::Expired);
    // Removes the session's nodes now, instead of waiting until the server expires the lease.
    let _tried = revoke(&endpoints, lease, life.ttl()).await.is_ok();
}

/// Renews the lease. Returns when the answered request was sent.
pub(crate) async fn renew(endpoints: &Endpoints, lease: i64, call: Call) -> Result<Instant> {
    // A new stream each time: an answer on an older stream may be for an older request.
    let renewal = |link: Arc<Link>| async move {
        let sent = clock::now();
        let mut leases = link.lease.clone();
        try_join(link.direct(), leases.keep_alive(lease)).await.map(|_answered| sent)
    };
    endpoints.call(call, renewal).await
}

/// Ends a lease, and deletes every key that is attached to it.
pub(crate) async fn revoke(endpoints: &Endpoints, lease: i64, limit: Duration) -> Result<()> {
    // Ending a lease that has ended is a success.
    let call = Call::read("close", limit);
    let end = |link: Arc<Link>| async move { link.lease.clone().revoke(lease).await };
    match endpoints.call(call, end).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::SessionLost => Ok(()),
        Err(error) => Err(error),
    }
}
