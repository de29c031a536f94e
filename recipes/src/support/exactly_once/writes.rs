//! [`ExactlyOnceWrites`]: the transactions of a queue.

use std::time::Duration;

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{Commit, Outcome, Query, Rejected, Txn, View};

use crate::support::exactly_once::ExactlyOnce;
use crate::support::exactly_once::old_write_ids::OldWriteIds;
use crate::support::exactly_once::settling::{Evidence, Sent, is_only_lost};
use crate::support::exactly_once::write_id::WriteIds;
use crate::support::retry::OutageBackoff;

/// A sender of the transactions of one recipe value. Each transaction is applied at most once, and
/// its effect is determined.
pub(crate) struct ExactlyOnceWrites {
    client: Client,
    write_ids: WriteIds,
}

/// The node that a transaction deletes. While the node exists, the transaction was not applied.
/// This shows the effect if another client has removed the write id.
struct StillThere<'a>(Option<&'a Path>);

impl Evidence for StillThere<'_> {
    fn whole(&self) -> Option<Query> {
        self.0.map(Query::node)
    }

    fn is_untouched(&self, view: &View) -> bool {
        self.0.is_some_and(|path| view.nodes.iter().any(|node| node.path == *path))
    }
}

impl ExactlyOnceWrites {
    pub(crate) fn new(client: &Client, write_ids: WriteIds) -> Self {
        Self { client: client.clone(), write_ids }
    }

    /// The write ids of processes that have ended.
    pub(crate) fn old_write_ids(&self) -> OldWriteIds {
        OldWriteIds::of(&self.client, &self.write_ids)
    }

    /// Sends a transaction in this session until its effect is known, or until the time limit of a
    /// call. `needed` is a node that the transaction deletes.
    pub(crate) async fn send(
        &self,
        session: &Session,
        txn: Txn,
        needed: Option<&Path>,
    ) -> Result<Sent> {
        let limit = Retry::until_elapsed(session.timeout());
        self.send_within(limit, session, txn, needed).await
    }

    /// Sends a transaction as [`ExactlyOnceWrites::send`] does, but without a limit, across outages
    /// and sessions.
    pub(crate) async fn send_without_limit(
        &self,
        session: &Session,
        txn: Txn,
        needed: Option<&Path>,
    ) -> Result<Sent> {
        self.send_within(Retry::forever(), session, txn, needed).await
    }

    /// Sends a transaction as [`ExactlyOnceWrites::send`] does, with another limit.
    pub(crate) async fn send_within(
        &self,
        limit: Retry,
        session: &Session,
        txn: Txn,
        needed: Option<&Path>,
    ) -> Result<Sent> {
        let (client, write_ids, evidence) = (&self.client, &self.write_ids, &StillThere(needed));
        ExactlyOnce { client, write_ids, session, evidence, limit }.send(txn).await
    }

    /// Sends a transaction in one session after the other, until it is applied or rejected, or
    /// until the time limit of a call. Returns its results, unless the answer was lost.
    pub(crate) async fn commit(&self, txn: &Txn) -> Result<Outcome<Option<Commit>>> {
        self.commit_within(Retry::until_elapsed, txn).await
    }

    /// Sends a transaction as [`ExactlyOnceWrites::commit`] does, but does not give up while its
    /// effect is unknown.
    pub(crate) async fn commit_without_limit(&self, txn: &Txn) -> Result<Outcome<Option<Commit>>> {
        self.commit_within(|_limit| Retry::forever(), txn).await
    }

    async fn commit_within(
        &self,
        limit: impl Fn(Duration) -> Retry,
        txn: &Txn,
    ) -> Result<Outcome<Option<Commit>>> {
        let mut delays = None;
        loop {
            let session = self.client.session().await?;
            match self.send_within(limit(session.timeout()), &session, txn.clone(), None).await {
                Ok(Sent::Applied(commit)) => return Ok(Outcome::Committed(commit)),
                Ok(Sent::Rejected(no)) => return Ok(Outcome::Rejected(no)),
                Ok(Sent::Lost) => {}
                Err(error) if is_only_lost(&error) => {}
                Err(error) => return Err(error),
            }
            let delays = delays
                .get_or_insert_with(|| limit(self.client.timeout()).delays(self.client.random()));
            let Some(delay) = delays.next() else {
                return Err(Error::new(ErrorKind::Unreachable, self.write_ids.doing())
                    .at(self.write_ids.dir())
                    .because("its sessions were lost, one after the other"));
            };
            sleep(delay).await;
        }
    }

    /// Puts back an item whose caller is gone. The transaction is retried after every outage, in
    /// every later session, and while the store has no space or denies the write, until the client
    /// is closed. `instead` returns the transaction that follows a rejection, if there is one.
    pub(crate) async fn put_back(
        &self,
        path: &Path,
        mut txn: Txn,
        mut instead: impl FnMut(&Rejected) -> Option<Txn>,
    ) {
        let mut backoff = OutageBackoff::new(&self.client);
        loop {
            let error = match self.commit_without_limit(&txn).await {
                Ok(Outcome::Committed(_)) => return,
                Ok(Outcome::Rejected(no)) => match instead(&no) {
                    Some(other) => {
                        txn = other;
                        continue;
                    }
                    None => self.refused(&no),
                },
                Err(error) => error,
            };
            let is_unknown = error.has_unknown_effect();
            let waited = if is_unknown { Err(error) } else { backoff.wait_out(error).await };
            if let Err(error) = waited {
                return tracing::warn!(%path, %error, "an item could not be put back");
            }
        }
    }

    /// The error of a transaction that the store never accepts.
    pub(crate) fn refused(&self, no: &Rejected) -> Error {
        Error::new(ErrorKind::Refused, self.write_ids.doing())
            .at(&no.path)
            .because(no.reason.to_string())
    }
}
