//! [`Committer`]: commits what a run has read and written, until it is known whether it was applied.

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{Op, Query, Rejected, Txn, View};

use crate::stamped::Stamped;
use crate::stamped::mark::Marks;
use crate::stamped::sent::{Evidence, Sent};
use crate::transaction::footprint::{AfterRejection, DOING, Footprint};

/// How often a transaction is sent again although the store shows no reason for its rejection.
const UNEXPLAINED: u32 = 3;

/// What became of a run.
pub(super) enum Fate {
    /// It is committed.
    Committed,
    /// It is not, and never will be. With what the next run knows already, if its session is the same.
    Lost(Option<Footprint>),
}

/// What commits need.
pub(super) struct Committer<'a> {
    pub(super) client: &'a Client,
    pub(super) marks: &'a Marks,
    pub(super) session: &'a Session,
    pub(super) one_moment: bool,
}

impl Committer<'_> {
    pub(super) async fn commit(&self, mut footprint: Footprint) -> Result<Fate> {
        let is_same = !footprint.lacks() || self.find(&mut footprint).await?;
        if !is_same || footprint.is_later() {
            return Ok(Fate::Lost(Some(footprint.next())));
        }
        let (mut unexplained, mut delays) = (0, Retry::contended().delays(self.session.random()));
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
                AfterRejection::Unexplained if unexplained < UNEXPLAINED => {
                    unexplained += 1;
                    sleep(delays.next().unwrap_or_default()).await;
                }
                AfterRejection::Unexplained | AfterRejection::Refused => return Err(refused(&no)),
            }
        }
    }

    /// Reads what is written without having been read. Returns whether what was read is unchanged.
    async fn find(&self, footprint: &mut Footprint) -> Result<bool> {
        let Some(query) = footprint.whole() else { return Ok(true) };
        let view = self.session.read(query.clone().local()).await?;
        footprint.learn_whole(&query, view)
    }

    /// Commits a run that has only read. What is of one moment is committed already.
    async fn confirm(&self, mut footprint: Footprint) -> Result<Fate> {
        // A single read may lag, too.
        if self.one_moment || footprint.ops().is_empty() {
            return Ok(Fate::Committed);
        }
        let Some(query) = footprint.whole() else { return Ok(Fate::Committed) };
        let view = self.session.read(query.clone()).await?;
        let is_same = footprint.learn_whole(&query, view)?;
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

    /// Sends a transaction until it is known whether it was applied.
    async fn write(&self, footprint: &Footprint, ops: Vec<Op>) -> Result<Sent> {
        let mut txn = ops.into_iter().fold(Txn::new(), Txn::op);
        if let Some(query) = footprint.whole() {
            txn = txn.look_if_rejected(query);
        }
        let Self { client, marks, session, .. } = *self;
        let limit = Retry::until_elapsed(session.timeout());
        Stamped { client, marks, session, evidence: footprint, limit }.send(txn).await
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
