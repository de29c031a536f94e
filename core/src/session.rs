//! [`Session`]: one generation of a client, for a caller that has to know that two things depend on one
//! session.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::{Error, ErrorKind, Result};
use crate::layer::namespace::Namespaced;
use crate::mutant::mistake;
use crate::path::Path;
use crate::random::Random;
use crate::session::call_context::{CallContext, Tuning};
use crate::session::deadline::Deadline;
use crate::session::local::Locals;
use crate::session::removal::Own;
use crate::session::session_state::{SessionState, over};
use crate::session::sweeper::{Job, Sweeper};
use crate::session::write::Write;
use crate::store::{
    Lifetime, OpResult, Outcome, Query, Revision, SessionEnd, SessionInfo, Status, Store, Txn,
    View, Watch,
};
use crate::task;

pub(crate) mod call_context;
pub(crate) mod deadline;
mod flight;
mod local;
mod node_guard;
mod removal;
mod requests;
mod sequential;
pub(crate) mod session_state;
mod sweeper;
mod write;

#[cfg(test)]
pub(crate) mod script;
#[cfg(test)]
mod service_tests;
#[cfg(test)]
mod tests;

pub use node_guard::NodeGuard;
pub use requests::Requests;

/// One session on a store, as a [`Client`](crate::client::Client) has one after the other.
///
/// Cheap to clone. Everything that was made with [`Lifetime::Session`] on it goes when it ends, and
/// nothing of it carries over to the next. When its last clone is dropped it is closed in the
/// background.
///
/// # What is repeated
///
/// - Reads, when the store was unreachable.
/// - Writes that certainly did not happen because it was.
/// - A transaction with a sequential create, also when its effect is unknown: the session looks for the node,
///   and takes it for this call's if it is this session's; if it is not there, the transaction is sent again,
///   with the same name. When the node was found so, the look of the transaction is left unanswered, and the
///   results of its other operations have no more than their paths.
///
/// Nothing else: an error with an unknown effect is the caller's to resolve. One deadline covers a
/// call and all of its repetitions.
///
/// # What remains of a dropped call
///
/// A write that is on its way is driven to its end in the background, also when its caller no longer waits for
/// it. If the transaction only checks and creates, its nodes are then removed again. A set, a delete or a mixed
/// transaction stays done. The node of a single sequential create is removed too when the call fails with an
/// unknown effect. Two things cannot be undone: a plain create whose *answer* was lost, and one of several
/// creates if the store does not return what it made (some ZooKeeper servers do not).
#[derive(Clone)]
pub struct Session {
    context: CallContext,
    jobs: mpsc::UnboundedSender<Job>,
    locals: Arc<Locals>,
}

impl Session {
    /// A session over what a backend opened. It starts the session's one task, so it needs a
    /// tokio runtime.
    pub(crate) fn start(store: Box<dyn Store>, tuning: Arc<Tuning>) -> Self {
        let store: Arc<dyn Store> = Arc::from(store);
        let state = Arc::new(SessionState::new(store.status()));
        let (jobs, queue) = mpsc::unbounded_channel();
        let grace = store.session().ttl.min(tuning.timeout / 2);
        let sweeper = Sweeper { store: store.clone(), state: state.clone(), jobs: queue, grace };
        // It ends by itself: when the session is over, or when its last clone is dropped.
        task::spawn(sweeper.run()).let_go();
        Self { context: CallContext { store, state, tuning }, jobs, locals: Arc::default() }
    }

    /// This session as seen from below `root`: below `/app`, what it calls `/x` is `/app/x` here, and it cannot
    /// name anything outside. It counts as a clone of this one.
    pub fn namespace(&self, root: Path) -> Self {
        let store = Arc::new(Namespaced::new(self.context.store.clone(), root));
        Self { context: CallContext { store, ..self.context.clone() }, ..self.clone() }
    }

    /// [`Session::namespace`], where the root may also be the store's own.
    pub(crate) fn below(&self, root: &Path) -> Self {
        if root.is_root() { self.clone() } else { self.namespace(root.clone()) }
    }

    /// The id of this session, its time to live, and what its store can and cannot do.
    pub fn info(&self) -> &SessionInfo {
        self.context.store.session()
    }

    /// Whether the session lives, and until when for certain. The receiver always holds the
    /// latest; [`Status::Lost`] is never taken back.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.context.state.subscribe()
    }

    /// Whether the session certainly lives at the server now. This, and nothing else, is what "I still hold it"
    /// means: it is false as soon as the session is no longer certain, before any receiver is notified.
    pub fn is_certain(&self) -> bool {
        self.context.state.is_certain()
    }

    /// Whether the session is over for good.
    pub fn is_lost(&self) -> bool {
        self.context.state.loss().is_some()
    }

    /// Waits until the session is over.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn lost(&self) -> SessionEnd {
        self.context.state.lost().await
    }

    /// Answers a query.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`] once the session is over, [`ErrorKind::Unreachable`] if there was
    /// no answer in time, and what the store says.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call read or did not.
    pub async fn read(&self, query: Query) -> Result<View> {
        self.read_by(query, self.deadline()).await
    }

    /// Answers a query, and reports every change of what it covers from then on.
    ///
    /// # Errors
    ///
    /// As [`Session::read`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call observes nothing.
    pub async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        self.observe_by(query, self.deadline()).await
    }

    /// Applies a transaction, whole or not at all.
    ///
    /// # Errors
    ///
    /// As [`Session::read`]; [`Error::effect`] says whether it may have happened all the same.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what a dropped call created is removed again, and what else it did stays done.
    /// See the [type](Self).
    pub async fn commit(&self, txn: Txn) -> Result<Outcome> {
        self.commit_by(txn, self.deadline()).await
    }

    /// [`Session::commit`]; and also whether one of its requests may still take effect.
    ///
    /// After [`Requests::Settled`] the outcome is all that the transaction ever does. So the path of a node that it
    /// created and that is removed later may be given to another node: no late request creates the first one again.
    ///
    /// # Errors
    ///
    /// As [`Session::commit`].
    ///
    /// # Cancel safety
    ///
    /// As [`Session::commit`].
    pub async fn commit_tracked(&self, txn: Txn) -> Result<(Outcome, Requests)> {
        self.settle(txn, self.deadline()).await
    }

    /// Creates a sequential node at `prefix` and a unique id.
    ///
    /// # Errors
    ///
    /// As [`Session::commit`], and [`ErrorKind::Invalid`] if the path gets too long. If the effect is
    /// unknown, the node is looked for and removed in the background.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing remains of a dropped call.
    pub async fn create_sequential(
        &self,
        prefix: &Path,
        data: impl Into<Bytes>,
        lifetime: Lifetime,
    ) -> Result<Outcome<OpResult>> {
        let txn = Txn::new().create_sequential(self.unique(prefix)?, data, lifetime);
        only(self.commit(txn).await?)
    }

    /// A path for a sequential create: `prefix` and a unique id.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it gets too long.
    pub fn unique(&self, prefix: &Path) -> Result<Path> {
        Ok(Path::new(&format!("{}{}-", prefix.as_str(), self.random().id()))?)
    }

    /// Removes the node that a create on this session made, if it is still there: exactly that incarnation,
    /// never a later node at its path. Repeated, whatever the policy says, until it is gone.
    ///
    /// If the store goes on refusing for the session's time to live, the removal ends. If the node is ephemeral the
    /// session is then closed, and the node goes with it: a ticket that stays would block others for as long as the
    /// session lives.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`] once the session is over, [`ErrorKind::Refused`] if the node is not ephemeral and there
    /// is something below it. Otherwise the removal goes on in the background, and the effect is unknown:
    /// [`ErrorKind::Unreachable`] if it takes too long, and what the store says.
    ///
    /// # Cancel safety
    ///
    /// A dropped call goes on in the background: the node is removed.
    pub async fn remove(&self, node: &OpResult) -> Result<()> {
        self.remove_tracked(node).await.map(drop)
    }

    /// [`Session::remove`]; and also whether one of its requests may still take effect.
    ///
    /// [`Requests::Settled`] says that the first request removed the node. So no late request removes another node
    /// that is made at the same path from now on.
    ///
    /// # Errors
    ///
    /// As [`Session::remove`].
    ///
    /// # Cancel safety
    ///
    /// As [`Session::remove`].
    pub async fn remove_tracked(&self, node: &OpResult) -> Result<Requests> {
        const DOING: &str = "removing a node";
        let (own, context, deadline) = (Own::of(node)?, self.context.clone(), self.deadline());
        let (tell, mut told) = oneshot::channel();
        let removal = Box::pin(async move { own.tell_until_gone(&context, tell).await });
        mistake!(RemovalNeedsItsCaller: {
            removal.await;
            return told.await.unwrap_or_else(|_unheard| Err(over(SessionEnd::Closed, DOING)));
        });
        self.send(removal);
        let result = match select(&mut told, pin!(self.context.stopped(deadline))).await {
            Either::Left((Ok(result), _)) => self.context.judge(result, DOING),
            Either::Left((Err(_unheard), _)) => Err(over(SessionEnd::Closed, DOING)),
            Either::Right((stop, _)) => Err(stop.error(DOING, deadline).with_unknown_effect()),
        };
        result.map_err(|error| error.at(&node.path))
    }

    /// [`Session::remove`] in the background. Costs the caller nothing, so it may be called in a
    /// `Drop`.
    pub fn remove_in_background(&self, node: &OpResult) {
        let context = self.context.clone();
        match Own::of(node) {
            Ok(own) => self.send(Box::pin(async move { own.remove(&context).await })),
            Err(error) => tracing::warn!(%error, "could not remove a node that was given up"),
        }
    }

    /// Removes a node that was made on this session, in the background: only the incarnation that
    /// was `created` then. Repeated until it is gone or the session is over. Costs the caller
    /// nothing, so it may be called in a `Drop`.
    pub fn remove_incarnation_in_background(&self, path: Path, created: Revision) {
        let (own, context) = (Own::incarnation(path, created, false), self.context.clone());
        self.send(Box::pin(async move { own.remove(&context).await }));
    }

    /// Sets the data of a node in the background. Repeated, whatever the policy says, until it is done, the node is
    /// gone or the session is over. Costs the caller nothing, so it may be called in a `Drop`.
    ///
    /// Any version of the node is replaced, and a request may take effect late: it is for a path that only this
    /// session writes to and that is not used again, such as that of a sequential node.
    pub fn rewrite(&self, path: Path, data: Bytes) {
        let context = self.context.clone();
        self.send(Box::pin(async move { write::rewrite(&context, path, data).await }));
    }

    /// Removes in the background what this session makes at `path` after all: the ephemeral node of a plain create whose
    /// effect is unknown. It goes on until the session is over, as the request may arrive at any time. Costs the caller
    /// nothing, so it may be called in a `Drop`.
    ///
    /// The path may be used again: a node is left alone if `is_kept` returns true for the revision of its create. It returns
    /// `None` if that is not known yet, and is then asked again.
    pub fn remove_created_in_background(
        &self,
        path: Path,
        is_kept: impl Fn(Revision) -> Option<bool> + Send + Sync + 'static,
    ) {
        let context = self.context.clone();
        self.send(Box::pin(async move { removal::retract(&context, path, is_kept).await }));
    }

    /// Ends the session: when this returned without an error, its ephemeral nodes are gone. Every
    /// pending call fails. Closing twice is no error, and asks the store again if it did not say so the first time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`], with an unknown effect, if the store did not say in time that the session is over,
    /// also when it was lost before by this side's clock: its ephemeral nodes are gone, or go when its time to live
    /// is over.
    ///
    /// # Cancel safety
    ///
    /// A dropped call goes on in the background: the session is closed.
    pub async fn close(&self) -> Result<()> {
        const DOING: &str = "closing a session";
        self.context.state.end(SessionEnd::Closed);
        let (deadline, state) = (self.deadline(), &self.context.state);
        let closed = async {
            if state.is_closed() != Some(false) {
                return state.closed().await;
            }
            // It was asked before, and could not say so. The session may have ended since.
            let is_over = sweeper::is_over(&self.context.store.close().await);
            if is_over {
                state.confirm();
            }
            is_over
        };
        match select(pin!(closed), pin!(deadline.passed())).await {
            Either::Left((true, _)) => Ok(()),
            Either::Left((false, _)) => Err(Error::new(ErrorKind::Unreachable, DOING)
                .because("the store did not confirm the end of the session; it expires after its time to live")
                .with_unknown_effect()),
            Either::Right(_) => Err(deadline.error(DOING).with_unknown_effect()),
        }
    }

    /// The value of this type that is kept for the session: the default, when it is first asked for. All clones of
    /// the session and its [namespaces](Self::namespace) share it; the next session of a client has another one.
    ///
    /// It is for what a recipe remembers of its own work in one session. Take a type of your own, so that nobody
    /// else uses the value. It is dropped with the last clone of the session, so it must not hold a clone itself.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::atomic::{AtomicU64, Ordering};
    /// # use synod_core::session::Session;
    /// /// How many locks were taken in a session.
    /// #[derive(Default)]
    /// struct Taken(AtomicU64);
    ///
    /// # fn example(session: Session) {
    /// session.local::<Taken>().0.fetch_add(1, Ordering::Relaxed);
    /// # }
    /// ```
    pub fn local<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.locals.get()
    }

    /// Where the ids and random choices of this session come from: the [source of its client's
    /// options](crate::client::ClientOptions::random). A recipe that takes all of its own from here is repeated
    /// exactly by a simulator that repeats the seed.
    pub fn random(&self) -> &Random {
        &self.context.tuning.random
    }

    /// How long a call may take, with its repetitions: [`ClientOptions::timeout`](crate::client::ClientOptions::timeout).
    /// A recipe that repeats what it asked for begins no repetition later.
    pub fn timeout(&self) -> Duration {
        self.context.tuning.timeout
    }

    /// The deadline of a call that starts now.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::within(self.timeout())
    }

    pub(crate) fn state(&self) -> &Arc<SessionState> {
        &self.context.state
    }

    pub(crate) async fn read_by(&self, query: Query, deadline: Deadline) -> Result<View> {
        let (store, call) = (&self.context.store, ("read", &query.path));
        let view = self.context.ask(call, deadline, || store.read(query.clone())).await?;
        query.report(view.nodes.len(), 0);
        Ok(view)
    }

    pub(crate) async fn observe_by(
        &self,
        query: Query,
        deadline: Deadline,
    ) -> Result<(View, Watch)> {
        let (store, call) = (&self.context.store, ("watch", &query.path));
        let (view, watch) = self.context.ask(call, deadline, || store.watch(query.clone())).await?;
        query.report(view.nodes.len(), 0);
        Ok((view, watch))
    }

    pub(crate) async fn commit_by(&self, txn: Txn, deadline: Deadline) -> Result<Outcome> {
        self.settle(txn, deadline).await.map(|(outcome, _requests)| outcome)
    }

    /// [`Session::commit_by`], except that what it creates stays even if its caller is gone.
    pub(crate) async fn keep_by(&self, txn: Txn, deadline: Deadline) -> Result<Outcome> {
        let path = txn.ops.first().map(|op| op.path().clone());
        let write = Write::new(&self.context, &self.jobs, txn).kept();
        self.finish(write, path, deadline).await.map(|(outcome, _requests)| outcome)
    }

    /// [`Session::commit_tracked`], with a deadline.
    async fn settle(&self, txn: Txn, deadline: Deadline) -> Result<(Outcome, Requests)> {
        let path = txn.ops.first().map(|op| op.path().clone());
        let write = Write::new(&self.context, &self.jobs, txn);
        self.finish(write, path, deadline).await
    }

    async fn finish(
        &self,
        write: Write<'_>,
        path: Option<Path>,
        deadline: Deadline,
    ) -> Result<(Outcome, Requests)> {
        let flight = write.flight();
        mistake!(PathUntold: let path = None);
        match write.ended(deadline).await {
            Ok(outcome) => Ok((outcome, Requests::settled_if(!flight.is_unsure()))),
            Err(error) => Err(match (error.path(), path) {
                (None, Some(path)) => error.at(&path),
                _ => error,
            }),
        }
    }

    fn send(&self, job: Job) {
        // If the sweeper does not take it, the session is over, and its nodes with it.
        let _taken = self.jobs.send(job).is_ok();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.context.state.now();
        f.debug_struct("Session")
            .field("id", &self.info().id)
            .field("status", &status)
            .finish_non_exhaustive()
    }
}

/// What the only operation of a transaction did.
pub(crate) fn only(outcome: Outcome) -> Result<Outcome<OpResult>> {
    match outcome {
        Outcome::Committed(commit) => {
            let done = commit.results.into_iter().next();
            mistake!(AnswerTrusted: assert!(done.is_some(), "a store reports every operation"));
            done.map(Outcome::Committed).ok_or_else(|| {
                Error::new(ErrorKind::Backend, "commit")
                    .because("the store did not report what it did")
                    .with_unknown_effect()
            })
        }
        Outcome::Rejected(no) => Ok(Outcome::Rejected(no)),
    }
}
