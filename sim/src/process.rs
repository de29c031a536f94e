//! [`Process`]: what the function of a process is given.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use synod_core::chance::Chance;
use synod_core::client::{Client, ClientOptions};
use synod_core::clock;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::stage;
use synod_core::store::{Backend, Revision, SessionId, SessionOptions};
use synod_core::sweep::stop_at;
use synod_mem::cluster::{By, Cluster, Site, What};
use tokio::sync::Notify;

use crate::findings::Findings;
use crate::slip::{Kept, Slip};

/// The mark of a call that was dropped before its end.
pub(crate) const DROPPED: &str = "a call was dropped";

/// A process of a simulation, as its own function has it. Clones are the same process.
#[derive(Clone, Debug)]
pub struct Process {
    pub(crate) actor: u64,
    pub(crate) name: Arc<str>,
    pub(crate) life: u32,
    /// The first of its lives since it crashed: what it kept in memory is from there on.
    pub(crate) since: u32,
    pub(crate) seed: u64,
    pub(crate) rounds: u64,
    pub(crate) ttl: Duration,
    pub(crate) slip: Option<Slip>,
    pub(crate) kept: Kept,
    pub(crate) cluster: Cluster,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) findings: Findings,
    pub(crate) mending: Arc<Calm>,
}

/// Something is so for a process while this lives.
#[derive(Debug)]
#[must_use = "it is over when this is dropped"]
pub struct During {
    cluster: Cluster,
    actor: u64,
    id: u64,
    text: String,
}

impl Drop for During {
    fn drop(&mut self) {
        let text = std::mem::take(&mut self.text);
        self.cluster.tell(self.actor, What::Over, self.id, || text);
    }
}

/// Whether everything is mended, and who waits for that.
#[derive(Debug, Default)]
pub(crate) struct Calm {
    mended: AtomicBool,
    waiting: Mutex<BTreeSet<u64>>,
    turned: Notify,
}

impl Calm {
    pub(crate) fn set(&self) {
        self.mended.store(true, Ordering::Relaxed);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.turned.notify_waiters();
    }

    /// Whether a process waits for it.
    pub(crate) fn awaits(&self, actor: u64) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).contains(&actor)
    }
}

/// Notes that a process waits.
struct Waits<'a>(&'a Process);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.mending.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(&self.0.actor);
    }
}

impl Process {
    /// Opens a client on the simulated store.
    ///
    /// # Errors
    ///
    /// As [`Client::open`].
    ///
    /// # Cancel safety
    ///
    /// As [`Client::open`].
    pub async fn client(&self) -> Result<Client> {
        let client = Client::open(self.backend(), self.options()).await?;
        if self.slips(Slip::ClosesAtItsEnd) {
            self.kept.keep((self.actor, self.life), &client);
        }
        Ok(client)
    }

    /// The options of [`Process::client`], for whoever wants others.
    pub fn options(&self) -> ClientOptions {
        let again = self.slips(Slip::SameIdsAgain);
        // What it has in memory it loses when it crashes, and not when its user's task dies.
        let lives = u64::from(if again { self.life - self.since } else { self.life }) << 32;
        ClientOptions::default()
            .session(SessionOptions::new(self.ttl))
            .deadline(self.ttl * 3)
            .connect_deadline(self.ttl * 5)
            .chance(Chance::seeded(self.seed).fork(self.actor ^ lives))
    }

    /// The simulated store, as this process reaches it.
    pub fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which of the processes it is, from 1.
    pub fn number(&self) -> u64 {
        self.actor
    }

    /// How often it died and was started again.
    pub fn life(&self) -> u32 {
        self.life
    }

    /// How many rounds of its work it makes: so many, or fewer in a smaller world.
    pub fn rounds(&self, most: u64) -> u64 {
        most.min(self.rounds)
    }

    /// How often something went wrong for this process so far at one of these sites: what no real
    /// process can know.
    pub fn suffered(&self, sites: &[Site]) -> usize {
        self.cluster.with_dice(|dice| {
            let mine = dice.fired().iter().filter(|it| it.spot.actor.get() == self.actor);
            mine.filter(|it| sites.contains(&it.spot.site)).count()
        })
    }

    /// How often something went wrong so far for this process, or for the servers: each may have kept it from an
    /// answer.
    pub fn harmed(&self) -> usize {
        /// The numbers of processes. The world is 0, and servers are behind.
        const PROCESSES: Range<u64> = 1..100;

        self.cluster.with_dice(|dice| {
            let actors = dice.fired().iter().map(|it| it.spot.actor.get());
            actors.filter(|actor| *actor == self.actor || !PROCESSES.contains(actor)).count()
        })
    }

    /// The time to live of its sessions.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// A number below `n`: the same for the same seed.
    pub fn pick(&self, n: u64) -> u64 {
        self.cluster.with_dice(|dice| dice.pick(Site::Step, self.actor, n))
    }

    /// Does nothing for up to so long.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn rest(&self, most: Duration) {
        let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        clock::sleep(Duration::from_millis(self.pick(millis.saturating_add(1)))).await;
    }

    /// Runs a call, or drops it at one of its awaits if that is what goes wrong. `None` if it was
    /// dropped.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the call.
    pub async fn perhaps<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let k = self.cluster.with_dice(|dice| dice.fires(Site::CallDropped, self.actor, 8));
        match k {
            Some(k) => {
                self.cluster.tell(self.actor, What::Fault, 0, || Site::CallDropped.to_string());
                let ended = stop_at(usize::try_from(k).unwrap_or(1), call).await;
                self.sometimes(DROPPED, ended.is_none());
                ended
            }
            None => Some(call.await),
        }
    }

    /// Does something else for a while, if that is what goes wrong.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn dawdle(&self) {
        let slow = |dice: &mut synod_mem::cluster::Dice| {
            dice.lasting(Site::SlowReader, self.actor, self.ttl * 2)
        };
        if let Some(slow) = self.cluster.with_dice(slow) {
            self.cluster.tell(self.actor, What::Fault, 0, || Site::SlowReader.to_string());
            clock::sleep(slow).await;
        }
    }

    /// Waits until everything is mended that will be. The safety phase does not wait for those who wait
    /// here.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn mended(&self) {
        let turned = self.mending.turned.notified();
        if self.mending.mended.load(Ordering::Relaxed) {
            return;
        }
        self.mending.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(self.actor);
        let _waits = Waits(self);
        turned.await;
    }

    /// Whether a session lives at the store now: what no real process can know.
    pub fn lives(&self, session: SessionId) -> bool {
        self.cluster.lives(session)
    }

    /// Whether a session is over at the store because nothing was heard of it: what no real process can
    /// know.
    pub fn ended_in_silence(&self, session: SessionId) -> bool {
        !self.lives(session)
            && self.cluster.deaths().iter().any(|it| it.session == session && it.silent)
    }

    /// For how long a session has been over at the store: what no real process can know before it is told.
    pub fn over_for(&self, session: SessionId) -> Option<Duration> {
        let death = self.cluster.deaths().into_iter().find(|it| it.session == session)?;
        Some(self.age().saturating_sub(death.at))
    }

    /// Whether a session was ended by somebody, and not for its silence: what no real process can know
    /// before it is told.
    pub fn ended_by_force(&self, session: SessionId) -> bool {
        self.cluster.deaths().iter().any(|it| it.session == session && !it.silent)
    }

    /// When a path was last created, and which session it belongs to: what no real process can know.
    pub fn born(&self, path: &Path) -> Option<(Revision, Option<SessionId>)> {
        self.cluster.born(path)
    }

    /// Who removed the node of this path that was created then, if somebody did: what no real process can know.
    pub fn removed_by(&self, path: &Path, created: Revision) -> Option<By> {
        self.cluster.removed_by(path, created)
    }

    /// Whether no heartbeat of this process arrives for so long from now on: for who would look closely at
    /// what comes of it. It is one of the things that go wrong, so mostly it is not.
    pub fn falls_silent(&self, lasting: Duration) -> bool {
        self.cluster.falls_silent(self.actor, lasting)
    }

    /// How many commits the store has had: what no real process can know.
    pub fn committed(&self) -> usize {
        self.cluster.committed()
    }

    /// Whether it makes this mistake.
    pub(crate) fn slips(&self, slip: Slip) -> bool {
        self.slip == Some(slip)
    }

    /// What must be true now, and always.
    pub fn always(&self, sentence: &str, is: bool) {
        if !is {
            self.wrong(sentence, || "it was not so".to_owned());
        }
    }

    /// What should be true now in some histories: otherwise they test less than they seem to.
    pub fn sometimes(&self, mark: &'static str, is: bool) {
        self.findings.mark(mark, is);
    }

    /// A law, by its id or in words, is broken.
    pub fn wrong(&self, law: &str, what: impl FnOnce() -> String) {
        let what = what();
        self.note(|| format!("WRONG, {law}: {what}"));
        self.findings.wrong(law, what, self.cluster.age(), self.actor);
    }

    /// Says something in the trace.
    pub fn note(&self, text: impl FnOnce() -> String) {
        self.cluster.tell(self.actor, What::Note, 0, text);
    }

    /// Says in the trace that something is so for this process, as that it holds a lock, until what this
    /// returns is dropped.
    pub fn during(&self, text: impl Into<String>) -> During {
        let text = text.into();
        let id = self.cluster.with_trace(|trace| trace.hash()) | 1;
        self.cluster.tell(self.actor, What::Begun, id, || text.clone());
        During { cluster: self.cluster.clone(), actor: self.actor, id, text }
    }

    /// What its wall clock shows, since the beginning of 1970: the same that the library reads in this process.
    /// It may be a year off, or be set to another date while the process runs; no promise depends on it.
    pub fn wall_clock(&self) -> Duration {
        let date = stage::here().map(|stage| stage.date());
        let since = date.and_then(|date| date.duration_since(SystemTime::UNIX_EPOCH).ok());
        since.unwrap_or_default()
    }

    /// How long the simulation runs, by a clock that is right.
    pub fn age(&self) -> Duration {
        self.cluster.age()
    }
}
