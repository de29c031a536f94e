//! One session of a client, [`Session`], for a caller that requires that several operations belong
//! to the same session.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::{Error, ErrorKind, Result};
use crate::layer::namespace::Namespaced;
use crate::local::Locals;
use crate::mutant::mistake;
use crate::path::Path;
use crate::random::Random;
use crate::session::call_context::{CallContext, Tuning};
use crate::session::deadline::Deadline;
use crate::session::removal::OwnNode;
use crate::session::session_state::{SessionState, over};
use crate::session::session_task::{HANDING_OVER, Job, SessionTask};
use crate::session::write::Write;
use crate::store::{
    Lifetime, OpResult, Outcome, Query, Revision, SessionEnd, SessionHandover, SessionInfo, Stat,
    Status, Store, Txn, View, Watch,
};
use crate::task;

pub(crate) mod call_context;
pub(crate) mod deadline;
mod flight;
mod node_guard;
pub(crate) mod once;
mod removal;
mod requests;
mod sequential;
pub(crate) mod session_state;
mod session_task;
mod write;

#[cfg(test)]
pub(crate) mod script;
#[cfg(test)]
mod service_tests;
#[cfg(test)]
mod tests;

pub use node_guard::NodeGuard;
pub use requests::Requests;

/// One session on a store. A [`Client`](crate::client::Client) has a sequence of them.
///
/// Cheap to clone. Every node that was created on it with [`Lifetime::Session`] is removed when it
/// ends, and the next session does not inherit it. When its last clone is dropped it is closed in
/// the background.
///
/// # Retries
///
/// These calls are retried:
///
/// - Reads, if the store was unreachable.
/// - Writes that had no effect because the store was unreachable.
/// - A transaction with a sequential create, even if its effect is unknown: the session searches
///   for the node, and accepts it as the result of this call if this session owns it. If the node
///   does not exist, the transaction is sent again, with the same name. If the node was found by
///   this search, the follow-up query of the transaction stays unanswered, and the results of its
///   other operations have only their paths.
///
/// No other calls are retried: the caller has to resolve an error with an unknown effect, or use
/// [`Client::exactly_once`](crate::client::Client::exactly_once). One deadline applies to a call
/// and all its retries.
///
/// # Dropped calls
///
/// A write that is in flight completes in the background, even if its caller stopped waiting. If
/// the transaction only checks and creates, its nodes are then removed again. The effect of a set,
/// a delete or a mixed transaction stays. The node of a single sequential create is also removed if
/// the call fails with an unknown effect. Two effects cannot be undone: a plain create whose
/// *answer* was lost, and one of several creates if the store does not return the created nodes
/// (some ZooKeeper servers do not).
///
/// # Examples
///
/// Two ephemeral nodes that belong to the same session: they exist and disappear together.
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path;
/// use synod_core::store::{Lifetime, Txn};
///
/// # async fn example(client: Client) -> Result<()> {
/// let session = client.session().await?;
/// for name in [path!("/members/a"), path!("/leaders/a")] {
///     session.commit(Txn::new().create(name, "", Lifetime::Session)).await?.required()?;
/// }
/// println!("lost: {}", session.lost().await);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    context: CallContext,
    jobs: mpsc::UnboundedSender<Job>,
    locals: Arc<Locals>,
    claim: Option<Arc<SessionClaim>>,
}

/// The node by which this client claimed a session that another client handed over.
#[derive(Debug)]
pub(crate) struct SessionClaim {
    /// The path in the store itself.
    pub(crate) path: Path,
    pub(crate) stat: Stat,
}

impl Session {
    /// Starts a session on an opened store. It spawns the task of the session, so it needs a tokio
    /// runtime.
    pub(crate) fn start(store: Box<dyn Store>, tuning: Arc<Tuning>) -> Self {
        let store: Arc<dyn Store> = Arc::from(store);
        let state = Arc::new(SessionState::new(store.status()));
        let (jobs, queue) = mpsc::unbounded_channel();
        let grace = store.session().ttl.min(tuning.timeout / 2);
        let background =
            SessionTask { store: store.clone(), state: state.clone(), jobs: queue, grace };
        // The task ends by itself: when the session is over, or when its last clone is dropped.
        task::spawn(background.run()).let_go();
        let context = CallContext { store, state, tuning };
        Self { context, jobs, locals: Arc::default(), claim: None }
    }

    /// The same session, which was opened by another client and claimed by this one.
    pub(crate) fn resumed(self, claim: SessionClaim) -> Self {
        Self { claim: Some(Arc::new(claim)), ..self }
    }

    /// Returns the claim of a session that was resumed.
    pub(crate) fn claim(&self) -> Option<&SessionClaim> {
        self.claim.as_deref()
    }

    /// Returns the revision at which this client resumed the session, if another client opened it
    /// and [handed it over](crate::client::Client::hand_over). The nodes of the session with lower
    /// revisions were created by that client.
    pub fn resumed_at(&self) -> Option<Revision> {
        self.claim().map(|claim| claim.stat.modified)
    }

    /// Loses the session on this side and returns it for another client. In each case nothing
    /// believes in the session after the return.
    pub(crate) async fn hand_over(&self) -> Result<SessionHandover> {
        let (reply, mut answer) = oneshot::channel();
        let state = &self.context.state;
        state.request_hand_over(reply);
        match select(&mut answer, pin!(state.closed())).await {
            Either::Left((Ok(handed), _)) => handed,
            // The session ended before, so its task does not take the request.
            _ => answer.try_recv().unwrap_or_else(|_none| {
                Err(over(state.loss().unwrap_or(SessionEnd::Closed), HANDING_OVER))
            }),
        }
    }

    /// Returns this session with another root: with `/app` as its root, its path `/x` is `/app/x`
    /// for this session, and it cannot name a node outside. It counts as a clone of this session.
    pub fn namespace(&self, root: Path) -> Self {
        let store = Arc::new(Namespaced::new(self.context.store.clone(), root));
        Self { context: CallContext { store, ..self.context.clone() }, ..self.clone() }
    }

    /// Returns [`Session::namespace`], where the root may also be the root of the store.
    pub(crate) fn below(&self, root: &Path) -> Self {
        if root.is_root() { self.clone() } else { self.namespace(root.clone()) }
    }

    /// Returns the id of this session, its TTL, and the limits and features of its store.
    pub fn info(&self) -> &SessionInfo {
        self.context.store.session()
    }

    /// Returns a receiver of the state of the session, with the time until which it certainly
    /// lives. The receiver always holds the latest status; [`Status::Lost`] is final.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.context.state.subscribe()
    }

    /// Returns `true` if the session certainly lives at the server now. Only this proves that a
    /// lock is still held: it is `false` as soon as the session is no longer certain, before any
    /// receiver is notified.
    pub fn is_certain(&self) -> bool {
        self.context.state.is_certain()
    }

    /// Returns `true` if the session is over.
    pub fn is_lost(&self) -> bool {
        self.context.state.loss().is_some()
    }

    /// Waits until the session is over, and returns the reason.
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
    /// no answer in time, and the errors of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn read(&self, query: Query) -> Result<View> {
        self.read_by(query, self.deadline()).await
    }

    /// Answers a query, and reports every later change of the nodes that it covers.
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

    /// Applies a transaction, completely or not at all.
    ///
    /// # Errors
    ///
    /// As [`Session::read`]; [`Error::effect`] tells whether the transaction may have been applied
    /// nevertheless.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the nodes that a dropped call created are removed again, and its other effects
    /// stay. See the [type](Self).
    pub async fn commit(&self, txn: Txn) -> Result<Outcome> {
        self.commit_by(txn, self.deadline()).await
    }

    /// [`Session::commit`] that also returns whether one of its requests may still take effect.
    ///
    /// After [`Requests::Settled`] the outcome is the complete effect of the transaction. So the
    /// path of a node that it created and that is removed later may be given to another node: no
    /// late request creates the first one again.
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
    /// As [`Session::commit`], and [`ErrorKind::Invalid`] if the path is too long. If the effect is
    /// unknown, the node is searched for and removed in the background.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves no node.
    pub async fn create_sequential(
        &self,
        prefix: &Path,
        data: impl Into<Bytes>,
        lifetime: Lifetime,
    ) -> Result<Outcome<OpResult>> {
        let txn = Txn::new().create_sequential(self.unique(prefix)?, data, lifetime);
        only(self.commit(txn).await?)
    }

    /// Returns a path for a sequential create: `prefix` and a unique id.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the path is too long.
    pub fn unique(&self, prefix: &Path) -> Result<Path> {
        Ok(Path::new(&format!("{}{}-", prefix.as_str(), self.random().id()))?)
    }

    /// Removes the node that a create on this session created, if it still exists: exactly that
    /// incarnation, never a later node at its path. Retried, whatever the policy, until the node is
    /// gone.
    ///
    /// If the store rejects the removal for the TTL of the session, the removal ends. If the node
    /// is ephemeral, the session is then closed, and its end removes the node: a ticket that stays
    /// would block other clients while the session lives.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`] once the session is over, [`ErrorKind::Refused`] if the node is
    /// not ephemeral and has children. Otherwise the removal continues in the background, and the
    /// effect is unknown: [`ErrorKind::Unreachable`] if it takes too long, and the errors of the
    /// store.
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: the node is removed.
    pub async fn remove(&self, node: &OpResult) -> Result<()> {
        self.remove_tracked(node).await.map(drop)
    }

    /// [`Session::remove`] that also returns whether one of its requests may still take effect.
    ///
    /// [`Requests::Settled`] means that the first request removed the node. So no late request
    /// removes another node that is created at the same path from now on.
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
        let (own, context, deadline) = (OwnNode::of(node)?, self.context.clone(), self.deadline());
        let (reply, mut reported) = oneshot::channel();
        let removal = Box::pin(async move { own.remove_and_report(&context, reply).await });
        mistake!(RemovalNeedsItsCaller: {
            removal.await;
            return reported.await.unwrap_or_else(|_dropped| Err(over(SessionEnd::Closed, DOING)));
        });
        self.send(removal);
        let result = match select(&mut reported, pin!(self.context.stopped(deadline))).await {
            Either::Left((Ok(result), _)) => self.context.judge(result, DOING),
            Either::Left((Err(_dropped), _)) => Err(over(SessionEnd::Closed, DOING)),
            Either::Right((stop, _)) => Err(stop.error(DOING, deadline).with_unknown_effect()),
        };
        result.map_err(|error| error.at(&node.path))
    }

    /// Removes a node as [`Session::remove`], in the background. It does not block, so it may be
    /// called in a `Drop`.
    pub fn remove_in_background(&self, node: &OpResult) {
        let context = self.context.clone();
        match OwnNode::of(node) {
            Ok(own) => self.send(Box::pin(async move { own.remove(&context).await })),
            Err(error) => tracing::warn!(%error, "could not remove an abandoned node"),
        }
    }

    /// Removes a node that was created on this session, in the background: only the incarnation
    /// that was created at `created`. Retried until the node is gone or the session is over. It
    /// does not block, so it may be called in a `Drop`.
    pub fn remove_incarnation_in_background(&self, path: Path, created: Revision) {
        let (own, context) = (OwnNode::incarnation(path, created, false), self.context.clone());
        self.send(Box::pin(async move { own.remove(&context).await }));
    }

    /// Sets the data of a node in the background. Retried, whatever the policy, until the data is
    /// set, the node is gone or the session is over. It does not block, so it may be called in a
    /// `Drop`.
    ///
    /// It replaces any version of the node, and a request may take effect late. So use it only for
    /// a path that only this session writes to and that is not used again, such as that of a
    /// sequential node.
    pub fn rewrite(&self, path: Path, data: Bytes) {
        let context = self.context.clone();
        self.send(Box::pin(async move { write::rewrite(&context, path, data).await }));
    }

    /// Removes in the background the ephemeral node that this session may still create at `path`:
    /// that of a plain create whose effect is unknown. It continues until the session is over, as
    /// the request may arrive at any time. It does not block, so it may be called in a `Drop`.
    ///
    /// The path may be used again: a node is kept if `is_kept` returns `Some(true)` for the
    /// revision of its create. `None` means that this is not known yet, and `is_kept` is called
    /// again.
    pub fn remove_created_in_background(
        &self,
        path: Path,
        is_kept: impl Fn(Revision) -> Option<bool> + Send + Sync + 'static,
    ) {
        let context = self.context.clone();
        self.send(Box::pin(async move { removal::retract(&context, path, is_kept).await }));
    }

    /// Ends the session: when this returned without an error, its ephemeral nodes are gone. Every
    /// pending call fails. Closing twice is not an error; the second close queries the store again
    /// if it did not confirm the first one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`], with an unknown effect, if the store did not confirm in time
    /// that the session is over, even if the clock of this client ended it before: its ephemeral
    /// nodes are removed at the latest after its TTL.
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: the session is closed.
    pub async fn close(&self) -> Result<()> {
        const DOING: &str = "closing a session";
        self.context.state.end(SessionEnd::Closed);
        let (deadline, state) = (self.deadline(), &self.context.state);
        let closed = async {
            if state.is_closed() != Some(false) {
                return state.closed().await;
            }
            // The first close was not confirmed. The session may have ended in the meantime.
            let is_over = session_task::is_over(&self.context.store.close().await);
            if is_over {
                state.confirm();
            }
            is_over
        };
        match select(pin!(closed), pin!(deadline.passed())).await {
            Either::Left((true, _)) => Ok(()),
            Either::Left((false, _)) => Err(Error::new(ErrorKind::Unreachable, DOING)
                .because(
                    "the store did not confirm the end of the session; it expires after its TTL",
                )
                .with_unknown_effect()),
            Either::Right(_) => Err(deadline.error(DOING).with_unknown_effect()),
        }
    }

    /// Returns the value of this type that is stored with the session, created by `Default` at the
    /// first call. All clones of the session and its [namespaces](Self::namespace) share it; the
    /// next session of a client has another one.
    ///
    /// It is for the state of a recipe that belongs to one session. Use a private type, so that no
    /// other code uses the value. It is dropped with the last clone of the session, so it must not
    /// hold a clone itself.
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
        self.locals.get(&Path::root())
    }

    /// Returns the source of the ids and random choices of this session: the [source of its
    /// client's options](crate::client::ClientOptions::random). A simulator repeats a recipe
    /// exactly by its seed if the recipe takes all its random values from here.
    pub fn random(&self) -> &Random {
        &self.context.tuning.random
    }

    /// Returns the maximum duration of a call, including its retries:
    /// [`ClientOptions::timeout`](crate::client::ClientOptions::timeout). A recipe starts no
    /// retry later than that.
    pub fn timeout(&self) -> Duration {
        self.context.tuning.timeout
    }

    /// Returns the deadline of a call that starts now.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::within(self.timeout())
    }

    pub(crate) fn state(&self) -> &Arc<SessionState> {
        &self.context.state
    }

    pub(crate) async fn read_by(&self, query: Query, deadline: Deadline) -> Result<View> {
        let (store, call) = (&self.context.store, ("read", &query.path));
        let view = self.context.request(call, deadline, || store.read(query.clone())).await?;
        query.report(view.nodes.len(), 0);
        Ok(view)
    }

    pub(crate) async fn observe_by(
        &self,
        query: Query,
        deadline: Deadline,
    ) -> Result<(View, Watch)> {
        let (store, call) = (&self.context.store, ("watch", &query.path));
        let (view, watch) =
            self.context.request(call, deadline, || store.watch(query.clone())).await?;
        query.report(view.nodes.len(), 0);
        Ok((view, watch))
    }

    pub(crate) async fn commit_by(&self, txn: Txn, deadline: Deadline) -> Result<Outcome> {
        self.settle(txn, deadline).await.map(|(outcome, _requests)| outcome)
    }

    /// [`Session::commit_by`] whose created nodes stay if the caller is dropped.
    pub(crate) async fn keep_by(&self, txn: Txn, deadline: Deadline) -> Result<Outcome> {
        let path = txn.ops.first().map(|op| op.path().clone());
        let write = Write::new(&self.context, &self.jobs, txn).keep_created();
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
        match write.result(deadline).await {
            Ok(outcome) => Ok((outcome, Requests::settled_if(!flight.is_unsure()))),
            Err(error) => Err(match (error.path(), path) {
                (None, Some(path)) => error.at(&path),
                _ => error,
            }),
        }
    }

    fn send(&self, job: Job) {
        // If the task does not take the job, the session is over, and so are its nodes.
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

/// Returns the result of the only operation of a transaction.
pub(crate) fn only(outcome: Outcome) -> Result<Outcome<OpResult>> {
    match outcome {
        Outcome::Committed(commit) => {
            let done = commit.results.into_iter().next();
            mistake!(AnswerTrusted: assert!(done.is_some(), "a store reports every operation"));
            done.map(Outcome::Committed).ok_or_else(|| {
                Error::new(ErrorKind::Backend, "commit")
                    .because("the store did not report the result")
                    .with_unknown_effect()
            })
        }
        Outcome::Rejected(no) => Ok(Outcome::Rejected(no)),
    }
}
