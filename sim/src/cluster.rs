//! [`Cluster`]: a simulated store of three servers and a leader, used over connections that break.
//!
//! Its leader is the state machine of [`MemBackend`](synod_mem::MemBackend). Three followers apply
//! the leader's log, each at its own pace. A client's session has a connection to one follower,
//! which answers it, holds its watches, and may lag; answers and events of one connection arrive in
//! order. Requests and heartbeats take time and get lost, connections break, sessions end, leaders
//! change: every such decision is made at a [`Site`], by a
//! [`Choice`](synod_testkit::choice::Choice).
//!
//! It is only for simulations, which run [`Cluster::run`] on their own clock.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use synod_core::clock::{self, Instant};
use synod_core::path::Path;
use synod_core::store::{Revision, SessionId};
use tokio::sync::Notify;

use synod_mem::Census;

mod answer;
mod client_end;
mod commit;
mod decisions;
mod flaw;
mod follower;
mod heartbeat;
mod history;
mod learner;
mod link;
mod options;
mod personality;
mod quorum;
mod server;
mod site;
mod state;
mod store;
mod trace;
mod trace_text;
mod trouble;
mod wire;

pub use decisions::{Decisions, Fired};
pub use flaw::Flaw;
pub use history::{Alarm, By, Death, Entry};
pub use options::ClusterOptions;
pub use personality::{Personality, UnknownPersonality};
pub use site::{Fault, Rates, Site};
pub use store::ClusterBackend;
pub use trace::{Line, Trace, What};

use state::State;

/// A simulated store. Clones are the same store.
#[derive(Clone)]
pub struct Cluster(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Notified when the next event is earlier than before.
    sooner: Notify,
}

impl Cluster {
    /// A new, empty store.
    pub fn new(options: ClusterOptions) -> Self {
        let state = State::new(options, clock::now());
        Self(Arc::new(Shared { state: Mutex::new(state), sooner: Notify::new() }))
    }

    /// Creates a node independent of any process.
    pub fn give(&self, path: Path, data: Bytes) {
        self.touch(|state, now| state.give(path, data, now));
    }

    /// Runs the store. Never returns.
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

    /// Makes a decision.
    pub fn with_decisions<T>(&self, decide: impl FnOnce(&mut Decisions) -> T) -> T {
        decide(&mut self.state().decisions)
    }

    /// Adds an entry to the trace.
    pub fn tell(&self, actor: u64, what: What, id: u64, text: impl FnOnce() -> String) {
        let mut state = self.state();
        let at = state.age(clock::true_now());
        state.trace.tell((at, actor), what, id, text);
    }

    /// Reads the trace, or adds to it.
    pub fn with_trace<T>(&self, read: impl FnOnce(&mut Trace) -> T) -> T {
        read(&mut self.state().trace)
    }

    /// The time since the beginning.
    pub fn age(&self) -> Duration {
        self.state().age(clock::true_now())
    }

    /// Every commit so far, in order.
    pub fn log(&self) -> Vec<Entry> {
        self.state().entries()
    }

    /// Counts the contents.
    pub fn census(&self) -> Census {
        self.state().census()
    }

    /// The sessions that have ended.
    pub fn deaths(&self) -> Vec<Death> {
        self.state().deaths.clone()
    }

    /// Expires a session, as if its heartbeats had stopped.
    pub fn expire(&self, session: SessionId) {
        self.touch(|state, now| state.end_session(session, now));
    }

    /// Returns `true` if a session is alive at the store now.
    pub fn lives(&self, session: SessionId) -> bool {
        self.state().lives(session)
    }

    /// The time of a path's creation, and the session that owns it: the creation at `created`, or
    /// else the last one.
    pub fn born(&self, path: &Path, created: Revision) -> Option<(Revision, Option<SessionId>)> {
        self.state().born(path, created)
    }

    /// The author of the deletion of the node that was created at `created`, if it was deleted.
    pub fn removed_by(&self, path: &Path, created: Revision) -> Option<By> {
        self.state().removed_by(path, created)
    }

    /// If this fault fires, no heartbeat of the process arrives for this long. Returns `true` if it
    /// fired.
    pub fn falls_silent(&self, actor: u64, lasting: Duration) -> bool {
        let (mut state, now) = (self.state(), clock::true_now());
        if state.decisions.fires(Site::BeatsCut, actor, 1).is_none() {
            return false;
        }
        state.fault(actor, Site::BeatsCut, 0, now);
        state.cuts_of(actor).beats = Some(now + lasting);
        true
    }

    /// The number of servers that have a connection in both directions to a process: the number of
    /// answers that it would get if it sent a heartbeat to each.
    pub fn reaches(&self, actor: u64) -> usize {
        self.state().reaches(actor, clock::true_now())
    }

    /// The number of commits so far.
    pub fn committed(&self) -> usize {
        self.state().log.len()
    }

    /// The events for the runner of the processes since the last call.
    pub fn alarms(&self) -> Vec<Alarm> {
        let mut state = self.state();
        if state.calls_for.is_empty() { Vec::new() } else { std::mem::take(&mut state.calls_for) }
    }

    /// Repairs all faults, and allows no more of them.
    pub fn heal(&self) {
        self.state().heal(clock::true_now());
        self.0.sooner.notify_one();
    }

    /// Stops a server for ever. At least two must remain.
    pub fn freeze(&self, server: usize) {
        self.state().freeze(server);
    }

    /// Discards all messages that a process sent before its crash and that arrive later.
    pub fn bury(&self, actor: u64) {
        self.state().bury(actor, clock::true_now());
    }

    /// Sets the next sequence of an existing directory.
    pub fn skip_sequences(&self, dir: &Path, next: u64) {
        self.state().skip_sequences(dir, next);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes [`Cluster::run`] if the next event became earlier.
    fn touch<T>(&self, work: impl FnOnce(&mut State, Instant) -> T) -> T {
        let mut state = self.state();
        let done = work(&mut state, clock::true_now());
        if state.wake_if_sooner() {
            self.0.sooner.notify_one();
        }
        done
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("census", &self.census()).finish_non_exhaustive()
    }
}
