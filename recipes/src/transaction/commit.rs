//! [`Committer`]: commits the footprint of a run, until its effect is known.

use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{Op, Query, Rejected, Txn, View};

use crate::support::exactly_once::ExactlyOnce;
use crate::support::exactly_once::settling::{Evidence, Sent};
use crate::support::exactly_once::write_id::WriteIds;
use crate::support::retry::RetryDelays;
use crate::transaction::footprint::{AfterRejection, DOING, Footprint};

/// The maximum number of retries of a transaction if the nodes show no reason for its rejection.
const MAX_UNEXPLAINED: u32 = 3;

/// The result of a commit.
pub(super) enum Fate {
    /// The run is committed.
    Committed,
    /// The run is not committed, and never will be. Has the footprint of the next run in the same
    /// session.
    Lost(Option<Footprint>),
}

/// A sender of commits in one session.
pub(super) struct Committer<'a> {
    pub(super) client: &'a Client,
    pub(super) write_ids: &'a WriteIds,
    pub(super) session: &'a Session,
    pub(super) has_snapshot: bool,
}

impl Committer<'_> {
    pub(super) async fn commit(&self, mut footprint: Footprint) -> Result<Fate> {
        let is_same = !footprint.lacks_nodes() || self.find(&mut footprint).await?;
        if !is_same || footprint.is_later() {
            return Ok(Fate::Lost(Some(footprint.next())));
        }
        let delays = RetryDelays::new(Retry::contended(), self.session.random());
        let (mut unexplained, mut delays) = (0, delays);
        loop {
            let ops = footprint.ops();
            if !ops.iter().any(Op::is_write) {
                return self.confirm(footprint).await;
            }
            let no = match Box::pin(self.write(&footprint, ops)).await? {
                Sent::Applied(_) => return Ok(Fate::Committed),
                Sent::Lost => return Ok(Fate::Lost(None)),
                Sent::Rejected(no) => no,
            };
            match self.judge(&mut footprint, &no).await? {
                AfterRejection::RunAgain => return Ok(Fate::Lost(Some(footprint.next()))),
                AfterRejection::SendAgain => {}
                AfterRejection::Unexplained if unexplained < MAX_UNEXPLAINED => {
                    unexplained += 1;
                    delays.wait().await;
                }
                AfterRejection::Unexplained | AfterRejection::Refused => return Err(refused(&no)),
            }
        }
    }

    /// Reads the nodes that are written without having been read. Returns `true` if the nodes that
    /// were read are unchanged.
    async fn find(&self, footprint: &mut Footprint) -> Result<bool> {
        let Some(query) = footprint.whole() else { return Ok(true) };
        let view = self.session.read(query.clone().local()).await?;
        footprint.record_whole(&query, view)
    }

    /// Commits a run without writes. If its reads are one snapshot, nothing is left to do.
    async fn confirm(&self, mut footprint: Footprint) -> Result<Fate> {
        // Otherwise even a single read is confirmed, because it may lag.
        if self.has_snapshot || footprint.ops().is_empty() {
            return Ok(Fate::Committed);
        }
        let Some(query) = footprint.whole() else { return Ok(Fate::Committed) };
        let view = self.session.read(query.clone()).await?;
        let is_same = footprint.record_whole(&query, view)?;
        Ok(if is_same { Fate::Committed } else { Fate::Lost(Some(footprint.next())) })
    }

    async fn judge(&self, footprint: &mut Footprint, no: &Rejected) -> Result<AfterRejection> {
        let Some(query) = footprint.whole() else { return Ok(AfterRejection::Refused) };
        let view = match &no.look {
            Some(view) => view.clone(),
            None => self.session.read(query.clone()).await?,
        };
        footprint.judge(no, &query, view)
    }

    /// Sends the writes until their effect is known.
    async fn write(&self, footprint: &Footprint, ops: Vec<Op>) -> Result<Sent> {
        let mut txn = ops.into_iter().fold(Txn::new(), Txn::op);
        if let Some(query) = footprint.whole() {
            txn = txn.look_if_rejected(query);
        }
        let Self { client, write_ids, session, .. } = *self;
        let limit = Retry::until_elapsed(session.timeout());
        ExactlyOnce { client, write_ids, session, evidence: footprint, limit }.send(txn).await
    }
}

impl Evidence for Footprint {
    fn whole(&self) -> Option<Query> {
        Self::whole(self)
    }

    fn is_untouched(&self, view: &View) -> bool {
        Self::is_untouched(self, view)
    }
}

fn refused(no: &Rejected) -> Error {
    Error::new(ErrorKind::Refused, DOING).at(&no.path).because(no.reason.to_string())
}
