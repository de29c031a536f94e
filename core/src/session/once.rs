//! Writes that are applied exactly once, even if an answer is lost: [`OnceWrite`].
//!
//! Each write is a transaction whose first operation creates an ephemeral node with a unique name,
//! its *write id*.
//!
//! - **A write is applied at most once, however often it is sent.** The second request that arrives
//!   is rejected, as the write id exists. So the write id stays until the session ends if an answer
//!   was lost: a request that is delayed for so long is rejected, too. No store applies a request
//!   with an ephemeral node after the session has ended.
//! - **The write id resolves an unknown effect.** If it exists, the write was applied.
//! - **A write that was not applied never will be.** If a retry is rejected for another reason, an
//!   earlier request may still be in flight. The write id is then created alone, with other data:
//!   it voids the write.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::clock::sleep;
use crate::error::{Error, ErrorKind, Result};
use crate::path::Path;
use crate::session::call_context::Stop;
use crate::session::deadline::Deadline;
use crate::session::{Session, only};
use crate::store::{Commit, Lifetime, Op, OpResult, Outcome, Query, RejectReason, Rejected, Txn};

const DOING: &str = "writing exactly once";

/// The data of a write id whose write is no longer applied.
const VOID: &str = "void";

/// A write with its write id.
pub(crate) struct OnceWrite<'a> {
    session: &'a Session,
    /// The path of the write id.
    id: Path,
    op: Op,
    /// `true` if a created node stays even if the caller is dropped.
    keep: bool,
    deadline: Deadline,
}

/// The effect of a write, as its write id shows.
enum OnceFate {
    Applied(OpResult),
    Void,
}

impl<'a> OnceWrite<'a> {
    /// Creates a write whose write id is in this directory.
    pub(crate) fn new(
        session: &'a Session,
        directory: &Path,
        op: Op,
        deadline: Deadline,
    ) -> Result<Self> {
        let id = directory.join(&session.random().id())?;
        Ok(Self { session, id, op, keep: false, deadline })
    }

    /// Keeps the created node even if the caller is dropped.
    pub(crate) fn keep_created(self) -> Self {
        Self { keep: true, ..self }
    }

    /// Sends the write until its effect is known.
    pub(crate) async fn send(self) -> Result<Outcome<OpResult>> {
        let mut delays = self.session.context.delays();
        let (mut doubt, mut rejected) = (false, None);
        loop {
            let error = match self.attempt(doubt, &mut rejected).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            doubt |= error.has_unknown_effect();
            // If the effect is known, `request` has already retried as often as the policy permits.
            let repeats = doubt && error.kind() == ErrorKind::Unreachable;
            let Some(delay) = repeats.then(|| delays.next()).flatten() else {
                return Err(self.failed(error, doubt));
            };
            if let Some(stop) = self.rest(delay).await {
                let stopped = stop.error(DOING, self.deadline).caused_by(error);
                return Err(self.failed(stopped, doubt));
            }
        }
    }

    /// Waits for the delay. Returns the reason if the call ends first.
    async fn rest(&self, delay: Duration) -> Option<Stop> {
        let stopped = self.session.context.stopped(self.deadline);
        match select(pin!(sleep(delay)), pin!(stopped)).await {
            Either::Left(_) => None,
            Either::Right((stop, _)) => Some(stop),
        }
    }

    /// Sends one request, and determines the effect of all requests so far. `doubt`: an earlier
    /// request may have been applied, or may still be. `rejected`: the last rejection of the write
    /// itself.
    async fn attempt(
        &self,
        doubt: bool,
        rejected: &mut Option<Rejected>,
    ) -> Result<Outcome<OpResult>> {
        let no = match self.request().await? {
            Outcome::Committed(commit) => return Ok(self.committed(commit, doubt)),
            Outcome::Rejected(no) => no,
        };
        let fate = match (no.index, no.reason) {
            (0, RejectReason::Exists) => self.fate().await?,
            (0, reason) => {
                return Err(Error::new(ErrorKind::Refused, DOING)
                    .because(format!("no write id can be created at {}: {reason}", self.id)));
            }
            _ => {
                *rejected = Some(Rejected { index: 0, ..no });
                if doubt { self.void().await? } else { OnceFate::Void }
            }
        };
        match (fate, rejected.take()) {
            (OnceFate::Applied(done), _) => Ok(Outcome::Committed(done)),
            (OnceFate::Void, Some(no)) => Ok(Outcome::Rejected(no)),
            (OnceFate::Void, None) => Err(self.lost_id()),
        }
    }

    /// Sends one request, and retries it while it had no effect.
    async fn request(&self) -> Result<Outcome<Commit>> {
        let txn = Txn::new().create(&self.id, "", Lifetime::Session).op(self.op.clone());
        if self.keep {
            self.session.keep_by(txn, self.deadline).await
        } else {
            self.session.commit_by(txn, self.deadline).await
        }
    }

    fn committed(&self, commit: Commit, doubt: bool) -> Outcome<OpResult> {
        let mut results = commit.results.into_iter();
        let id = results.next();
        // After a lost answer it stays: a request may be delayed.
        if let Some(id) = id
            && !doubt
        {
            self.session.remove_in_background(&id);
        }
        let path = || self.op.path().clone();
        Outcome::Committed(results.next().unwrap_or_else(|| OpResult::new(path())))
    }

    /// Creates the write id alone, so that no request in flight can be applied.
    async fn void(&self) -> Result<OnceFate> {
        let txn = Txn::new().create(&self.id, VOID, Lifetime::Session);
        match only(self.session.keep_by(txn, self.deadline).await?)? {
            Outcome::Committed(_) => Ok(OnceFate::Void),
            Outcome::Rejected(no) if no.reason == RejectReason::Exists => self.fate().await,
            Outcome::Rejected(_) => Err(self.lost_id()),
        }
    }

    /// Reads the write id, and the node that was written.
    async fn fate(&self) -> Result<OnceFate> {
        let path = self.op.path();
        let both = Query::nodes(&self.id, [path.clone()]);
        let view = self.session.read_by(both, self.deadline).await;
        let view = view.map_err(Error::with_unknown_effect)?;
        let find = |path: &Path| view.nodes.iter().find(|node| node.path == *path);
        let Some(id) = find(&self.id) else { return Err(self.lost_id()) };
        if id.data == VOID {
            return Ok(OnceFate::Void);
        }
        let done = OpResult::new(path.clone());
        let written = id.stat.map(|stat| stat.created);
        // The stat is that of the write only if no other write followed it.
        let stat = find(path).and_then(|node| node.stat);
        Ok(OnceFate::Applied(match stat.filter(|stat| Some(stat.modified) == written) {
            Some(stat) => done.with_stat(stat),
            None => done,
        }))
    }

    /// Returns the error for a write id that another client removed.
    fn lost_id(&self) -> Error {
        Error::new(ErrorKind::Backend, DOING)
            .at(&self.id)
            .because("the write id was removed, so the effect of the write cannot be determined")
            .with_unknown_effect()
    }

    fn failed(&self, error: Error, doubt: bool) -> Error {
        let error = error.at(self.op.path());
        if doubt { error.with_unknown_effect() } else { error }
    }
}
