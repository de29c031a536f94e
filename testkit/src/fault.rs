//! A store that fails as networks and servers do, under the control of a test: [`Faulty`].
//!
//! It wraps any store, so that code can be tested against lost replies and late writes on real
//! servers too. A [`Plan`] decides the faults: randomly, by a seed, or by a script of [`Cue`]s; the
//! plan keeps a log of the faults that [`Fired`].
//!
//! Each [`Site`] is a kind of fault. Each call is finally applied or not, and its caller receives
//! an error that is true in both cases:
//!
//! | site | happens | the caller gets |
//! |---|---|---|
//! | [`Denied`](Site::Denied), [`Broken`](Site::Broken), [`Unsent`](Site::Unsent) | no | an error with no effect |
//! | [`RequestLost`](Site::RequestLost) | no | `Unreachable`, of a write with unknown effect |
//! | [`ReplyLost`](Site::ReplyLost) | yes | the same |
//! | [`AppliedLate`](Site::AppliedLate), commits only | later | the same |
//! | [`RequestHeld`](Site::RequestHeld) | no | the same, after the session's time to live |
//! | [`ReplyHeld`](Site::ReplyHeld) | yes | the same, after the session's time to live |
//! | [`RequestSlow`](Site::RequestSlow), [`ReplySlow`](Site::ReplySlow) | yes | the answer, a while later |
//!
//! - A commit or a close takes its planned course, even if its caller drops the call: a sent
//!   request cannot be recalled. It ends with the store at the latest.
//! - A late write is applied at the latest before a later [`Freshness::Latest`] read of its session
//!   is answered, or a follow-up query: a caller that does not find its write there may send it
//!   again.
//! - No call takes longer than the TTL of the session, and none is held once the session is lost.
//! - Invalid calls are rejected first.
//! - An opening whose reply is lost leaves a session without an owner.
//! - Heartbeats and the events of a watch belong to the underlying store: this layer does not see
//!   the former, and does not change the latter.
//!
//! # Examples
//!
//! The reply to the next create is lost: the node exists, but the caller does not know it.
//!
//! ```
//! # use std::sync::Arc;
//! # use synod_testkit::fault::{Actor, Cue, Faulty, Plan, Site, Verb};
//! # use synod_core::store::{Lifetime, Store, Txn};
//! # async fn example(store: Arc<dyn Store>) -> Result<(), Box<dyn std::error::Error>> {
//! let plan = Plan::scripted([Cue::new(Site::ReplyLost).of(Verb::Create)]);
//! let faulty = Faulty::new(store, plan.clone(), Actor::new(1));
//!
//! let txn = Txn::new().create("/a".parse::<synod_core::path::Path>()?, "", Lifetime::Session);
//! assert!(faulty.commit(txn).await.is_err_and(|error| error.has_unknown_effect()));
//! assert_eq!(plan.pending(), 0);
//! # Ok(())
//! # }
//! ```

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, pending, select};
use synod_core::clock::{self, sleep};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{
    Backend, Freshness, Op, Outcome, Query, SessionInfo, SessionOptions, Status, Store, Txn, View,
    Watch,
};
use synod_core::task::{self, Task};
use tokio::sync::{Notify, oneshot, watch};

use crate::fault::plan::Course;
use crate::fault::script::Asked;

mod plan;
mod script;
mod site;

pub use crate::choice::Actor;
pub use crate::fault::plan::{Faults, Fired, Plan};
pub use crate::fault::script::{Cue, Verb};
pub use crate::fault::site::{Choice, Site, Spot};

/// A session whose calls fail as planned: see the [module](self).
#[derive(Debug)]
pub struct Faulty {
    store: Arc<dyn Store>,
    plan: Plan,
    actor: Actor,
    /// The writes that were sent.
    sent: Mutex<Vec<Task>>,
    late: Arc<LateWrites>,
}

/// A backend that opens sessions whose calls fail as planned. The opening may fail, too.
#[derive(Debug)]
pub struct FaultyBackend<B> {
    backend: B,
    plan: Plan,
    actor: Actor,
}

impl Faulty {
    /// Creates a store whose calls on `store` fail as planned for this actor.
    pub fn new(store: Arc<dyn Store>, plan: Plan, actor: Actor) -> Self {
        Self { store, plan, actor, sent: Mutex::default(), late: Arc::default() }
    }

    fn course(&self, call: &Asked<'_>) -> Course {
        self.plan.decide(self.actor, call)
    }

    fn request(&self, doing: &'static str, path: Option<&Path>) -> Request {
        Request::new(doing, path, self.store.session().ttl)
    }

    /// Sends a write, which continues even if its caller stops waiting.
    async fn send<T: Send + 'static>(
        &self,
        course: Course,
        request: Request,
        write: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (sender, result) = oneshot::channel();
        let (way, late) = (request.clone(), self.late.clone());
        let task = task::spawn(async move {
            let mut write = Box::pin(write);
            let answer = course.carry(&way, write.as_mut()).await;
            // Recorded before the caller has its answer, so that a later read of the caller finds
            // it.
            let turn = (course.fate == Some(Site::AppliedLate)).then(|| late.add());
            let _gone = sender.send(answer).is_err();
            if let Some(turn) = turn {
                turn.after(course.lateness).await;
                let happened = write.await.is_ok();
                tracing::debug!(path = way.path(), happened, "a late write came to its end");
            }
        });
        {
            let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            sent.retain(|task| !task.is_finished());
            sent.push(task);
        }
        result.await.unwrap_or_else(|_panicked| {
            Err(request.error(ErrorKind::Backend).because("the store below panicked"))
        })
    }

    /// Fails a call at the maximum time of a call.
    async fn bounded<T>(
        &self,
        course: Course,
        request: &Request,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        if course.is_plain() && self.late.is_empty() {
            return call.await;
        }
        let (lost, late) = (lost(self.status()), sleep(request.ttl));
        let (lost, late) = (pin!(lost), pin!(late));
        match select(pin!(call), select(lost, late)).await {
            Either::Left((answer, _)) => answer,
            Either::Right((Either::Left(_), _)) => Err(request.error(ErrorKind::SessionLost)),
            Either::Right((Either::Right(_), _)) => Err(request.held()),
        }
    }
}

impl<B: Backend> FaultyBackend<B> {
    /// Creates a backend whose sessions on `backend` have calls that fail as planned for this
    /// actor.
    pub fn new(backend: B, plan: Plan, actor: Actor) -> Self {
        Self { backend, plan, actor }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for FaultyBackend<B> {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let course = self.plan.decide(self.actor, &Asked::bare(Verb::Open));
        let request = Request::new("opening a session", None, options.ttl);
        let opening = course.carry(&request, self.backend.open(options));
        let store = if course.is_plain() {
            opening.await
        } else {
            let given_up = |_late| Err(request.held());
            clock::timeout(options.ttl, opening).await.unwrap_or_else(given_up)
        };
        Ok(Box::new(Faulty::new(Arc::from(store?), self.plan.clone(), self.actor)))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Faulty {
    fn session(&self) -> &SessionInfo {
        self.store.session()
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.store.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        query.validate()?;
        let course = self.course(&Asked::query(Verb::Read, &query));
        let request = self.request("read", Some(&query.path));
        let call = course.carry(&request, async {
            self.late.before(query.freshness).await;
            self.store.read(query).await
        });
        self.bounded(course, &request, call).await
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        query.validate_observed()?;
        let course = self.course(&Asked::query(Verb::Watch, &query));
        let request = self.request("watch", Some(&query.path));
        let call = course.carry(&request, async {
            self.late.before(query.freshness).await;
            self.store.watch(query).await
        });
        self.bounded(course, &request, call).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        txn.validate(&self.store.session().limits)?;
        let course = self.course(&Asked::commit(&txn));
        let request = self.request("commit", txn.ops.first().map(Op::path)).write();
        let (store, late) = (self.store.clone(), self.late.clone());
        // The follow-up query of a late write is returned to no caller.
        let looks = txn.look.is_some() && course.fate != Some(Site::AppliedLate);
        let call = self.send(course, request.clone(), async move {
            if looks {
                late.before(Freshness::Latest).await;
            }
            store.commit(txn).await
        });
        self.bounded(course, &request, call).await
    }

    async fn close(&self) -> Result<()> {
        let course = self.course(&Asked::bare(Verb::Close));
        let request = self.request("close", None).write();
        let store = self.store.clone();
        let call = self.send(course, request.clone(), async move { store.close().await });
        if course.is_plain() {
            return call.await;
        }
        // A close ends the session, so the loss of the session does not end the close.
        let given_up = |_late| Err(request.held());
        clock::timeout(request.ttl, call).await.unwrap_or_else(given_up)
    }
}

/// The writes that will still be applied although their callers received an error.
#[derive(Debug, Default)]
struct LateWrites(Mutex<Vec<Late>>);

#[derive(Debug)]
struct Late {
    hurry: Arc<Notify>,
    /// Closed when the write was applied.
    happened: watch::Receiver<()>,
}

/// The trigger of a late write, which has been applied when this is dropped.
struct LateTurn {
    hurry: Arc<Notify>,
    _happening: watch::Sender<()>,
}

impl LateWrites {
    fn add(&self) -> LateTurn {
        let (hurry, (happening, happened)) = (Arc::new(Notify::new()), watch::channel(()));
        let mut writes = self.pending();
        writes.push(Late { hurry: hurry.clone(), happened });
        LateTurn { hurry, _happening: happening }
    }

    /// Applies all late writes now, if the next answer must reflect them: a caller that does not
    /// find its write in that answer sends it again.
    async fn before(&self, freshness: Freshness) {
        if freshness != Freshness::Latest {
            return;
        }
        let waits: Vec<_> = self
            .pending()
            .iter()
            .map(|late| {
                late.hurry.notify_one();
                late.happened.clone()
            })
            .collect();
        for mut happened in waits {
            // Nothing is ever sent: the channel only closes.
            let _closed = happened.changed().await.is_err();
        }
    }

    fn is_empty(&self) -> bool {
        self.pending().is_empty()
    }

    fn pending(&self) -> MutexGuard<'_, Vec<Late>> {
        let mut writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writes.retain(|late| late.happened.has_changed().is_ok());
        writes
    }
}

impl LateTurn {
    async fn after(&self, lateness: Duration) {
        let _first = select(pin!(sleep(lateness)), pin!(self.hurry.notified())).await;
    }
}

impl Course {
    /// Runs a call on its planned course.
    async fn carry<T>(self, request: &Request, call: impl Future<Output = Result<T>>) -> Result<T> {
        pause(self.before).await;
        let answer = match self.fate {
            None => call.await,
            Some(Site::RequestHeld) => request.hold().await,
            Some(Site::ReplyHeld) => {
                drop(call.await);
                request.hold().await
            }
            Some(Site::ReplyLost) => {
                drop(call.await);
                Err(request.failed(Site::ReplyLost))
            }
            Some(site) => Err(request.failed(site)),
        };
        pause(self.after).await;
        answer
    }
}

/// The properties of a call that its error contains.
#[derive(Clone, Debug)]
struct Request {
    doing: &'static str,
    path: Option<Path>,
    write: bool,
    /// The maximum duration of the call.
    ttl: Duration,
}

impl Request {
    fn new(doing: &'static str, path: Option<&Path>, ttl: Duration) -> Self {
        Self { doing, path: path.cloned(), write: false, ttl }
    }

    /// Marks the call as a write.
    fn write(mut self) -> Self {
        self.write = true;
        self
    }

    /// Waits for the maximum duration of the call, without an answer.
    async fn hold<T>(&self) -> Result<T> {
        sleep(self.ttl).await;
        Err(self.held())
    }

    fn path(&self) -> Option<tracing::field::DisplayValue<&Path>> {
        self.path.as_ref().map(tracing::field::display)
    }

    /// Returns the error of a call that failed at this site.
    fn failed(&self, site: Site) -> Error {
        // The caller of a lost call cannot know its course, so the error does not tell it.
        let error = match site {
            Site::Denied => self.certain(ErrorKind::Denied),
            Site::Broken => self.certain(ErrorKind::Backend),
            Site::Unsent => self.certain(ErrorKind::Unreachable),
            _ => self.error(ErrorKind::Unreachable),
        };
        error.because("a fault that was planned")
    }

    fn held(&self) -> Error {
        self.error(ErrorKind::Unreachable).because("no answer within the time to live")
    }

    /// Returns an error after a request that may have been sent.
    fn error(&self, kind: ErrorKind) -> Error {
        let error = self.certain(kind);
        if self.write { error.with_unknown_effect() } else { error }
    }

    fn certain(&self, kind: ErrorKind) -> Error {
        let error = Error::new(kind, self.doing);
        match &self.path {
            Some(path) => error.at(path),
            None => error,
        }
    }
}

async fn pause(pause: Duration) {
    if !pause.is_zero() {
        sleep(pause).await;
    }
}

/// Waits until the session is lost.
async fn lost(mut status: watch::Receiver<Status>) {
    if status.wait_for(Status::is_lost).await.is_err() {
        pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
