//! Transactions that are applied exactly once, even if a request is sent again because its answer
//! was lost: one protocol for values, transactions, queues, and nodes with a time to live.
//!
//! A *write id* is a node of one sender. Its data is the number of the last transaction that was
//! committed with it. Each transaction sets its write id to the next number, and expects the
//! current version of the node ([`WriteId::stamp`]).
//!
//! - **A transaction is applied at most once, however often it is sent.** The first request that
//!   is applied changes the version that all requests expect.
//! - **The write id resolves unknown effects.** After a lost answer its number shows whether the
//!   transaction was applied ([`WriteVerdict`]).
//! - **A transaction that was not applied never will be.** Either its write id is made void, so
//!   that a delayed request is rejected, or another version that the request expects will never
//!   exist again.
//! - **A write id has one transaction in flight.** Two transactions that expect the version of one
//!   node would exclude each other, so concurrent transactions have several write ids
//!   ([`WriteIds`]).
//!
//! Recipes differ in the write id, and in their reaction to a session that is lost before the
//! answer:
//!
//! | recipe | write id | after the loss of the session |
//! |---|---|---|
//! | a single value | ephemeral, below the value, shared by the changes of a batch | the next session writes only if the value is the one that the batch was to replace: the old request and the new one exclude each other |
//! | [`Transaction`](crate::transaction::Transaction), a node with a time to live | ephemeral, in a directory | the write id decides; if it went with its session, [`Evidence`] may prove that nothing was applied |
//! | queues | persistent, in a directory | the write id decides: nobody else knows what a dropped call took |
//!
//! If nothing shows the effect, the call fails with an unknown effect.
//!
//! A persistent write id has the date of its last write. A day later, consumers of the queue remove
//! the write ids of killed processes, by version ([`old_write_ids`]); if the process is still
//! alive, it creates a new one.

use synod_core::client::Client;
use synod_core::error::{ErrorKind, Result};
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::Txn;

use crate::mutant::mistake;
use crate::support::exactly_once::attempts::{CommitAttempts, CommitReply};
use crate::support::exactly_once::settling::{Evidence, Sent, Settling};
use crate::support::exactly_once::write_id::{WriteId, WriteIds, without_effect};

pub(crate) mod attempts;
pub(crate) mod old_write_ids;
pub(crate) mod settling;
pub(crate) mod write_id;
pub(crate) mod writes;

/// A sender of the transactions of one session.
pub(crate) struct ExactlyOnce<'a> {
    pub(crate) client: &'a Client,
    pub(crate) write_ids: &'a WriteIds,
    pub(crate) session: &'a Session,
    pub(crate) evidence: &'a dyn Evidence,
    /// The limit for retries of an unanswered transaction.
    pub(crate) limit: Retry,
}

impl ExactlyOnce<'_> {
    /// Sends a transaction until its effect is known or the limit is reached.
    pub(crate) async fn send(&self, txn: Txn) -> Result<Sent> {
        let (doing, session) = (self.write_ids.doing(), self.session);
        let id = self.write_ids.take(self.client, session).await;
        let id = id.map_err(|error| without_effect(error, doing))?;
        if let Some(sent) = self.send_with(id, txn.clone()).await? {
            return Ok(sent);
        }
        // Another client removed the write id: its process may have been idle for a day.
        let id = self.write_ids.create(self.client, session).await;
        let id = id.map_err(|error| without_effect(error, doing))?;
        Ok(self.send_with(id, txn).await?.unwrap_or(Sent::Lost))
    }

    /// Sends a transaction with this write id. `None` if it was not applied because the write id
    /// is gone.
    async fn send_with(&self, mut id: WriteId, txn: Txn) -> Result<Option<Sent>> {
        let Self { client, write_ids, session, evidence, ref limit } = *self;
        let (txn, number) = id.stamp(txn);
        let mut attempts = CommitAttempts::new(session, limit);
        let cause = loop {
            let reply = attempts.send(&txn).await;
            mistake!(TransactionRunsAgain: if attempts.in_doubt() && reply.is_failure() {
                return Ok(None);
            });
            match reply {
                CommitReply::Applied(stat, commit) => {
                    id.record_write(stat);
                    if id.is_known() {
                        write_ids.give_back(id);
                    }
                    return Ok(Some(Sent::Applied(Some(commit))));
                }
                CommitReply::Unanswered(error) => attempts.wait(error).await?,
                // An earlier request was applied, or another operation failed and may succeed
                // later.
                CommitReply::WriteIdChanged | CommitReply::Rejected(_) if attempts.in_doubt() => {
                    break None;
                }
                CommitReply::Failed(error) if attempts.in_doubt() => break Some(error),
                CommitReply::WriteIdChanged => return Ok(None),
                CommitReply::Rejected(no) => {
                    write_ids.give_back(id);
                    return Ok(Some(Sent::Rejected(no)));
                }
                CommitReply::Failed(error) => {
                    write_ids.give_back(id);
                    return match error.kind() {
                        ErrorKind::SessionLost => Ok(Some(Sent::Lost)),
                        _ => Err(error),
                    };
                }
            }
        };
        let (id, doing) = (&id, write_ids.doing());
        let settling = Settling { client, id, number: &number, evidence, doing, limit };
        settling.settle(cause).await.map(Some)
    }
}
