//! Keeps the lease of a session alive, and ends it.
//!
//! # What is certain
//!
//! A lease's keep-alive is answered by the leader, to which members forward it. In no version does
//! the answer prove that this leader still leads when it renews the lease:
//!
//! - Before 3.4.31, and from 3.5.0 to 3.5.12, a deposed leader renews leases until it notices: one
//!   to two election timeouts if it was cut off, and without limit while its process is paused or
//!   waits for its disk.
//! - Later versions ask their quorum first; but from 3.4.34 and 3.5.16 on only if their clock has
//!   not ticked within three heartbeats. So a leader renews leases for one to two election timeouts
//!   if it was cut off, and until it learns of the next leader after a pause.
//! - A keep-alive that another member forwards is never checked.
//!
//! The successor gives every lease its full time plus one election timeout, once. So a keep-alive
//! counts only between two answers of the same member in one raft term, of which the later answers
//! a linearizable read: then the leader still had its quorum after the renewal.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::proto::PbResponseHeader;
use futures_util::future::{Either, select, try_join};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use synod_core::clock::{self, Instant, Vigil};
use synod_core::error::{ErrorKind, Result};
use synod_core::store::{Life, SessionEnd};

use crate::endpoints::{Call, Endpoints};
use crate::error::other_term;
use crate::history::is_before;
use crate::link::Link;
use crate::reader::Reader;

/// The longest time between heartbeats, for any time to live.
const SLOWEST_BEAT: Duration = Duration::from_secs(10);

/// The delay before a failed heartbeat is retried: less than a third of the shortest time to live.
const SOON: Duration = Duration::from_millis(100);

/// The maximum number of keep-alives in one heartbeat, if another leader is elected during each.
const MAX_KEEP_ALIVES: usize = 3;

/// Keeps the lease alive until the session is lost, and makes sure that the session is lost in
/// time.
///
/// A slow member gets another request, and the answers to both count: on a busy machine each may
/// take longer than half of the time to live. A new connection is used only when the member is
/// silent for longer than its answers take.
///
/// One member may refuse what another permits, and credentials may be in the process of changing.
/// So after a refusal another member is called, and the session is lost only when its time is over.
pub(crate) async fn beat(life: Arc<Life<i64>>, lease: i64, reader: Arc<Reader>) {
    let endpoints = &*reader.endpoints;
    let interval = (life.ttl() / 3).min(SLOWEST_BEAT);
    let first_answer = FirstAnswer::default();
    let mut asked = FuturesUnordered::new();
    let mut vigil = Vigil::new();
    let (mut unanswered_since, mut answered) = (None, None);
    let mut loss = SessionEnd::Expired;
    while let Some(until) = life.until() {
        let begun = clock::now();
        if vigil.resumed() {
            // The machine was suspended: only an answer shows whether the session is alive.
            life.suspend();
        }
        if begun >= until {
            break;
        }
        // Connections are judged by the clock of timers, which does not count a suspension.
        let begun_awake = Instant::now();
        let call = Call::read("keeping a lease alive", interval * 3).urgent(interval / 2);
        let kept = keep(&reader, lease, call, &first_answer);
        asked.push(Box::pin(async move { (begun_awake, kept.await) }));
        // Half of the remaining time, so that a session without answers is suspended before it is
        // lost.
        let left = until.saturating_duration_since(begun);
        let patience = interval.min((left / 2).max(interval / 10));
        let patience = vigil.sleep_until(until.min(begun + patience));
        let next = match select(pin!(patience), pin!(newer(&mut asked, answered))).await {
            Either::Left(_) => {
                // A heartbeat needs two answers: after the first one it has another interval for
                // the second. A member whose disk stalls may send the first one for ever.
                let is_first = unanswered_since.is_none();
                let since = *unanswered_since.get_or_insert(begun_awake);
                if !is_first || !first_answer.is_since(since) {
                    life.suspend();
                    // Two intervals leave one for another connection.
                    endpoints.doubt(since, interval * 2);
                }
                continue;
            }
            Either::Right((Some((asked_at, Ok(sent))), _)) => {
                answered = Some(asked_at);
                (unanswered_since, loss) = (None, SessionEnd::Expired);
                life.renew(sent);
                // A late answer leaves less time for the next.
                sent + interval
            }
            Either::Right((Some((_, Err(error))), _)) if error.kind() == ErrorKind::SessionLost => {
                tracing::debug!(%error, "the session is over");
                life.lose(SessionEnd::Expired);
                return;
            }
            Either::Right((Some((_, Err(error))), _)) if error.kind() == ErrorKind::Denied => {
                if loss == SessionEnd::Expired {
                    tracing::warn!(%error, "the session is not permitted to be kept alive just now");
                }
                loss = SessionEnd::Denied;
                endpoints.move_on();
                life.suspend();
                clock::now() + SOON
            }
            Either::Right((failed, _)) => {
                let error = failed.and_then(|(_, result)| result.err());
                tracing::debug!(?error, "the session was not kept alive just now");
                loss = SessionEnd::Expired;
                life.suspend();
                clock::now() + SOON
            }
        };
        // The next round begins at the latest when the certain life of the session is over.
        vigil.sleep_until(life.until().map_or(next, |until| next.min(until))).await;
    }
    if life.loss() == Some(SessionEnd::HandedOver) {
        // The lease belongs to another client.
        return;
    }
    life.lose(loss);
    // Removes the session's nodes now, instead of waiting for the server to expire the lease.
    let _tried = revoke(endpoints, lease, life.ttl()).await.is_ok();
}

/// The time at which the first answer to the latest heartbeat arrived: the answer to the keep-alive
/// alone.
#[derive(Default)]
struct FirstAnswer(Mutex<Option<Instant>>);

impl FirstAnswer {
    fn record(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_since(&self, since: Instant) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| last >= since)
    }
}

/// Waits for the next result of a heartbeat that began after the given instant.
async fn newer<T>(
    asked: &mut FuturesUnordered<impl Future<Output = (Instant, T)>>,
    answered: Option<Instant>,
) -> Option<(Instant, T)> {
    loop {
        let next = asked.next().await;
        if next.as_ref().is_none_or(|(begun, _)| answered.is_none_or(|last| last < *begun)) {
            return next;
        }
    }
}

/// Renews the lease of a session. Returns the sending time of the request whose answer proves that
/// the lease is alive.
///
/// The linearizable read after it also shows that the store still has the history of the session: a
/// new connection may lead to a store that was restored from a backup, see [`crate::history`].
async fn keep(
    reader: &Reader,
    lease: i64,
    call: Call,
    first_answer: &FirstAnswer,
) -> Result<Instant> {
    let seen = reader.history.seen();
    let renewal = |link: Arc<Link>| async move {
        try_join(link.direct(), renew_in_one_term(&link, lease, first_answer)).await
    };
    let (cluster, (sent, header)) = reader.endpoints.call(call, renewal).await?;
    reader.history.same_cluster(cluster)?;
    reader.history.same_cluster(header.cluster_id)?;
    if is_before(header.revision, seen) {
        reader.confirm_history(call, seen).await?;
    }
    reader.history.heartbeat(header.revision);
    Ok(sent)
}

/// Renews a lease, and confirms that its leader still led after that. Returns the sending time of
/// the keep-alive, and the header of the confirmation.
///
/// The answer to a keep-alive alone proves nothing, in any version of etcd. A deposed leader that
/// has not noticed it renews leases from memory, while the next leader lets them expire:
/// - before 3.4.31, and from 3.5.0 to 3.5.12, as long as its process is paused, its disk stalls, or
///   it has not noticed that it is cut off;
/// - from 3.4.34 and 3.5.16 on, as long as its clock ticks (`isActive` in `server.go`): when it is
///   cut off, and when it continues after a pause;
/// - in every version if another member forwards the keep-alive to it (`leasehttp/http.go`).
///
/// A linearizable read at the same member with the same term as before shows that the leader of
/// this term has renewed the lease, and still led a quorum after that. Any other leader was elected
/// later, and restarts the time of each lease.
async fn renew_in_one_term(
    link: &Link,
    lease: i64,
    first_answer: &FirstAnswer,
) -> Result<(Instant, PbResponseHeader), etcd_client::Error> {
    let mut before = match link.term() {
        Some(term) => term,
        None => link.confirm().await?.0,
    };
    for _ in 0..MAX_KEEP_ALIVES {
        let sent = clock::now();
        link.lease.clone().keep_alive(lease).await?;
        first_answer.record();
        let (after, header) = link.confirm().await?;
        if after == before {
            return Ok((sent, header));
        }
        before = after;
    }
    Err(other_term())
}

/// Renews the lease of a session that another client handed over. Returns the sending time of the
/// request whose answer proves that the lease is alive, and the header of a linearizable answer.
pub(crate) async fn resume(
    endpoints: &Endpoints,
    lease: i64,
    call: Call,
) -> Result<(Instant, PbResponseHeader)> {
    let first_answer = FirstAnswer::default();
    let renewal = |link: Arc<Link>| {
        let first_answer = &first_answer;
        async move { try_join(link.direct(), renew_in_one_term(&link, lease, first_answer)).await }
    };
    let (_cluster, renewed) = endpoints.call(call, renewal).await?;
    Ok(renewed)
}

/// Renews the lease of a node with a time to live. Returns the sending time of the answered
/// request.
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
    // Revoking a lease that no longer exists is a success.
    let call = Call::read("close", limit);
    let end = |link: Arc<Link>| async move { link.lease.clone().revoke(lease).await };
    match endpoints.call(call, end).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::SessionLost => Ok(()),
        Err(error) => Err(error),
    }
}
