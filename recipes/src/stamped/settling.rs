//! [`Settling`]: finds out whether a transaction was applied.

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::retry::{Delays, Retry};
use synod_core::store::{Expect, Node, Query, Txn, View};

use crate::mutant::mistake;
use crate::stamped::mark::{CommitMark, is_void, void};
use crate::stamped::sent::{Evidence, Sent};

/// A transaction that may have been applied.
pub(super) struct Settling<'a> {
    pub(super) client: &'a Client,
    pub(super) mark: &'a CommitMark,
    pub(super) number: &'a [u8],
    pub(super) evidence: &'a dyn Evidence,
    /// What it fails while doing.
    pub(super) doing: &'static str,
    /// How long it is asked for.
    pub(super) limit: &'a Retry,
}

impl Settling<'_> {
    /// Finds out by the mark whether the transaction was applied, in whatever session. If not, the mark is made void, so
    /// that it never will be.
    pub(super) async fn settle(&self, cause: Option<Error>) -> Result<Sent> {
        let mut tries = Tries::new(self.client, self.limit);
        mistake!(LossEndsChange: return Err(unknown(cause, self.doing)));
        loop {
            let view = match self.look().await {
                Ok(view) => view,
                Err(error) => {
                    tries.rest(error).await?;
                    continue;
                }
            };
            let Some(mark) = view.nodes.iter().find(|node| node.path == *self.mark.path()) else {
                return if self.evidence.is_untouched(&view) {
                    self.unapplied(cause)
                } else {
                    Err(unknown(cause, self.doing))
                };
            };
            if mark.data == self.number {
                mark.stat.into_iter().for_each(|stat| self.evidence.was_applied(stat.modified));
                return Ok(Sent::Applied(None));
            }
            if is_void(&mark.data) {
                return self.unapplied(cause);
            }
            if let Err(error) = self.void(mark).await {
                tries.rest(error).await?;
            }
        }
    }

    /// The result of a transaction that was not applied, and never will be. An answer that says more than that the session or the
    /// server was lost is what a caller wants to know.
    fn unapplied(&self, cause: Option<Error>) -> Result<Sent> {
        match cause {
            Some(cause) if !cause.kind().is_outage() => {
                let why = "it was not applied";
                Err(Error::new(cause.kind(), self.doing).because(why).caused_by(cause))
            }
            _ => Ok(Sent::Lost),
        }
    }

    /// The mark, and what the transaction was to write.
    async fn look(&self) -> Result<View> {
        let session = self.client.session().await?;
        let whole = self.evidence.whole();
        let more = whole.iter().flat_map(Query::nodes_asked).take(Query::MAX_NODES - 1).cloned();
        session.read(Query::nodes(self.mark.path(), more)).await
    }

    /// Makes the mark void if no transaction has changed it yet.
    async fn void(&self, mark: &Node) -> Result<()> {
        let Some(stat) = mark.stat else { return Ok(()) };
        let session = self.client.session().await?;
        let txn = Txn::new().set(self.mark.path(), void(), Expect::Version(stat.version));
        session.commit(txn).await.map(drop)
    }
}

/// The tries to find out about a transaction.
struct Tries<'a> {
    client: &'a Client,
    delays: Delays,
}

impl<'a> Tries<'a> {
    fn new(client: &'a Client, limit: &Retry) -> Self {
        Self { client, delays: limit.delays(client.random()) }
    }

    /// Waits before another try, if one may succeed, and the limit is not reached.
    async fn rest(&mut self, error: Error) -> Result<()> {
        let delay = self.delays.next().filter(|_| self.client.is_transient(&error));
        let Some(delay) = delay else { return Err(error.with_unknown_effect()) };
        sleep(delay).await;
        Ok(())
    }
}

/// The error of a transaction whose mark is gone, while nothing proves that it was not applied.
fn unknown(cause: Option<Error>, doing: &'static str) -> Error {
    let Some(cause) = cause else {
        return Error::new(ErrorKind::Corrupt, doing)
            .because("another client removed the node that says whether it was applied")
            .with_unknown_effect();
    };
    Error::new(ErrorKind::SessionLost, doing)
        .because("the session was lost before the answer, and what it writes was written since")
        .with_unknown_effect()
        .caused_by(cause)
}
