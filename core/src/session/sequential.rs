//! Sequential creates, whose node is searched for when the answer was lost.

use std::sync::Arc;

use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::session::call_context::{CallContext, may_repeat};
use crate::session::flight::Flight;
use crate::session::removal::NodeSearch;
use crate::store::{Commit, Expect, Op, OpResult, Outcome, Rejected, Txn};

/// A transaction with a sequential create, and the search for the created node: the transaction was
/// applied if, and only if, that node exists.
pub(super) struct Sequential {
    txn: Txn,
    /// The index of the create.
    index: usize,
    search: NodeSearch,
}

/// The next request.
enum Step {
    Create,
    /// Searches for the node, as the create may have been applied. With the rejection of a retry,
    /// of which the node of the first request may be the cause.
    Look(Option<Rejected>),
}

impl Sequential {
    /// Returns `None` if there is no such create; or if the transaction sets a node at an expected
    /// version: then the sender can determine by that node whether it was applied, and the name of
    /// the create need not be unique.
    pub(super) fn of(txn: &Txn, context: &CallContext) -> Option<Self> {
        if txn.ops.iter().any(is_compare_and_set) {
            return None;
        }
        let index = txn.ops.iter().position(Op::is_sequential)?;
        let search = NodeSearch::of(&txn.ops[index], context.store.session().id)?;
        Some(Self { txn: txn.clone(), index, search })
    }

    /// Returns the results of the transaction, given that its node was found.
    fn found(&self, node: OpResult) -> Commit {
        let mut done: Vec<_> =
            self.txn.ops.iter().map(|op| OpResult::new(op.path().clone())).collect();
        let revision = node.stat.map(|stat| stat.created);
        done[self.index] = node;
        Commit::new(revision, done, None)
    }
}

fn is_compare_and_set(op: &Op) -> bool {
    matches!(op, Op::Set { expect: Expect::Version(_), .. })
}

/// Creates the node, and continues until the effect is known: at most one node is created, at the
/// path that was passed.
pub(super) async fn create(
    context: CallContext,
    create: Sequential,
    flight: Arc<Flight>,
) -> Result<Outcome> {
    let mut delays = context.delays();
    let mut next = Step::Create;
    let mut unsure = None;
    loop {
        let error = match next {
            Step::Create => {
                let txn = create.txn.clone();
                mistake!(BlindRepeat: let txn = {
                    crate::mutant::session::renamed(txn, unsure.is_some(), &context.tuning.random)?
                });
                match flight.send(context.store.commit(txn)).await {
                    Ok(Outcome::Rejected(no)) if unsure.is_some() => {
                        next = Step::Look(Some(no));
                        continue;
                    }
                    Ok(outcome) => return Ok(outcome),
                    Err(error)
                        if error.has_unknown_effect() && error.kind() == ErrorKind::Unreachable =>
                    {
                        (unsure, next) = (Some(error), Step::Look(None));
                        mistake!(BlindRepeat: next = Step::Create);
                        continue;
                    }
                    Err(error) => error,
                }
            }
            Step::Look(refused) => match (create.search.find(&context).await, refused) {
                (Ok(Some(node)), _) => return Ok(Outcome::Committed(create.found(node))),
                (Ok(None), Some(no)) => return Ok(Outcome::Rejected(no)),
                (Ok(None), None) => {
                    next = Step::Create;
                    Error::new(ErrorKind::Unreachable, "commit").because("the answer was lost")
                }
                (Err(error), refused) => {
                    next = Step::Look(refused);
                    error
                }
            },
        };
        let delay = if may_repeat(&error) && !flight.is_abandoned() { delays.next() } else { None };
        if let Some(delay) = delay {
            clock::sleep(delay).await;
            if !flight.is_abandoned() {
                continue;
            }
        }
        return Err(if unsure.is_some() { error.with_unknown_effect() } else { error });
    }
}
