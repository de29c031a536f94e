//! [`Cluster`]: a simulated store of three servers and a leader, reached over connections that break.
//!
//! It is the same state machine as that of [`MemBackend`](crate::MemBackend), at the leader of a log
//! that three followers apply, each in its time. A client's session hangs on a connection to one
//! follower, which answers it, holds its watches, and may lag; answers and events of one connection
//! come in order. Requests and heartbeats take time and get lost, connections break, sessions end,
//! leaders change: every such decision is made at a [`Site`], by a
//! [`Choice`].
//!
//! Nothing happens in it by itself: it is for a simulation, which runs [`Cluster::run`] on its own
//! clock, and is of no use to an application.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use synod_core::choice::Choice;
use synod_core::clock::{self, Instant};
use synod_core::path::Path;
use synod_core::store::{Change, Revision, SessionId};
use tokio::sync::Notify;

use crate::Census;

mod answer;
mod commit;
mod dice;
mod flaw;
mod heart;
mod link;
mod personality;
mod quorum;
mod server;
mod site;
mod state;
mod store;
mod trace;
mod trouble;
mod way;
mod words;

pub use dice::{Dice, Fired};
pub use flaw::Flaw;
pub use personality::{Personality, UnknownPersonality};
pub use site::{Fault, Rates, Site};
pub use store::ClusterBackend;
pub use trace::{Line, Trace, What};

use state::State;

/// A simulated store. Clones are the same one.
#[derive(Clone)]
pub struct Cluster(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Rings when there is something to do earlier than before.
    sooner: Notify,
}

/// What a simulated store is like.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterOptions {
    /// Whose habits it has.
    pub personality: Personality,
    /// How often things go wrong.
    pub rates: Rates,
    /// Who decides whether they do.
    pub choice: Choice<Site>,
    /// Whether every line of the trace is kept, and not only its hash.
    pub keep_trace: bool,
    /// The time to live by which the length of what goes wrong is measured.
    pub ttl: Duration,
    /// What its servers get wrong, in the tests of tests.
    pub flaw: Option<Flaw>,
}

/// One commit, as the leader has it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// When, since the beginning.
    pub at: Duration,
    /// What it changed, each with its revision and with what the node is then.
    pub changes: Vec<Change>,
    /// Which of the paths a sequential create made.
    pub drawn: Vec<Path>,
    /// Who asked for it.
    pub by: By,
}

/// Who changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum By {
    /// This process.
    Process(u64),
    /// The store itself, as when a session ends.
    Store,
    /// Somebody of whom the processes know nothing.
    Stranger,
}

/// A session that is over at the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Death {
    /// Which.
    pub session: SessionId,
    /// Whose it was.
    pub actor: u64,
    /// When it ended, since the beginning.
    pub at: Duration,
    /// Whether it ended because nothing was heard of it in time.
    pub silent: bool,
}

/// Something that concerns whoever runs the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Alarm {
    /// A session is over.
    Died,
    /// This process crashes now.
    Crash(u64),
    /// What the user of the library runs in this process dies now.
    UserDies(u64),
}

impl Cluster {
    /// An empty store at this moment.
    pub fn new(options: ClusterOptions) -> Self {
        let state = State::new(options, clock::now());
        Self(Arc::new(Shared { state: Mutex::new(state), sooner: Notify::new() }))
    }

    /// Creates a node, without anybody asking for it.
    pub fn give(&self, path: Path, data: Bytes) {
        self.touch(|state, now| state.give(path, data, now));
    }

    /// The way of a process to this store.
    pub fn backend(&self, actor: u64) -> ClusterBackend {
        ClusterBackend::new(self.clone(), actor)
    }

    /// Lets the store live. Never ends.
    pub async fn run(&self) {
        loop {
            let sooner = std::pin::pin!(self.0.sooner.notified());
            let next = {
                let mut state = self.state();
                state.advance(clock::now());
                state.rests()
            };
            match next {
                Some(next) => {
                    let rest = std::pin::pin!(clock::sleep_until(next));
                    let _first = futures_util::future::select(rest, sooner).await;
                }
                None => sooner.await,
            }
        }
    }

    /// Decides something.
    pub fn with_dice<T>(&self, decide: impl FnOnce(&mut Dice) -> T) -> T {
        decide(&mut self.state().dice)
    }

    /// Takes down something.
    pub fn tell(&self, actor: u64, what: What, id: u64, text: impl FnOnce() -> String) {
        let mut state = self.state();
        let at = state.age(clock::true_now());
        state.trace.tell((at, actor), what, id, text);
    }

    /// Reads the trace, or adds to it.
    pub fn with_trace<T>(&self, read: impl FnOnce(&mut Trace) -> T) -> T {
        read(&mut self.state().trace)
    }

    /// How long it has been there.
    pub fn age(&self) -> Duration {
        self.state().age(clock::true_now())
    }

    /// Every commit so far, in order.
    pub fn log(&self) -> Vec<Entry> {
        self.state().entries()
    }

    /// Counts what there is.
    pub fn census(&self) -> Census {
        self.state().census()
    }

    /// The sessions that are over.
    pub fn deaths(&self) -> Vec<Death> {
        self.state().deaths.clone()
    }

    /// Ends a session as if nothing had been heard of it for too long.
    pub fn expire(&self, session: SessionId) {
        self.touch(|state, now| state.end_session(session, now));
    }

    /// Whether a session lives at the store now.
    pub fn lives(&self, session: SessionId) -> bool {
        self.state().lives(session)
    }

    /// When a path was last created, and which session it belongs to.
    pub fn born(&self, path: &Path) -> Option<(Revision, Option<SessionId>)> {
        self.state().born(path)
    }

    /// Who removed the node of this path that was created then, if somebody did.
    pub fn removed_by(&self, path: &Path, created: Revision) -> Option<By> {
        self.state().removed_by(path, created)
    }

    /// No heartbeat of a process arrives for so long, if that is what goes wrong. Whether it is.
    pub fn falls_silent(&self, actor: u64, lasting: Duration) -> bool {
        let (mut state, now) = (self.state(), clock::true_now());
        if state.dice.fires(Site::BeatsCut, actor, 1).is_none() {
            return false;
        }
        state.fault(actor, Site::BeatsCut, 0, now);
        state.cuts_of(actor).beats = Some(now + lasting);
        true
    }

    /// How many servers hear a process and are heard by it: what it would learn if it asked each for a sign of
    /// life.
    pub fn reaches(&self, actor: u64) -> usize {
        self.state().reaches(actor, clock::true_now())
    }

    /// How many commits there are so far.
    pub fn committed(&self) -> usize {
        self.state().log.len()
    }

    /// What happened that concerns whoever runs the processes.
    pub fn alarms(&self) -> Vec<Alarm> {
        let mut state = self.state();
        if state.calls_for.is_empty() { Vec::new() } else { std::mem::take(&mut state.calls_for) }
    }

    /// Nothing goes wrong from now on, and what is wrong is mended.
    pub fn heal(&self) {
        self.state().heal(clock::true_now());
        self.0.sooner.notify_one();
    }

    /// A server stops for ever. Of the others there must be two.
    pub fn freeze(&self, server: usize) {
        self.state().freeze(server);
    }

    /// A process is no more: nothing that it does from now on gets out.
    pub fn bury(&self, actor: u64) {
        self.state().bury(actor, clock::true_now());
    }

    /// Lets the sequences of a directory that exists go on from `next`.
    pub fn skip_sequences(&self, dir: &Path, next: u64) {
        self.state().skip_sequences(dir, next);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the state, and wakes whoever lets it live if that brought something near.
    fn touch<T>(&self, work: impl FnOnce(&mut State, Instant) -> T) -> T {
        let mut state = self.state();
        let done = work(&mut state, clock::true_now());
        if state.is_sooner() {
            self.0.sooner.notify_one();
        }
        done
    }
}

impl ClusterOptions {
    /// A store in which everything goes well, with these habits.
    pub fn new(personality: Personality) -> Self {
        Self {
            personality,
            rates: Rates::none(),
            choice: Choice::never(),
            keep_trace: false,
            ttl: Duration::from_secs(1),
            flaw: None,
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("census", &self.census()).finish_non_exhaustive()
    }
}
