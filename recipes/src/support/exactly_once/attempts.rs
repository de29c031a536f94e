//! [`CommitAttempts`]: one transaction, sent again while its answer is lost.

use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::retry::{Delays, Retry};
use synod_core::session::Session;
use synod_core::store::{Commit, Outcome, Rejected, Stat, Txn};

/// The attempts to commit a transaction that contains the write of a write id.
pub(crate) struct CommitAttempts<'a> {
    session: &'a Session,
    delays: Delays,
    in_doubt: bool,
}

/// The reply to one attempt.
pub(crate) enum CommitReply {
    /// The transaction was applied: with the stat of the write id, and the results of the other
    /// operations.
    Applied(Option<Stat>, Commit),
    /// The write id has another version than the expected one, or is gone.
    WriteIdChanged,
    /// Another operation was rejected. Its index does not count the write of the write id.
    Rejected(Rejected),
    /// The answer was lost: the transaction can be sent again.
    Unanswered(Error),
    /// The transaction cannot be sent again in this session.
    Failed(Error),
}

impl CommitReply {
    /// Returns `true` if the reply does not show the effect.
    #[cfg(feature = "mutants")]
    pub(super) fn is_failure(&self) -> bool {
        matches!(self, Self::Unanswered(_) | Self::Failed(_))
    }
}

impl<'a> CommitAttempts<'a> {
    pub(crate) fn new(session: &'a Session, limit: &Retry) -> Self {
        Self { session, delays: limit.delays(session.random()), in_doubt: false }
    }

    /// Returns `true` if an attempt had no answer: it may have been applied, or may be later.
    pub(crate) fn in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Sends the transaction once.
    pub(crate) async fn send(&mut self, txn: &Txn) -> CommitReply {
        let error = match self.session.commit(txn.clone()).await {
            Ok(Outcome::Committed(mut commit)) => {
                let id = commit.results.drain(..commit.results.len().min(1)).next();
                return CommitReply::Applied(id.and_then(|done| done.stat), commit);
            }
            Ok(Outcome::Rejected(no)) if no.index == 0 => return CommitReply::WriteIdChanged,
            Ok(Outcome::Rejected(no)) => {
                let Rejected { index, path, reason, look, .. } = no;
                return CommitReply::Rejected(
                    Rejected::new(index - 1, path, reason).with_look(look),
                );
            }
            Err(error) => error,
        };
        self.in_doubt |= error.has_unknown_effect();
        match error.kind() {
            ErrorKind::Unreachable if self.in_doubt => CommitReply::Unanswered(error),
            _ => CommitReply::Failed(error),
        }
    }

    /// Waits before the next attempt. Returns the error, with an unknown effect, at the limit.
    pub(crate) async fn wait(&mut self, error: Error) -> Result<()> {
        let Some(delay) = self.delays.next() else { return Err(error.with_unknown_effect()) };
        sleep(delay).await;
        Ok(())
    }
}
