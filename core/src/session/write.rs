//! [`Write`]: a transaction on its way, which goes on even if its caller is gone.

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
use crate::session::removal::{Own, Trail};
use crate::session::sequential::{Sequential, create};
use crate::session::session_state::over;
use crate::session::sweeper::Job;
use crate::store::{Commit, Expect, Lifetime, Op, Outcome, Txn};

const DOING: &str = "commit";

/// A transaction on its way.
///
/// Its call, retries included, is one future of its own. When its caller stops waiting for it, in whatever way,
/// and something may have been sent, the session's sweeper goes on with it, and then takes back what it
/// created.
pub(super) struct Write<'a> {
    context: &'a CallContext,
    jobs: &'a mpsc::UnboundedSender<Job>,
    flight: Arc<Flight>,
    call: Option<Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>>,
    undo: Undo,
}

/// How to take back what a transaction created.
#[derive(Clone, Default)]
struct Undo {
    /// The places of its creates; none if it does anything else too.
    creates: Vec<(usize, Made)>,
    /// How to find what it created if its effect is unknown.
    trail: Option<Trail>,
}

#[derive(Clone, Copy)]
struct Made {
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

    /// The same, except that what it creates stays even if its caller is gone.
    pub(super) fn kept(mut self) -> Self {
        mistake!(PutTakenBack: return self);
        self.undo = Undo::default();
        self
    }

    /// What is known of it, also when it has ended.
    pub(super) fn flight(&self) -> Arc<Flight> {
        self.flight.clone()
    }

    /// Waits for its end, no longer than the session lives and the deadline allows.
    pub(super) async fn ended(mut self, deadline: Deadline) -> Result<Outcome> {
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
                self.undo.keep_known();
                self.hand_over(self.undo.trail.is_some());
                Err(if unsure { error.with_unknown_effect() } else { error })
            }
        }
    }

    fn settle(&mut self, result: Result<Outcome>) -> Result<Outcome> {
        self.call = None;
        if let (Err(error), Some(trail)) = (&result, &self.undo.trail)
            && error.has_unknown_effect()
        {
            let repeated = self.flight.is_repeated();
            self.send(Box::pin(trail.clone().erase(repeated, self.context.clone())));
        }
        let repeated = self.flight.is_repeated();
        mistake!(BlindRepeat: let repeated = false);
        if let (Ok(Outcome::Committed(commit)), Some(trail)) = (&result, &self.undo.trail)
            && repeated
            && let Some(made) = commit.results.iter().find(|done| done.sequence.is_some())
            && let Some(stat) = made.stat
        {
            self.send(Box::pin(trail.clone().guard(stat.created, self.context.clone())));
        }
        let happened = matches!(result, Ok(Outcome::Committed(_)));
        self.context
            .judge(result, DOING)
            .map_err(|error| if happened { error.with_unknown_effect() } else { error })
    }

    /// Leaves the rest to the sweeper, if there is any.
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
        // If the sweeper does not take it, the session is closed already.
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
                Some((index, Made { sequential: *sequential, ephemeral }))
            }
            _ => None,
        });
        let creates: Vec<_> = creates.collect();
        // A transaction has one sequential create, or each of them is in a directory of its own, and none is looked for.
        let mut sequential = creates.iter().filter(|(_, made)| made.sequential);
        let trail = match (sequential.next(), sequential.next()) {
            (Some((only, _)), None) => Trail::of(&txn.ops[*only], context.store.session().id),
            _ => None,
        };
        Self { creates, trail }
    }

    /// Leaves plain nodes as they are: the caller can look for one, as the error says that it may have happened. A sequential one has
    /// a name that no caller knows, and is still taken back.
    fn keep_known(&mut self) {
        self.creates.retain(|(_, made)| made.sequential);
    }

    /// Takes back what the transaction did, now that it came to its end.
    async fn after(self, result: Result<Outcome>, flight: &Flight, context: CallContext) {
        if let Ok(Outcome::Committed(commit)) = result {
            for (index, made) in self.creates.into_iter().rev() {
                if let Some(own) = own(&commit, index, made) {
                    own.remove(&context).await;
                }
            }
        }
        mistake!(DroppedTicketForgotten: return);
        // Also when a repetition was answered: the first one may come late.
        if let Some(trail) = self.trail
            && flight.is_unsure()
        {
            trail.erase(flight.is_repeated(), context).await;
        }
    }
}

fn own(commit: &Commit, index: usize, made: Made) -> Option<Own> {
    let done = commit.results.get(index)?;
    // What a transaction creates was created when the transaction was committed.
    let created = done.stat.map(|stat| stat.created).or(commit.revision);
    let path = done.path.clone();
    Some(match (made.sequential, created) {
        (true, _) => Own::unique(path, made.ephemeral),
        (false, Some(created)) => Own::incarnation(path, created, made.ephemeral),
        (false, None) => return None,
    })
}

/// Commits anything, and repeats it as long as it certainly did not happen.
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

/// Replaces the data of a node, and does not give up before that is done, the node is gone, or the session is.
pub(super) async fn rewrite(context: &CallContext, path: Path, data: Bytes) {
    let mut delays = Retry::forever().delays(&context.tuning.random);
    while context.state.loss().is_none() {
        let set = Txn::new().set(path.clone(), data.clone(), Expect::Any);
        match context.store.commit(set).await {
            Err(error) if error.kind() == ErrorKind::SessionLost => return,
            // The same again does no harm, if it happened. Others may wait for it, so a refusal does not end it.
            Err(error) => tracing::debug!(%path, %error, "trying again to write to a node"),
            Ok(_) => return,
        }
        context.rest(delays.next().unwrap_or_default()).await;
    }
}
