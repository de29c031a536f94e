//! [`Settling`]: determines by its write id whether a transaction was applied.

use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::retry::Retry;
use synod_core::store::{Commit, Expect, Query, Rejected, Revision, Stat, Txn, View};

use crate::mutant::mistake;
use crate::support::exactly_once::write_id::{WriteId, WriteVerdict};
use crate::support::retry::LimitedBackoff;

/// The result of sending a transaction.
pub(crate) enum Sent {
    /// The transaction was applied. Has its results, unless the answer was lost.
    Applied(Option<Commit>),
    Rejected(Rejected),
    /// The transaction was not applied, and never will be: the session or the write id is lost.
    Lost,
}

/// Nodes, apart from the write id, that show the effect of a transaction.
pub(crate) trait Evidence: Sync {
    /// The query for the nodes that may prove that the transaction was not applied.
    fn whole(&self) -> Option<Query>;

    /// Returns `true` if a view of these nodes proves that the transaction was not applied.
    fn is_untouched(&self, view: &View) -> bool;

    /// Records the revision at which the transaction was applied, if its answer was lost and its
    /// write id shows the revision.
    fn record_applied(&self, _at: Revision) {}
}

/// Returns `true` if nothing was applied because the session was lost first.
pub(crate) fn is_only_lost(error: &Error) -> bool {
    error.kind() == ErrorKind::SessionLost && !error.has_unknown_effect()
}

/// A transaction that may have been applied.
pub(super) struct Settling<'a> {
    pub(super) client: &'a Client,
    pub(super) id: &'a WriteId,
    pub(super) number: &'a [u8],
    pub(super) evidence: &'a dyn Evidence,
    /// The action that error messages name.
    pub(super) doing: &'static str,
    /// The limit for retries of the reads.
    pub(super) limit: &'a Retry,
}

impl Settling<'_> {
    /// Determines whether the transaction was applied, in any session. If it was not, the write id
    /// is made void, so that the transaction never can be.
    pub(super) async fn settle(&self, cause: Option<Error>) -> Result<Sent> {
        let mut backoff = LimitedBackoff::new(self.client, self.limit);
        mistake!(LossEndsChange: return Err(unknown(cause, self.doing)));
        loop {
            let view = match self.look().await {
                Ok(view) => view,
                Err(error) => {
                    backoff.wait(error).await?;
                    continue;
                }
            };
            let node = view.nodes.iter().find(|node| node.path == *self.id.path());
            match WriteVerdict::of(node, self.number) {
                WriteVerdict::Applied(stat) => {
                    if let Some(stat) = stat {
                        self.evidence.record_applied(stat.modified);
                    }
                    return Ok(Sent::Applied(None));
                }
                WriteVerdict::Void => return self.unapplied(cause),
                WriteVerdict::Gone if self.evidence.is_untouched(&view) => {
                    return self.unapplied(cause);
                }
                WriteVerdict::Gone => return Err(unknown(cause, self.doing)),
                WriteVerdict::Open(stat) => {
                    if let Err(error) = self.make_void(stat).await {
                        backoff.wait(error).await?;
                    }
                }
            }
        }
    }

    /// The result of a transaction that was not applied, and never will be.
    ///
    /// A cause other than the loss of the session or the server is returned to the caller.
    fn unapplied(&self, cause: Option<Error>) -> Result<Sent> {
        match cause {
            Some(cause) if !cause.kind().is_outage() => {
                let reason = "it was not applied";
                Err(Error::new(cause.kind(), self.doing).because(reason).caused_by(cause))
            }
            _ => Ok(Sent::Lost),
        }
    }

    /// Reads the write id, and the nodes that may prove that nothing was applied.
    async fn look(&self) -> Result<View> {
        let session = self.client.session().await?;
        let whole = self.evidence.whole();
        let more = whole.iter().flat_map(Query::nodes_asked).take(Query::MAX_NODES - 1).cloned();
        session.read(Query::nodes(self.id.path(), more)).await
    }

    /// Makes the write id void, unless a transaction has changed it since it was read.
    async fn make_void(&self, stat: Option<Stat>) -> Result<()> {
        let Some(stat) = stat else { return Ok(()) };
        let session = self.client.session().await?;
        let txn = Txn::new().set(self.id.path(), self.id.void(), Expect::Version(stat.version));
        session.commit(txn).await.map(drop)
    }
}

/// The error of a transaction with an unknown effect whose write id was removed by another client.
pub(crate) fn write_id_removed(doing: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, doing)
        .because("another client removed the node that says whether it was applied")
        .with_unknown_effect()
}

/// The error of a transaction whose write id is gone, while nothing proves that it was not applied.
fn unknown(cause: Option<Error>, doing: &'static str) -> Error {
    let Some(cause) = cause else { return write_id_removed(doing) };
    Error::new(ErrorKind::SessionLost, doing)
        .because("the session was lost before the answer, and what it writes was written since")
        .with_unknown_effect()
        .caused_by(cause)
}
