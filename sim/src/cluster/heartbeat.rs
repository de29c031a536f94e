//! The heartbeat of a session: it extends the session at the store, reconnects, and declares the
//! session lost in time.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::clock::{self, Instant};
use synod_core::path::Path;
use synod_core::store::{Heartbeats, Life, Query, SessionEnd};
use tokio::sync::oneshot;

use crate::cluster::answer::Answer;
use crate::cluster::client_end::ClientEnd;
use crate::cluster::flaw::Flaw;
use crate::cluster::learner::PINGS;
use crate::cluster::link::Ask;

/// The delay before a client connects to another server.
const REST: Duration = Duration::from_millis(20);

/// Heartbeats per time to live: for personalities whose answer proves that the leader extended the
/// session for this heartbeat, and for personalities whose answer proves that only for an earlier
/// heartbeat.
const BEATS: u32 = 3;
const REPORTED_BEATS: u32 = 6;

/// The proof in the answer to a heartbeat.
enum Proof {
    /// The leader extended the session for the heartbeat that it answers.
    Direct,
    /// The leader extended the session for an earlier heartbeat.
    Reported(Heartbeats),
}

impl Proof {
    /// Evaluates the answer to a heartbeat that was sent at `sent`. Returns the sending time of the
    /// newest request that certainly extended the session, if that is known.
    fn answered(&mut self, sent: Instant) -> Option<Instant> {
        match self {
            Self::Direct => Some(sent),
            Self::Reported(beats) => beats.answered(sent, clock::now()),
        }
    }
}

/// Sends heartbeats until the session has ended.
pub(super) async fn beat(way: Arc<ClientEnd>, life: Arc<Life>, opened: Instant) {
    let (reported, flaw) = {
        let state = way.cluster.state();
        (state.personality.reports_sessions(), state.flaw)
    };
    let reads = flaw == Some(Flaw::BeatIsRead);
    let trusts = reads || flaw == Some(Flaw::AnswerIsReport);
    let beats = if reported { REPORTED_BEATS } else { BEATS };
    let direct = || {
        if reported && !trusts { Proof::Reported(Heartbeats::new(PINGS)) } else { Proof::Direct }
    };
    let mut proof = direct();
    rest(&way, &life, opened + life.ttl() / beats).await;
    while life.loss().is_none() {
        let sent = clock::now();
        let (pause, limit) = (life.ttl() / beats, life.ttl() / 3);
        let told = match way.is_up() {
            true if reads => way.send(Ask::Read(Query::node(Path::root()).local())),
            true => way.send(Ask::Beat),
            false => way.connect(Ask::Attach),
        };
        match heard(told, &life, sent + limit).await {
            Some(Answer::Attached(ttl, since)) => {
                // The session was connected by the leader itself.
                proof = direct();
                life.renegotiated(ttl);
                life.renew(sent);
                way.cluster.touch(|state, now| state.count_with(way.id, ttl, since, now));
            }
            Some(Answer::Done | Answer::View(..)) => match proof.answered(sent) {
                Some(extended) => life.renew(extended),
                None => life.answered(),
            },
            Some(Answer::Over) => {
                way.over.store(true, Ordering::Relaxed);
                life.lose(SessionEnd::Expired);
            }
            _ => {
                life.suspend();
                way.hang_up();
                rest_a_little(&life).await;
                continue;
            }
        }
        rest(&way, &life, sent + pause).await;
    }
    way.hang_up();
}

async fn heard(
    told: Option<oneshot::Receiver<Answer>>,
    life: &Life,
    limit: Instant,
) -> Option<Answer> {
    let limit = life.until().map_or(limit, |certain| limit.min(certain));
    match select(told?, pin!(clock::sleep_until(limit))).await {
        Either::Left((answer, _)) => answer.ok(),
        Either::Right(_) => None,
    }
}

/// Waits until `until`, the end of the session's certain life, or the break of the connection.
async fn rest(way: &ClientEnd, life: &Life, until: Instant) {
    let until = life.until().map_or(until, |certain| until.min(certain));
    let (rest, broken) = (pin!(clock::sleep_until(until)), pin!(way.broken.notified()));
    if let Either::Right(_) = select(rest, broken).await
        && life.loss().is_none()
        && !way.is_up()
    {
        life.suspend();
    }
    way.cluster.touch(|state, now| state.give_up_on(way.id, life.ttl() * 2 / 3, now));
    lose_in_time(life);
}

async fn rest_a_little(life: &Life) {
    lose_in_time(life);
    let until = clock::now() + REST;
    clock::sleep_until(life.until().map_or(until, |certain| until.min(certain))).await;
    lose_in_time(life);
}

fn lose_in_time(life: &Life) {
    if life.until().is_none_or(|certain| certain <= clock::now()) {
        life.lose(SessionEnd::Expired);
    }
}
