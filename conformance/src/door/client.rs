//! The clients of cases, on the store under test, and the results of their calls.

use std::time::Duration;

use synod_core::client::{Client, ClientOptions};
use synod_core::error::{Error, Result};
use synod_core::retry::{Backoff, Retry};
use synod_core::store::{Backend, OpResult, Outcome, SessionOptions};
use synod_testkit::fault::{Actor, Cue, FaultyBackend, Plan};
use synod_testkit::hesitant::HesitantBackend;

use crate::actor::text_of;
use crate::door::gate::Gate;
use crate::world::World;

impl World {
    /// Options for a client whose calls do not time out before the case does.
    pub(crate) fn options(&self) -> ClientOptions {
        let backoff = Backoff::default().first(Duration::from_millis(5)).cap(self.profile.ttl / 20);
        ClientOptions::default()
            .session(SessionOptions::new(self.profile.ttl))
            .timeout(self.profile.patience / 2)
            .connect_timeout(self.profile.patience / 2)
            .retry(Retry::Forever { backoff })
            .random(self.random.fork(self.random.number()))
    }

    /// Options for a client that makes many calls, or whose calls are counted: its TTL is so long
    /// that its session survives a pause of a busy machine, and no owner starts to watch its own
    /// ticket.
    pub(crate) fn unhurried(&self) -> ClientOptions {
        self.options().session(SessionOptions::new(self.profile.patience * 3))
    }

    /// A short deadline that a case can wait for.
    pub(crate) fn brief(&self) -> Duration {
        self.profile.patience / 50
    }

    /// A client on a backend.
    pub(crate) async fn client_on(&self, backend: impl Backend, options: ClientOptions) -> Client {
        let opened = self.in_time("opening a client", Client::open(backend, options)).await;
        opened.unwrap_or_else(|error| panic!("no client: {}", text_of(&error)))
    }

    /// A client on the unmodified store under test.
    pub(crate) async fn client(&self) -> Client {
        self.client_on(self.harness.backend(), self.options()).await
    }

    /// [`World::client`], with a session that lives for long.
    pub(crate) async fn unhurried_client(&self) -> Client {
        self.client_on(self.harness.backend(), self.unhurried()).await
    }

    /// A client with faults at its calls as scripted.
    pub(crate) async fn scripted(&self, cues: impl IntoIterator<Item = Cue>) -> (Client, Plan) {
        self.scripted_on(self.harness.backend(), self.options(), cues).await
    }

    /// A client on another store, such as a gate, with faults at its calls as scripted.
    pub(crate) async fn scripted_on(
        &self,
        backend: impl Backend,
        options: ClientOptions,
        cues: impl IntoIterator<Item = Cue>,
    ) -> (Client, Plan) {
        let plan = Plan::scripted(cues);
        let faulty = FaultyBackend::new(backend, plan.clone(), Actor::new(1));
        (self.client_on(faulty, options).await, plan)
    }

    /// A client that pauses around every call to the store.
    pub(crate) async fn hesitant(&self) -> Client {
        let hesitant = HesitantBackend::new(self.harness.backend());
        self.client_on(hesitant, self.unhurried()).await
    }

    /// A gate in front of the store under test.
    pub(crate) fn gate(&self) -> Gate {
        Gate::new(self.harness.backend())
    }
}

/// The result of a write that must have happened.
pub(crate) fn done(written: Result<Outcome<OpResult>>) -> OpResult {
    match written {
        Ok(Outcome::Committed(done)) => done,
        Ok(Outcome::Rejected(no)) => panic!("it was rejected: {no}"),
        Err(error) => panic!("it failed: {}", text_of(&error)),
    }
}

/// The error of a call that must fail.
pub(crate) fn failure<T: std::fmt::Debug>(result: Result<T>, what: &str) -> Error {
    match result {
        Ok(answer) => panic!("{what} was answered: {answer:?}"),
        Err(error) => error,
    }
}

/// The answer of a call that must succeed.
pub(crate) fn answer<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("it failed: {}", text_of(&error)))
}
