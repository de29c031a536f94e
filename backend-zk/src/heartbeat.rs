//! The heartbeat of a session: it extends the session's life, and detects its end.
//!
//! # What is certain
//!
//! The leader of the servers expires sessions. A follower receives the heartbeats of its clients,
//! answers what it can from its own memory, and reports the sessions with heartbeats in its answers
//! to the leader's pings. When it loses its leader it continues to answer reads for `syncLimit`
//! ticks. So a heartbeat is a `sync`, which only the leader answers, and [`Heartbeats`] computes
//! the time from which the leader certainly counts the life of the session:
//!
//! - The leader pings each server every half tick. [`gap`] allows for a ping that is late.
//! - The server answers pings and passes on answers to `sync` in the order in which the leader sent
//!   them; reports and forwarded requests go back in one stream (`Learner`, `LearnerHandler`).
//! - A server takes over a session from another connection only after the leader revalidated it,
//!   which extends it (`LeaderZooKeeperServer.checkIfValidGlobalSession`).
//! - The leader rounds the end of a session up, never down (`ExpiryQueue`).
//!
//! A leader that was cut off from its followers answers `sync` until it notices, between
//! `syncLimit` and `syncLimit` + 1 ticks after it last received from them. Its successor gives
//! every session its full time, beginning not before the followers gave up, `syncLimit` ticks after
//! they last heard from it. A session is certain no later than `ttl` after a heartbeat that is
//! older than one gap and one pause, so it is never certain after the successor expires it. Two
//! windows remain. The followers may elect a new leader sooner, for example because both are
//! restarted at that moment. And a session that reconnects to the old leader in its last tick is
//! revalidated by it. [`Heartbeat::Write`] closes the first one, because only a leader with a
//! quorum answers a write.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, FutureExt as _, select};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use synod_core::clock::{self, Instant, Vigil};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{Heartbeats, SessionEnd};

use crate::client::{Client, SessionState, StateWatcher, ZkError};
use crate::connection::Connection;
use crate::options::Heartbeat;
use crate::watch_registry::WatchRegistry;

/// The event that woke the heartbeat task.
enum Wake {
    Answer(Instant, Result<(), ZkError>),
    State(SessionState),
    Time,
}

/// Heartbeats per time to live of a session.
///
/// The protocol's pings are not enough, as a server answers them itself. The client pings when
/// nothing else was sent for three twentieths of that time, or ten seconds; so these heartbeats
/// replace its pings.
const BEATS: u32 = 10;
const MAX_PAUSE: Duration = Duration::from_secs(8);

/// The number of unanswered heartbeats after which the session is suspended.
const MAX_SILENT_BEATS: u32 = 3;

/// ZooKeeper's default `tickTime`. Its sample configuration has 2 s.
const DEFAULT_TICK: Duration = Duration::from_secs(3);

/// The time between heartbeats.
pub(crate) fn pause(ttl: Duration) -> Duration {
    (ttl / BEATS).min(MAX_PAUSE)
}

/// The allowed delay of a ping, if a quarter of a tick is less: a stalled process or a pause for
/// garbage collection does not become shorter with the tick.
const PING_DELAY: Duration = Duration::from_millis(100);

/// The longest time between two pings of the leader: half a tick, plus the allowed delay: a quarter
/// of a tick, or [`PING_DELAY`].
///
/// The tick comes from the options. If it is not set, it is assumed to be at most the default, and
/// at most half of `ttl`: with default settings, no session is shorter than two ticks.
///
/// # Errors
///
/// If the session is too short for the given tick: it would not be certain from one heartbeat to
/// the next.
pub(crate) fn gap(tick: Option<Duration>, ttl: Duration) -> Result<Duration> {
    let bound = tick.unwrap_or(DEFAULT_TICK.min(ttl / 2));
    let least = bound / 4 * 3;
    if least > ttl / 2 {
        return Err(Error::new(ErrorKind::Invalid, "opening a session").because(format!(
            "a session of {ttl:?} is too short for servers with a tick of {bound:?}; request a longer one"
        )));
    }
    // That margin would be too large for a very short session.
    Ok((bound / 2 + PING_DELAY).min(ttl / 8 * 3).max(least))
}

/// Sends a heartbeat. It has been sent when this returns; the future is its answer.
pub(crate) fn send(
    client: &Arc<Client>,
    heartbeat: Heartbeat,
) -> BoxFuture<'static, Result<(), ZkError>> {
    let client = client.clone();
    match heartbeat {
        Heartbeat::Sync => sent(async move { client.sync("/").await }),
        Heartbeat::Write => sent(async move {
            let mut writer = client.new_multi_writer();
            // The root always exists. The leader needs a quorum for any outcome.
            writer.add_check_version("/", -1);
            match writer.commit().await.map_err(ZkError::from) {
                Ok(_) | Err(ZkError::NoAuth) => Ok(()),
                Err(error) => Err(error),
            }
        }),
    }
}

/// Polls a request once, which sends it.
fn sent(
    request: impl Future<Output = Result<(), ZkError>> + Send + 'static,
) -> BoxFuture<'static, Result<(), ZkError>> {
    let mut request = request.boxed();
    match request.as_mut().now_or_never() {
        Some(answer) => std::future::ready(answer).boxed(),
        None => request,
    }
}

/// Sends heartbeats until the session is over; then ends its watches.
pub(crate) async fn beat(
    connection: Arc<Connection>,
    registry: Arc<WatchRegistry>,
    mut states: StateWatcher,
    mut beats: Heartbeats,
) {
    let mut requests = FuturesUnordered::new();
    let mut vigil = Vigil::new();
    let mut last_answered = clock::now();
    let mut next = last_answered + pause(connection.life.ttl());
    while let Some(until) = connection.life.until() {
        let pause = pause(connection.life.ttl());
        if vigil.resumed() {
            // The machine was suspended: only an answer shows whether the session is alive.
            connection.life.suspend();
            next = clock::now();
        }
        let now = clock::now();
        if now >= until {
            connection.life.lose(SessionEnd::Expired);
            break;
        }
        if now >= next {
            if !requests.is_empty() && now >= last_answered + pause * MAX_SILENT_BEATS {
                connection.life.suspend();
            }
            let Ok(client) = connection.client("heartbeat") else { break };
            let answer = send(&client, connection.heartbeat);
            requests.push(async move { (now, answer.await) });
            next = now + pause;
        }
        let wake = {
            let answer = pin!(async {
                match requests.next().await {
                    Some((sent, answer)) => Wake::Answer(sent, answer),
                    None => std::future::pending().await,
                }
            });
            let state = pin!(async { Wake::State(states.changed().await) });
            let time = pin!(async {
                let _first =
                    select(pin!(vigil.sleep_until(next.min(until))), pin!(connection.life.lost()))
                        .await;
                Wake::Time
            });
            match select(state, select(answer, time)).await {
                Either::Left((wake, _))
                | Either::Right((Either::Left((wake, _)) | Either::Right((wake, _)), _)) => wake,
            }
        };
        match wake {
            Wake::Answer(sent, Ok(())) => {
                // A new connection is reported before any answer on it.
                if let Some(state) = states.changed().now_or_never() {
                    record_state(&connection, &mut beats, state);
                }
                last_answered = last_answered.max(sent);
                match beats.answered(sent, clock::now()) {
                    Some(counted) => connection.life.renew(counted),
                    None => connection.life.answered(),
                }
                remove_guards(&connection);
            }
            Wake::Answer(_, Err(ZkError::SessionExpired | ZkError::ClientClosed)) => {
                connection.expired();
            }
            Wake::Answer(_, Err(ZkError::AuthFailed)) => connection.life.lose(SessionEnd::Denied),
            Wake::Answer(_, Err(ZkError::Abandoned)) => connection.life.lose(SessionEnd::Expired),
            Wake::Answer(_, Err(_)) => connection.life.suspend(),
            Wake::State(state) => {
                record_state(&connection, &mut beats, state);
                if state == SessionState::SyncConnected {
                    next = clock::now();
                }
            }
            Wake::Time => {}
        }
    }
    // The requests hold the client.
    drop(requests);
    registry.end(connection.life.loss().unwrap_or(SessionEnd::Expired));
    // The client ends the session when it finds a server, unless the session was ended already.
    drop(connection.take());
    if let Some(client) = connection.abandoned() {
        // The session was dropped without a close: it expires after its time to live.
        clock::sleep(connection.life.ttl()).await;
        drop(client);
    }
}

/// Records that the connection has changed, or was lost.
fn record_state(connection: &Connection, beats: &mut Heartbeats, state: SessionState) {
    match state {
        SessionState::Expired | SessionState::Closed => connection.expired(),
        SessionState::AuthFailed => connection.life.lose(SessionEnd::Denied),
        // No server was informed.
        SessionState::Abandoned => connection.life.lose(SessionEnd::Expired),
        SessionState::SyncConnected => {
            if let Ok(client) = connection.client("heartbeat") {
                connection.life.renegotiated(client.session_timeout());
            }
            if let Some(counted) = beats.reconnected() {
                connection.life.renew(counted);
            }
        }
        SessionState::Disconnected => connection.life.suspend(),
    }
}

/// Deletes the guards that have expired, now that the connection is known to work. Guards that
/// cannot be deleted stay as long as the session.
fn remove_guards(connection: &Connection) {
    connection.vacated.forget(Instant::now());
    let Ok(client) = connection.client("take_expired guards") else { return };
    for guard in connection.guards.take_expired(Instant::now()) {
        // The request has been sent when this returns, and its answer does not matter: the guard
        // may have been deleted with its node.
        drop(client.delete(&guard, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTLS: [u64; 6] = [4_000, 5_000, 6_000, 10_000, 20_000, 40_000];

    /// The time for which a session is still certain right before the next answer, in thousandths
    /// of its time to live, if an answer takes a hundredth of a pause.
    fn certain(tick: Option<Duration>, ttl: Duration) -> u128 {
        let (gap, pause) = (gap(tick, ttl).expect("long enough"), pause(ttl));
        let mut beats = Heartbeats::new(gap);
        let start = clock::now();
        let mut counted = None;
        for beat in 0..100 {
            let sent = start + pause * beat;
            counted = beats.answered(sent, sent + pause / 100);
        }
        let next_answer = start + pause * 100 + pause / 100;
        let age = next_answer - counted.expect("a hundred beats read_created something");
        (ttl * 98 / 100).saturating_sub(age).as_nanos() * 1_000 / ttl.as_nanos()
    }

    #[test]
    fn a_session_stays_certain_from_answer_to_answer() {
        let ms = Duration::from_millis;
        let table = [
            (None, 500, 379),
            (None, 1_500, 379),
            (None, 2_000, 379),
            (None, 3_000, 379),
            (None, 4_000, 379),
            (None, 6_000, 379),
            (None, 10_000, 479),
            (Some(2_000), 10_000, 579),
            (None, 20_000, 579),
            (None, 40_000, 679),
            (None, 240_000, 879),
            (Some(100), 1_000, 579),
            (Some(100), 3_000, 679),
            (Some(2_000), 4_000, 379),
        ];
        for (tick, ttl, thousandths) in table {
            assert_eq!(certain(tick.map(ms), ms(ttl)), thousandths, "{tick:?} {ttl}");
        }
        assert!(gap(Some(DEFAULT_TICK), ms(4_500)).is_ok(), "it is just long enough");
        assert!(gap(Some(DEFAULT_TICK), ms(2_250)).is_err(), "no heartbeat would be in time");
    }

    /// The worst case of a leader that is cut off while its clients reach it: see the module.
    #[test]
    fn a_deposed_leader_makes_no_session_certain_for_longer_than_its_successor_lets_it_live() {
        let election = Duration::from_millis(200);
        for ttl in TTLS.map(Duration::from_millis) {
            // Counted from the end of `syncLimit` ticks: the old leader steps down a tick later,
            // and answered the newest heartbeat right before.
            let newest = DEFAULT_TICK.min(ttl / 2);
            let middle = newest.saturating_sub(pause(ttl));
            let until = (middle + ttl * 98 / 100).checked_sub(gap(None, ttl).expect("long enough"));
            assert!(until.is_some_and(|until| until <= election + ttl), "{ttl:?}");
        }
    }
}
