//! [`Process`]: the argument of a process's function.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::cluster::{By, Cluster, Site, What};
use synod_core::client::{Client, ClientOptions};
use synod_core::clock;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::random::Random;
use synod_core::runtime;
use synod_core::store::{Backend, Revision, SessionId, SessionOptions};
use synod_recipes::Held;
use synod_testkit::cancel::stop_at;
use tokio::sync::Notify;

use crate::findings::Findings;
use crate::user_mistake::{Kept, UserMistake};

/// The mark for a call that was dropped before its end.
pub(crate) const DROPPED: &str = "a call was dropped";

/// The handle of a process of a simulation, for its own function. Clones are the same process.
#[derive(Clone, Debug)]
pub struct Process {
    pub(crate) actor: u64,
    pub(crate) name: Arc<str>,
    pub(crate) life: u32,
    /// The first of its lives since its last crash, from which its memory dates.
    pub(crate) since: u32,
    pub(crate) seed: u64,
    pub(crate) rounds: u64,
    pub(crate) ttl: Duration,
    pub(crate) user_mistake: Option<UserMistake>,
    pub(crate) kept: Kept,
    pub(crate) cluster: Cluster,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) findings: Findings,
    pub(crate) mending: Arc<Calm>,
}

/// A state of a process, in force while this value exists.
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

/// The state of the repair: whether it is complete, and which processes wait for it.
#[derive(Debug, Default)]
pub(crate) struct Calm {
    mended: AtomicBool,
    waiting: Mutex<BTreeSet<u64>>,
    /// The processes that are frozen for ever.
    frozen: Mutex<BTreeSet<u64>>,
    turned: Notify,
}

impl Calm {
    pub(crate) fn set(&self) {
        self.mended.store(true, Ordering::Relaxed);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.turned.notify_waiters();
    }

    /// Records that a process is frozen for ever.
    pub(crate) fn freeze(&self, actor: u64) {
        self.frozen.lock().unwrap_or_else(PoisonError::into_inner).insert(actor);
    }

    /// Returns `true` if a process waits for the repair.
    pub(crate) fn awaits(&self, actor: u64) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).contains(&actor)
    }
}

/// Records that a process waits.
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
        if self.makes(UserMistake::ClosesAtItsEnd) {
            self.kept.keep((self.actor, self.life), &client);
        }
        Ok(client)
    }

    /// Opens a client as [`Process::client`] does; in one process out of three it has a short
    /// deadline, so that requests fail without an answer.
    ///
    /// # Errors
    ///
    /// As [`Client::open`].
    ///
    /// # Cancel safety
    ///
    /// As [`Client::open`].
    pub async fn impatient_client(&self) -> Result<Client> {
        let deadline = if self.pick(3) == 0 { self.ttl() / 5 } else { self.options().timeout };
        Client::open(self.backend(), self.options().timeout(deadline)).await
    }

    /// Opens a second client, with its own session and other ids.
    pub(crate) async fn second_client(&self) -> Result<Client> {
        /// Above the numbers of processes, and below the numbers of their lives.
        const SECOND: u64 = 1 << 16;

        Client::open(self.backend(), self.options().random(self.random(SECOND))).await
    }

    /// The default options of [`Process::client`], to be changed by the caller.
    pub fn options(&self) -> ClientOptions {
        ClientOptions::default()
            .session(SessionOptions::new(self.ttl))
            .timeout(self.ttl * 3)
            .connect_timeout(self.ttl * 5)
            .random(self.random(0))
    }

    /// The ids and delays of a client: the same for the same seed, but different in each life of
    /// the process.
    fn random(&self, client: u64) -> Random {
        let again = self.makes(UserMistake::SameIdsAgain);
        // A crash loses the memory of the process; the end of its user's task does not.
        let lives = u64::from(if again { self.life - self.since } else { self.life }) << 32;
        Random::seeded(self.seed).fork(self.actor ^ client ^ lives)
    }

    /// The simulated store, over the connection of this process.
    pub fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    /// The name of the process.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of the process, from 1.
    pub fn number(&self) -> u64 {
        self.actor
    }

    /// Returns the number of restarts of the process.
    pub fn life(&self) -> u32 {
        self.life
    }

    /// The number of rounds of its work: `most`, or fewer in a reduced history.
    pub fn rounds(&self, most: u64) -> u64 {
        most.min(self.rounds)
    }

    /// Returns the number of faults of this process so far at these sites. A real process cannot
    /// know this.
    pub fn suffered(&self, sites: &[Site]) -> usize {
        self.cluster.with_decisions(|decisions| {
            let mine = decisions.fired().iter().filter(|it| it.spot.actor.get() == self.actor);
            mine.filter(|it| sites.contains(&it.spot.site)).count()
        })
    }

    /// Returns the number of faults so far of this process and of the servers: each may have
    /// prevented an answer.
    pub fn harmed(&self) -> usize {
        /// The numbers of processes. The world is 0, and servers have higher numbers.
        const PROCESSES: Range<u64> = 1..100;

        self.cluster.with_decisions(|decisions| {
            let actors = decisions.fired().iter().map(|it| it.spot.actor.get());
            actors.filter(|actor| *actor == self.actor || !PROCESSES.contains(actor)).count()
        })
    }

    /// The time to live of its sessions.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// A number below `n`: the same for the same seed.
    pub fn pick(&self, n: u64) -> u64 {
        self.cluster.with_decisions(|decisions| decisions.pick(Site::Step, self.actor, n))
    }

    /// Waits for at most this long.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn rest(&self, most: Duration) {
        let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        clock::sleep(Duration::from_millis(self.pick(millis.saturating_add(1)))).await;
    }

    /// Runs a call, or drops it at one of its awaits if the fault fires. `None` if it was dropped.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the call.
    pub async fn perhaps<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let k = self
            .cluster
            .with_decisions(|decisions| decisions.fires(Site::CallDropped, self.actor, 8));
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

    /// Waits for a while, if the fault fires.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn dawdle(&self) {
        let slow = |decisions: &mut crate::cluster::Decisions| {
            decisions.lasting(Site::SlowReader, self.actor, self.ttl * 2)
        };
        if let Some(slow) = self.cluster.with_decisions(slow) {
            self.cluster.tell(self.actor, What::Fault, 0, || Site::SlowReader.to_string());
            clock::sleep(slow).await;
        }
    }

    /// Waits until all repairs are done. The safety phase does not wait for processes that wait
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

    /// The processes that are frozen for ever. A real process cannot know this.
    pub(crate) fn frozen(&self) -> BTreeSet<u64> {
        self.mending.frozen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns `true` if a session is alive at the store now. A real process cannot know this.
    pub fn lives(&self, session: SessionId) -> bool {
        self.cluster.lives(session)
    }

    /// Returns `true` if the store expired a session because it received nothing from it. A real
    /// process cannot know this.
    pub fn ended_in_silence(&self, session: SessionId) -> bool {
        !self.lives(session)
            && self.cluster.deaths().iter().any(|it| it.session == session && it.silent)
    }

    /// Returns the time since a session ended at the store. A real process cannot know this before
    /// it is notified.
    pub fn over_for(&self, session: SessionId) -> Option<Duration> {
        let death = self.cluster.deaths().into_iter().find(|it| it.session == session)?;
        Some(self.age().saturating_sub(death.at))
    }

    /// Returns `true` if an operator ended a session. A real process cannot know this before it is
    /// notified.
    pub fn ended_by_force(&self, session: SessionId) -> bool {
        self.cluster.deaths().iter().any(|it| it.session == session && !it.silent)
    }

    /// Returns the revision at which the ticket of a guard was created, and the session that owns
    /// it, as the store knows them. A delayed create may have created another node at its path
    /// since. A real process cannot know this.
    pub fn born(&self, held: &dyn Held) -> Option<(Revision, Option<SessionId>)> {
        self.cluster.born(held.seen_path(), held.token().revision())
    }

    /// The author of the deletion of the node that was created at `created`, if it was deleted. A
    /// real process cannot know this.
    pub fn removed_by(&self, path: &Path, created: Revision) -> Option<By> {
        self.cluster.removed_by(path, created)
    }

    /// Drops all heartbeats of this process for this long, if the fault fires, so that the caller
    /// can examine the consequences. Usually the fault does not fire. Returns `true` if it fired.
    pub fn falls_silent(&self, lasting: Duration) -> bool {
        self.cluster.falls_silent(self.actor, lasting)
    }

    /// The number of commits of the store. A real process cannot know this.
    pub fn committed(&self) -> usize {
        self.cluster.committed()
    }

    /// Returns `true` if the process makes this mistake.
    pub(crate) fn makes(&self, user_mistake: UserMistake) -> bool {
        self.user_mistake == Some(user_mistake)
    }

    /// Asserts a condition that must always be true.
    pub fn always(&self, sentence: &str, is: bool) {
        if !is {
            self.wrong(sentence, || "it was not so".to_owned());
        }
    }

    /// Records a condition that should be true in some histories; otherwise the histories test less
    /// than they seem to.
    pub fn sometimes(&self, mark: &'static str, is: bool) {
        self.findings.mark(mark, is);
    }

    /// Reports a broken law, given by its id or as a sentence.
    pub fn wrong(&self, law: &str, what: impl FnOnce() -> String) {
        let what = what();
        self.note(|| format!("WRONG, {law}: {what}"));
        self.findings.wrong(law, what, self.cluster.age(), self.actor);
    }

    /// Writes a note to the trace.
    pub fn note(&self, text: impl FnOnce() -> String) {
        self.cluster.tell(self.actor, What::Note, 0, text);
    }

    /// Records a state of this process in the trace, for example that it holds a lock, until the
    /// returned value is dropped.
    pub fn during(&self, text: impl Into<String>) -> During {
        let text = text.into();
        let id = self.cluster.with_trace(|trace| trace.hash()) | 1;
        self.cluster.tell(self.actor, What::Begun, id, || text.clone());
        During { cluster: self.cluster.clone(), actor: self.actor, id, text }
    }

    /// The wall clock that the library reads in this process, since the beginning of 1970. It may
    /// be a year off, or be set to another date while the process runs; no guarantee depends on it.
    pub fn wall_clock(&self) -> Duration {
        let date = runtime::here().map(|runtime| runtime.date());
        let since = date.and_then(|date| date.duration_since(SystemTime::UNIX_EPOCH).ok());
        since.unwrap_or_default()
    }

    /// The time since the beginning of the simulation, by a correct clock.
    pub fn age(&self) -> Duration {
        self.cluster.age()
    }
}
