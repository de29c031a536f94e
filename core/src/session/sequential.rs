//! Sequential creates, which are found again when their answer was lost.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::mutant::{self, Mutant};
use crate::path::Path;
use crate::session::reach::{Reach, may_repeat};
use crate::session::removal::Trail;
use crate::session::write::Flight;
use crate::store::{Commit, Op, Outcome, Rejected, Txn, Why};

/// A transaction that is one sequential create, and how to find what it made.
pub(super) struct Sequential {
    txn: Txn,
    trail: Trail,
}

/// What to try next.
enum Next {
    Create,
    /// The create may have happened: look before anything else. With the refusal of a repetition,
    /// which the first one's node may be the reason for.
    Look(Option<Rejected>),
}

impl Sequential {
    pub(super) fn of(txn: &Txn, reach: &Reach) -> Option<Self> {
        let trail = Trail::of(txn, reach.store.session().id)?;
        Some(Self { txn: txn.clone(), trail })
    }
}

/// Creates, and goes on until it is known what became of it: at most one node comes of it, under
/// the one path that it was given.
pub(super) async fn create(
    reach: Reach,
    mut create: Sequential,
    flight: Arc<Flight>,
) -> Result<Outcome> {
    let mut delays = reach.delays();
    let mut next = Next::Create;
    let mut unsure = None;
    loop {
        let error = match next {
            Next::Create => match flight.send(reach.store.commit(create.txn.clone())).await {
                Ok(Outcome::Rejected(no)) if unsure.is_some() && no.why == Why::Exists => {
                    next = Next::Look(Some(no));
                    continue;
                }
                Ok(outcome) => return Ok(outcome),
                Err(error) if error.is_ambiguous() && error.kind() == ErrorKind::Unreachable => {
                    (unsure, next) = (Some(error), Next::Look(None));
                    if mutant::is(Mutant::BlindRepeat) {
                        (create, next) = (create.renamed(&reach)?, Next::Create);
                    }
                    continue;
                }
                Err(error) => error,
            },
            Next::Look(refused) => match (create.trail.find(&reach).await, refused) {
                (Ok(Some(done)), _) => {
                    return Ok(Outcome::Committed(Commit::new(None, vec![done], None)));
                }
                (Ok(None), Some(no)) => return Ok(Outcome::Rejected(no)),
                (Ok(None), None) => {
                    next = Next::Create;
                    Error::new(ErrorKind::Unreachable, "commit").because("the answer was lost")
                }
                (Err(error), refused) => {
                    next = Next::Look(refused);
                    error
                }
            },
        };
        let delay = if may_repeat(&error) && !flight.is_abandoned() { delays.next() } else { None };
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
            if !flight.is_abandoned() {
                continue;
            }
        }
        return Err(if unsure.is_some() { error.with_unknown_effect() } else { error });
    }
}

impl Sequential {
    /// The same create under a name that the store has not heard of: a mistake.
    fn renamed(self, reach: &Reach) -> Result<Self> {
        let mut txn = self.txn;
        if let Some(Op::Create { path, .. }) = txn.ops.first_mut() {
            *path = Path::new(&format!("{path}{}-", reach.tuning.chance.id()))?;
        }
        Ok(Self { txn, trail: self.trail })
    }
}
