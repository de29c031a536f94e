//! [`StampedWrites`]: the transactions of a recipe that decide by single nodes.

use std::time::Duration;

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{Commit, Outcome, Query, Rejected, Txn, View};

use crate::stamped::Stamped;
use crate::stamped::mark::Marks;
use crate::stamped::old_marks::OldMarks;
use crate::stamped::sent::{Evidence, Sent, is_only_lost};

/// Sends the transactions of one recipe value. Each is applied once, and its effect is found out.
pub(crate) struct StampedWrites {
    client: Client,
    marks: Marks,
}

/// A transaction that needs a node of this path deletes it. While the node is there, the transaction was not applied. It is asked
/// where another client removed the mark.
struct StillThere<'a>(Option<&'a Path>);

impl Evidence for StillThere<'_> {
    fn whole(&self) -> Option<Query> {
        self.0.map(Query::node)
    }

    fn is_untouched(&self, view: &View) -> bool {
        self.0.is_some_and(|path| view.nodes.iter().any(|node| node.path == *path))
    }
}

impl StampedWrites {
    pub(crate) fn new(client: &Client, marks: Marks) -> Self {
        Self { client: client.clone(), marks }
    }

    /// The marks of processes that are gone.
    pub(crate) fn old_marks(&self) -> OldMarks {
        OldMarks::of(&self.client, &self.marks)
    }

    /// Sends a transaction in this session until it is known whether it was applied, or a call would have failed. `needed` is a
    /// node that it deletes.
    pub(crate) async fn send(
        &self,
        session: &Session,
        txn: Txn,
        needed: Option<&Path>,
    ) -> Result<Sent> {
        let limit = Retry::until_elapsed(session.timeout());
        self.send_within(limit, session, txn, needed).await
    }

    /// [`StampedWrites::send`], however long it takes, through outages and later sessions.
    pub(crate) async fn send_patiently(
        &self,
        session: &Session,
        txn: Txn,
        needed: Option<&Path>,
    ) -> Result<Sent> {
        self.send_within(Retry::forever(), session, txn, needed).await
    }

    /// [`StampedWrites::send`] with another limit.
    pub(crate) async fn send_within(
        &self,
        limit: Retry,
        session: &Session,
        txn: Txn,
        needed: Option<&Path>,
    ) -> Result<Sent> {
        let (client, marks) = (&self.client, &self.marks);
        Stamped { client, marks, session, evidence: &StillThere(needed), limit }.send(txn).await
    }

    /// Sends a transaction in one session after the other, until it is applied or rejected, or a call would have failed. With what
    /// it did, unless its answer was lost.
    pub(crate) async fn insist(&self, txn: &Txn) -> Result<Outcome<Option<Commit>>> {
        self.insist_within(Retry::until_elapsed, txn).await
    }

    async fn insist_within(
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
                return Err(Error::new(ErrorKind::Unreachable, self.marks.doing())
                    .at(self.marks.dir())
                    .because("its sessions were lost, one after the other"));
            };
            sleep(delay).await;
        }
    }

    /// Puts something back whose taker is gone, with a transaction that is sent again after every outage and in every later
    /// session, until the client is closed. `instead` is the transaction that follows a rejection, if there is one.
    pub(crate) async fn put_back(
        &self,
        path: &Path,
        txn: Txn,
        mut instead: impl FnMut(&Rejected) -> Option<Txn>,
    ) {
        let mut txn = txn;
        let mut delays = Retry::forever().delays(self.client.random());
        loop {
            let error = match self.insist_within(|_limit| Retry::forever(), &txn).await {
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
            if error.has_unknown_effect() || !self.client.is_transient(&error) {
                return tracing::warn!(%path, %error, "an item could not be put back");
            }
            sleep(delays.next().unwrap_or_default()).await;
        }
    }

    /// The error of a transaction that the store never takes.
    pub(crate) fn refused(&self, no: &Rejected) -> Error {
        Error::new(ErrorKind::Refused, self.marks.doing())
            .at(&no.path)
            .because(no.reason.to_string())
    }
}
