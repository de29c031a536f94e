//! [`World`]: the arguments of a case: a store, a directory of its own in it, and actors.

use std::fmt;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::path::Path;
use synod_core::random::Random;
use synod_core::store::{Backend, SessionId, SessionOptions};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::actor::Actor;
use crate::harness::{Ability, Harness, Link, Profile};
use synod_testkit::limit::waits_for;

/// The environment of a case.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) harness: Arc<dyn Harness>,
    pub(crate) profile: Profile,
    pub(crate) random: Random,
    /// A directory of this case alone. Nothing is in it yet.
    pub(crate) dir: Path,
    /// The time by which a wait may exceed its nominal duration.
    pub(crate) slack: Duration,
}

impl World {
    /// In paused time a wait lasts for its nominal duration, except for its rounding; in real time
    /// the excess depends on the machine.
    ///
    /// In real time a busy machine may be late with the heartbeats of a session. So in a case that
    /// ends no session, the sessions live longer.
    pub(crate) fn new(
        harness: Arc<dyn Harness>,
        random: Random,
        is_paused: bool,
        needs: &[Ability],
    ) -> Self {
        let mut profile = harness.profile();
        if !is_paused && !needs.iter().any(|need| need.ends_sessions()) {
            profile.ttl *= 3;
        }
        let slack = if is_paused { profile.ttl / 100 } else { profile.patience };
        let dir = Path::new(&format!("/synod-conformance/{}", random.id())).expect("valid");
        Self { harness, profile, random, dir, slack }
    }

    /// A limit for a number of calls: `paused` in paused time, and `busy` on a server, where the
    /// number depends on the arrival of answers and events.
    pub(crate) fn at_most(&self, paused: usize, busy: usize) -> usize {
        if self.slack < self.profile.patience { paused } else { busy }
    }

    /// A path in the directory of this case.
    pub(crate) fn at(&self, below: &str) -> Path {
        let path = Path::new(&format!("{}/{below}", self.dir.as_str()));
        path.expect("cases use valid paths")
    }

    /// A new session.
    pub(crate) async fn ann(&self) -> Actor {
        self.session(self.profile.ttl).await
    }

    /// Another session.
    pub(crate) async fn bob(&self) -> Actor {
        self.ann().await
    }

    /// A session that requests this TTL.
    pub(crate) async fn session(&self, ttl: Duration) -> Actor {
        let backend = self.harness.backend();
        let options = SessionOptions::new(ttl);
        let store = self.in_time("opening a session", backend.open(&options)).await;
        Actor::new(store.expect("a session is opened"), self.profile.patience)
    }

    pub(crate) async fn expire(&self, session: SessionId) {
        self.in_time("expiring a session", self.harness.expire(session)).await;
    }

    pub(crate) async fn link(&self, session: SessionId, link: Link) {
        self.harness.link(session, link).await;
    }

    /// Waits for a future that must complete. A failure names the line of the caller.
    #[track_caller]
    pub(crate) fn in_time<T>(
        &self,
        what: &str,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = T> {
        let (step, patience) = (Step::new(what), self.profile.patience);
        async move {
            waits_for(&step);
            let done = timeout(patience, work).await;
            done.unwrap_or_else(|_elapsed| panic!("{step}: no end within {patience:?}"))
        }
    }

    /// Checks repeatedly, until it is true. A failure names the line of the caller.
    #[track_caller]
    pub(crate) fn eventually(
        &self,
        what: &str,
        holds: impl AsyncFnMut() -> bool,
    ) -> impl Future<Output = ()> {
        self.eventually_within(self.profile.patience, Step::new(what), holds)
    }

    /// [`World::eventually`] with this time in addition to the patience.
    #[track_caller]
    pub(crate) fn eventually_after(
        &self,
        usual: Duration,
        what: &str,
        holds: impl AsyncFnMut() -> bool,
    ) -> impl Future<Output = ()> {
        self.eventually_within(usual + self.profile.patience, Step::new(what), holds)
    }

    async fn eventually_within(
        &self,
        limit: Duration,
        step: Step,
        mut holds: impl AsyncFnMut() -> bool,
    ) {
        waits_for(&step);
        let pause = (self.profile.patience / 500).clamp(MILLISECOND, MILLISECOND * 50);
        let end = Instant::now() + limit;
        while !holds().await {
            assert!(Instant::now() < end, "{step}: not so within {limit:?}");
            sleep(pause).await;
        }
    }

    /// Opens and drops a value repeatedly, and checks that it has watches only while it exists.
    pub(crate) async fn leaves_no_watch<T>(&self, open: impl AsyncFn() -> T) {
        let before = self.harness.watches().await;
        for _ in 0..5 {
            let watched = open().await;
            let watching = async || self.harness.watches().await > before;
            self.eventually("it is watched", watching).await;
            drop(watched);
            let quiet = async || self.harness.watches().await <= before;
            self.eventually("no watch is left", quiet).await;
        }
    }

    /// Repeats `attempt` if it failed while this process was stalled for so long that a session may
    /// have ended. `attempt` returns the reason for its failure.
    ///
    /// A stall of this process also delays its heartbeats, because a case runs on one thread: if a
    /// session ends during the stall, the store is not at fault.
    pub(crate) async fn unless_stalled(
        &self,
        harmless: Duration,
        attempt: impl AsyncFn() -> Result<(), String>,
    ) {
        const ATTEMPTS: usize = 10;
        let mut stalls = Vec::new();
        for _ in 0..ATTEMPTS {
            let (result, stall) = longest_stall(attempt()).await;
            match result {
                Ok(()) => return,
                Err(why) => assert!(stall > harmless, "{why}"),
            }
            stalls.push(stall);
        }
        panic!("this machine is too busy for a verdict: this process stood still for {stalls:?}");
    }

    /// Waits for some random times, without borrowing the world.
    pub(crate) fn think_for(&self, times: usize) -> impl Future<Output = ()> + Send + 'static {
        let micros: Vec<_> = (0..times).map(|_| self.random.below(2_000)).collect();
        async move {
            for micros in micros {
                pause(micros).await;
            }
        }
    }

    /// Waits for a random time, so that calls of several actors overlap in many ways.
    pub(crate) async fn think(&self) {
        pause(self.random.below(2_000)).await;
    }
}

async fn pause(micros: u64) {
    if micros > 500 {
        sleep(Duration::from_micros(micros)).await;
    } else {
        tokio::task::yield_now().await;
    }
}

/// Runs `work`, and returns the longest time during which no task ran.
async fn longest_stall<T>(work: impl Future<Output = T>) -> (T, Duration) {
    const BEAT: Duration = Duration::from_millis(10);
    let mut longest = Duration::ZERO;
    let measuring = async {
        loop {
            let due = Instant::now() + BEAT;
            sleep_until(due).await;
            longest = longest.max(due.elapsed());
        }
    };
    let done = match select(pin!(work), pin!(measuring)).await {
        Either::Left((done, _)) => done,
        Either::Right((never, _)) => never,
    };
    (done, longest)
}

/// A step of a case: a description of the awaited event, and the line of the code.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    what: String,
    at: &'static Location<'static>,
}

impl Step {
    /// A step of the caller.
    #[track_caller]
    pub(crate) fn new(what: &str) -> Self {
        Self { what: what.to_owned(), at: Location::caller() }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.at.file().rsplit(['/', '\\']).next().unwrap_or_default();
        write!(f, "{} ({file}:{})", self.what, self.at.line())
    }
}

pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);

/// Returns `true` if the case runs on a runtime with worker threads.
pub(crate) fn has_workers() -> bool {
    Handle::current().metrics().num_workers() > 1
}

/// Asserts that a call was dropped at more than `least` awaits: otherwise the case tests nothing.
/// With worker threads some awaits return immediately, so the number depends on the threads.
#[track_caller]
pub(crate) fn dropped_enough(drops: usize, least: usize) {
    assert!(drops > least || has_workers(), "it was dropped {drops} times only");
}
