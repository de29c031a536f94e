//! The heartbeat of a session: it extends the session at the store, connects again, and gives the session
//! up in time.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::clock::{self, Instant};
use synod_core::path::Path;
use synod_core::store::{Life, Loss, Query};
use tokio::sync::oneshot;

use crate::cluster::answer::Answer;
use crate::cluster::flaw::Flaw;
use crate::cluster::link::Ask;
use crate::cluster::way::Way;

/// How long a client rests before it turns to another server.
const REST: Duration = Duration::from_millis(20);

/// How many heartbeats a session sends in its time to live: where an answered heartbeat proves that the
/// leader extended the session, and where it proves that of an earlier heartbeat.
const BEATS: u32 = 3;
const REPORTED_BEATS: u32 = 8;

/// What the answers to heartbeats prove.
struct Proof {
    /// Whether an answer proves only that an earlier heartbeat reached the leader: with a report that its
    /// server sent before it forwarded the heartbeat that is answered.
    reported: bool,
    /// When the last two heartbeats of this connection were sent that were answered.
    sent: [Option<Instant>; 2],
    /// When the newest request was sent that certainly extended the session.
    extended: Instant,
}

impl Proof {
    /// The leader itself connected the session, by a request sent at `sent`.
    fn connected(&mut self, sent: Instant) -> Instant {
        self.sent = [None; 2];
        self.extended = sent;
        sent
    }

    /// A heartbeat sent at `sent` was answered. Returns when the newest request was sent that certainly
    /// extended the session.
    fn answered(&mut self, sent: Instant) -> Instant {
        let [before, last] = self.sent;
        self.sent = [last, Some(sent)];
        let extended = if self.reported { before } else { Some(sent) };
        self.extended = extended.unwrap_or(self.extended);
        self.extended
    }
}

/// Sends heartbeats until the session is over.
pub(super) async fn beat(way: Arc<Way>, life: Arc<Life>, opened: Instant) {
    let (reported, flaw) = {
        let state = way.cluster.state();
        (state.personality.reports_sessions(), state.flaw)
    };
    let reads = flaw == Some(Flaw::BeatIsRead);
    let trusts = reads || flaw == Some(Flaw::AnswerIsReport);
    let (pause, limit) =
        (life.ttl() / if reported { REPORTED_BEATS } else { BEATS }, life.ttl() / 3);
    let mut proof = Proof { reported: reported && !trusts, sent: [None; 2], extended: opened };
    rest(&way, &life, opened + pause).await;
    while life.loss().is_none() {
        let sent = clock::now();
        let told = match way.is_up() {
            true if reads => way.send(Ask::Read(Query::node(Path::root()).local())),
            true => way.send(Ask::Beat),
            false => way.connect(Ask::Attach),
        };
        match heard(told, &life, sent + limit).await {
            Some(Answer::Attached) => life.renew(proof.connected(sent)),
            Some(Answer::Done | Answer::View(..)) => life.renew(proof.answered(sent)),
            Some(Answer::Over) => {
                way.over.store(true, Ordering::Relaxed);
                life.lose(Loss::Expired);
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

/// Waits until `until`, or the end of the session's certain life, or until the connection breaks.
async fn rest(way: &Way, life: &Life, until: Instant) {
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
        life.lose(Loss::Expired);
    }
}
