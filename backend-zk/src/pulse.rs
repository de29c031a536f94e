//! The heartbeat of a session: it renews its life, and notices its end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use synod_core::store::Loss;
use tokio::time::{Instant, sleep, sleep_until};
use zookeeper_client::{Error as ZkError, SessionState, Stat as ZkStat, StateWatcher};

use crate::hub::Hub;
use crate::wire::Wire;

/// What woke the heart.
enum Wake {
    Answer(Instant, Result<Option<ZkStat>, ZkError>),
    State(SessionState),
    Time,
}

/// How often in a session's time the server is asked for a sign of life.
///
/// The crate's own pings do not do: nothing tells when one was sent and that it was answered. They are
/// sent when nothing else was for three twentieths of that time, or ten seconds; so these take their
/// place.
const BEATS: u32 = 8;
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// After how many beats without an answer nobody knows any more whether there is a server.
const SILENT: u32 = 3;

/// Asks the server for signs of life until the session is over; then tells whoever observes.
pub(crate) async fn beat(wire: Arc<Wire>, hub: Arc<Hub>, mut states: StateWatcher) {
    let pause = (wire.life.ttl() / BEATS).min(LONGEST_PAUSE);
    let mut asked = FuturesUnordered::new();
    let mut heard = Instant::now();
    let mut next = heard + pause;
    while let Some(until) = wire.life.until() {
        let now = Instant::now();
        if now >= until {
            wire.life.lose(Loss::Expired);
            break;
        }
        if now >= next {
            if !asked.is_empty() && now >= heard + pause * SILENT {
                wire.life.suspend();
            }
            let Ok(client) = wire.client("heartbeat") else { break };
            let answer = client.check_stat("/");
            asked.push(async move { (now, answer.await) });
            next = now + pause;
        }
        let wake = {
            let answer = pin!(async {
                match asked.next().await {
                    Some((sent, answer)) => Wake::Answer(sent, answer),
                    None => std::future::pending().await,
                }
            });
            let state = pin!(async { Wake::State(states.changed().await) });
            let time = pin!(async {
                let _first =
                    select(pin!(sleep_until(next.min(until))), pin!(wire.life.lost())).await;
                Wake::Time
            });
            match select(answer, select(state, time)).await {
                Either::Left((wake, _))
                | Either::Right((Either::Left((wake, _)) | Either::Right((wake, _)), _)) => wake,
            }
        };
        match wake {
            Wake::Answer(sent, Ok(_)) => {
                heard = heard.max(sent);
                wire.life.renew(sent);
                relieve_guards(&wire);
            }
            Wake::Answer(_, Err(ZkError::SessionExpired | ZkError::ClientClosed))
            | Wake::State(SessionState::Expired | SessionState::Closed) => wire.expired(),
            Wake::Answer(_, Err(ZkError::AuthFailed)) | Wake::State(SessionState::AuthFailed) => {
                wire.life.lose(Loss::Denied);
            }
            Wake::Answer(_, Err(_)) | Wake::State(SessionState::Disconnected) => {
                wire.life.suspend();
            }
            // Connected again: at once it is asked whether the session still is.
            Wake::State(_) => {
                wire.connected();
                next = Instant::now();
            }
            Wake::Time => {}
        }
    }
    hub.end(wire.life.loss().unwrap_or(Loss::Expired));
    // The crate ends the session when it finds a server, if nobody else does.
    drop(wire.take());
    if let Some(client) = wire.abandoned() {
        // It was dropped and not closed: it is left to its time to live.
        sleep(wire.life.ttl()).await;
        drop(client);
    }
}

/// Deletes the guards that have stayed long enough, now that the connection was seen to be good. Those
/// it does not reach stay as long as the session.
fn relieve_guards(wire: &Wire) {
    wire.vacated.forget(Instant::now());
    let Ok(client) = wire.client("relieve guards") else { return };
    for guard in wire.guards.relieve(Instant::now()) {
        // It has left when this returns, and the answer is of no interest: somebody may have deleted
        // the guard with its node.
        drop(client.delete(&guard, None));
    }
}
