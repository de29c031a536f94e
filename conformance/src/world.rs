//! [`World`]: what a case is given. A store, a directory of its own in it, and actors.

use std::sync::Arc;
use std::time::Duration;

use synod_core::chance::Chance;
use synod_core::path::Path;
use synod_core::store::{Backend, SessionId, SessionOptions};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::actor::Actor;
use crate::harness::{Harness, Link, Profile};

/// Where a case takes place.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) harness: Arc<dyn Harness>,
    pub(crate) profile: Profile,
    pub(crate) chance: Chance,
    /// A directory that nobody else uses. Nothing is in it yet.
    pub(crate) dir: Path,
}

impl World {
    pub(crate) fn new(harness: Arc<dyn Harness>, chance: Chance) -> Self {
        let profile = harness.profile();
        let dir = Path::new(&format!("/synod-conformance/{}", chance.id())).expect("valid");
        Self { harness, profile, chance, dir }
    }

    /// A path in the directory of this case.
    pub(crate) fn at(&self, below: &str) -> Path {
        let path = Path::new(&format!("{}/{below}", self.dir.as_str()));
        path.expect("cases use valid paths")
    }

    /// A session that nobody else has.
    pub(crate) async fn ann(&self) -> Actor {
        self.session(self.profile.ttl).await
    }

    /// Another session.
    pub(crate) async fn bob(&self) -> Actor {
        self.ann().await
    }

    /// A session that asks for this time to live.
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

    /// Waits for what must come to an end.
    pub(crate) async fn in_time<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        let patience = self.profile.patience;
        let done = timeout(patience, work).await;
        done.unwrap_or_else(|_elapsed| panic!("{what}: no end within {patience:?}"))
    }

    /// Asks again and again, until it is so.
    pub(crate) async fn eventually(&self, what: &str, holds: impl AsyncFnMut() -> bool) {
        self.eventually_within(self.profile.patience, what, holds).await;
    }

    /// [`World::eventually`], for what may take this long and patience on top.
    pub(crate) async fn eventually_after(
        &self,
        usual: Duration,
        what: &str,
        holds: impl AsyncFnMut() -> bool,
    ) {
        self.eventually_within(usual + self.profile.patience, what, holds).await;
    }

    async fn eventually_within(
        &self,
        limit: Duration,
        what: &str,
        mut holds: impl AsyncFnMut() -> bool,
    ) {
        let pause = (self.profile.patience / 500).clamp(MILLISECOND, MILLISECOND * 50);
        let end = Instant::now() + limit;
        while !holds().await {
            assert!(Instant::now() < end, "{what}: not so within {limit:?}");
            sleep(pause).await;
        }
    }

    /// Thinks for a while that differs each time, so that calls of several actors meet in many ways.
    pub(crate) async fn think(&self) {
        let micros = self.chance.below(2_000);
        if micros > 500 {
            sleep(Duration::from_micros(micros)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);

/// Whether the case runs beside worker threads.
pub(crate) fn has_workers() -> bool {
    Handle::current().metrics().num_workers() > 1
}

/// Holds that a call was dropped at more than so many awaits: else the case tried nothing. Where workers answer
/// beside it, a call finds the answer at some awaits, and how many of them it waits at is up to the threads.
#[track_caller]
pub(crate) fn dropped_enough(drops: usize, least: usize) {
    assert!(drops > least || has_workers(), "it was dropped {drops} times only");
}
