//! A transaction in flight, which continues if its caller is dropped: [`Write`].

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{Either, select};
use tokio::sync::mpsc;

use crate::clock;
use crate::error::{ErrorKind, Result};
use crate::mutant::mistake;
use crate::path::Path;
use crate::retry::Retry;
use crate::session::call_context::{CallContext, may_repeat};
use crate::session::deadline::Deadline;
use crate::session::flight::Flight;
use crate::session::removal::{NodeSearch, OwnNode};
use crate::session::sequential::{Sequential, create};
use crate::session::session_state::over;
use crate::session::session_task::Job;
use crate::store::{Commit, Expect, Lifetime, Op, Outcome, Txn};

const DOING: &str = "commit";

/// A transaction in flight.
///
/// The call, retries included, is a separate future. When its caller stops waiting for any reason,
/// and a request may have been sent, the task of the session continues the call, and then removes
/// the nodes that it created.
pub(super) struct Write<'a> {
    context: &'a CallContext,
    jobs: &'a mpsc::UnboundedSender<Job>,
    flight: Arc<Flight>,
    call: Option<Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>>,
    undo: Undo,
}

/// The nodes to remove if the caller is dropped.
#[derive(Clone, Default)]
struct Undo {
    /// The indices of the creates; empty if the transaction has other writes too.
    creates: Vec<(usize, CreateKind)>,
    /// The search for the created node, if the effect is unknown.
    search: Option<NodeSearch>,
}

#[derive(Clone, Copy)]
struct CreateKind {
    sequential: bool,
    ephemeral: bool,
}

impl<'a> Write<'a> {
    pub(super) fn new(
        context: &'a CallContext,
        jobs: &'a mpsc::UnboundedSender<Job>,
        txn: Txn,
    ) -> Self {
        let flight = Arc::<Flight>::default();
        let undo = Undo::of(&txn, context);
        let (driven, seen) = (context.clone(), flight.clone());
        let call: Pin<Box<dyn Future<Output = _> + Send>> = match Sequential::of(&txn, context) {
            Some(sequential) => Box::pin(create(driven, sequential, seen)),
            None => Box::pin(commit(driven, txn, seen)),
        };
        Self { context, jobs, flight, call: Some(call), undo }
    }

    /// Keeps the created nodes even if the caller is dropped.
    pub(super) fn keep_created(mut self) -> Self {
        mistake!(PutTakenBack: return self);
        self.undo = Undo::default();
        self
    }

    /// Returns the state of the requests, even after the end of the write.
    pub(super) fn flight(&self) -> Arc<Flight> {
        self.flight.clone()
    }

    /// Waits for the result, until the session ends or the deadline passes.
    pub(super) async fn result(mut self, deadline: Deadline) -> Result<Outcome> {
        if let Some(why) = self.context.state.loss() {
            self.call = None;
            return Err(over(why, DOING));
        }
        let Some(call) = self.call.as_mut() else {
            return Err(over(crate::store::SessionEnd::Closed, DOING));
        };
        let result = match select(call, pin!(self.context.stopped(deadline))).await {
            Either::Left((result, _)) => Ok(result),
            Either::Right((stop, _)) => Err(stop),
        };
        match result {
            Ok(result) => self.settle(result),
            Err(stop) => {
                let error = stop.error(DOING, deadline);
                let unsure = self.flight.is_unsure();
                self.undo.keep_plain();
                self.hand_over(self.undo.search.is_some());
                Err(if unsure { error.with_unknown_effect() } else { error })
            }
        }
    }

    fn settle(&mut self, result: Result<Outcome>) -> Result<Outcome> {
        self.call = None;
        if let (Err(error), Some(search)) = (&result, &self.undo.search)
            && error.has_unknown_effect()
        {
            let repeated = self.flight.is_repeated();
            self.send(Box::pin(search.clone().remove_found(repeated, self.context.clone())));
        }
        let repeated = self.flight.is_repeated();
        mistake!(BlindRepeat: let repeated = false);
        if let (Ok(Outcome::Committed(commit)), Some(search)) = (&result, &self.undo.search)
            && repeated
            && let Some(created) = commit.results.iter().find(|done| done.sequence.is_some())
            && let Some(stat) = created.stat
        {
            self.send(Box::pin(search.clone().remove_late(stat.created, self.context.clone())));
        }
        let happened = matches!(result, Ok(Outcome::Committed(_)));
        self.context
            .judge(result, DOING)
            .map_err(|error| if happened { error.with_unknown_effect() } else { error })
    }

    /// Passes an unfinished call to the task of the session.
    fn hand_over(&mut self, retract: bool) {
        let Some(call) = self.call.take() else { return };
        if !self.flight.is_unsure() {
            return;
        }
        mistake!(DroppedWriteAborted: return);
        self.flight.abandon();
        mistake!(DroppedCreateStays: let retract = false);
        let undo = if retract { std::mem::take(&mut self.undo) } else { Undo::default() };
        let (context, flight) = (self.context.clone(), self.flight.clone());
        self.send(Box::pin(async move {
            let result = call.await;
            undo.after(result, &flight, context).await;
        }));
    }

    fn send(&self, job: Job) {
        // If the task does not take the job, the session is closed already.
        let _taken = self.jobs.send(job).is_ok();
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        self.hand_over(true);
    }
}

impl Undo {
    fn of(txn: &Txn, context: &CallContext) -> Self {
        if txn.ops.iter().any(|op| op.is_write() && !matches!(op, Op::Create { .. })) {
            return Self::default();
        }
        let creates = txn.ops.iter().enumerate().filter_map(|(index, op)| match op {
            Op::Create { lifetime, sequential, .. } if *lifetime != Lifetime::Container => {
                let ephemeral = *lifetime == Lifetime::Session;
                Some((index, CreateKind { sequential: *sequential, ephemeral }))
            }
            _ => None,
        });
        let creates: Vec<_> = creates.collect();
        // The search needs the only sequential create of the transaction. Several are in different
        // directories, and none is searched for.
        let mut sequential = creates.iter().filter(|(_, kind)| kind.sequential);
        let search = match (sequential.next(), sequential.next()) {
            (Some((only, _)), None) => NodeSearch::of(&txn.ops[*only], context.store.session().id),
            _ => None,
        };
        Self { creates, search }
    }

    /// Keeps plain nodes: the caller can read them, as the error tells that they may exist. No
    /// caller knows the name of a sequential node, so it is still removed.
    fn keep_plain(&mut self) {
        self.creates.retain(|(_, kind)| kind.sequential);
    }

    /// Removes the created nodes once the transaction has ended.
    async fn after(self, result: Result<Outcome>, flight: &Flight, context: CallContext) {
        if let Ok(Outcome::Committed(commit)) = result {
            for (index, kind) in self.creates.into_iter().rev() {
                if let Some(own) = own(&commit, index, kind) {
                    own.remove(&context).await;
                }
            }
        }
        mistake!(DroppedTicketForgotten: return);
        // Even if a retry was answered, the first request may be delayed.
        if let Some(search) = self.search
            && flight.is_unsure()
        {
            search.remove_found(flight.is_repeated(), context).await;
        }
    }
}

fn own(commit: &Commit, index: usize, kind: CreateKind) -> Option<OwnNode> {
    let done = commit.results.get(index)?;
    // The nodes were created at the revision of the commit.
    let created = done.stat.map(|stat| stat.created).or(commit.revision);
    let path = done.path.clone();
    Some(match (kind.sequential, created) {
        (true, _) => OwnNode::unique(path, kind.ephemeral),
        (false, Some(created)) => OwnNode::incarnation(path, created, kind.ephemeral),
        (false, None) => return None,
    })
}

/// Commits a transaction, and retries it while it had no effect.
async fn commit(context: CallContext, txn: Txn, flight: Arc<Flight>) -> Result<Outcome> {
    let mut delays = context.delays();
    loop {
        let error = match flight.send(context.store.commit(txn.clone())).await {
            Err(error) if may_repeat(&error) && !flight.is_abandoned() => error,
            result => return result,
        };
        match delays.next() {
            Some(delay) => clock::sleep(delay).await,
            None => return Err(error),
        }
    }
}

/// Replaces the data of a node, and continues until that succeeds, the node is gone, or the session
/// is over.
pub(super) async fn rewrite(context: &CallContext, path: Path, data: Bytes) {
    let mut delays = Retry::forever().delays(&context.tuning.random);
    while context.state.loss().is_none() {
        let set = Txn::new().set(path.clone(), data.clone(), Expect::Any);
        match context.store.commit(set).await {
            Err(error) if error.kind() == ErrorKind::SessionLost => return,
            // A retry is harmless if the write was applied. Other clients may wait for the write,
            // so a rejection does not end the retries.
            Err(error) => tracing::debug!(%path, %error, "retrying a write to a node"),
            Ok(_) => return,
        }
        context.rest(delays.next().unwrap_or_default()).await;
    }
}
