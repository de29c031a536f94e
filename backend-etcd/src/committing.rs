//! [`Committing`]: a transaction in flight, with the leases of its nodes.

use std::sync::{Arc, Mutex, PoisonError};

use etcd_client::proto::{PbKeyValue, PbTxnResponse};
use futures_util::future::{join_all, try_join_all};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{Commit, Lifetime, Op, OpResult, Outcome, Sequence, Stat, Txn, View};
use tokio::time::Instant;

use crate::endpoints::{Call, Endpoints};
use crate::fetch::{self, Get};
use crate::heartbeat::{renew, revoke};
use crate::lease;
use crate::link::Link;
use crate::plan::{Asking, Plan};
use crate::reader::{Answer, Reader, ranges, revision, unsure};
use crate::tickets::Tickets;

/// A transaction in flight.
pub(crate) struct Committing<'a> {
    pub(crate) reader: &'a Reader,
    pub(crate) tickets: &'a Tickets,
    pub(crate) call: Call,
    pub(crate) txn: &'a Txn,
    pub(crate) own: &'a Own,
}

impl Committing<'_> {
    /// The outcome; `None` if it was refused, and the reads were not enough to explain it.
    pub(crate) async fn attempt(&self, asking: Asking) -> Result<Option<Outcome>> {
        let plan = || Plan::new(&self.txn.ops, &self.own.leases, asking);
        let mut first = plan()?;
        // A repeated request is built again, because the parts were moved into the first.
        let parts = Mutex::new(Some(first.take()));
        let again = || plan().unwrap_or_default().take();
        let look = self.txn.look.as_ref().map(fetch::gets).unwrap_or_default();
        // A follow-up read that does not fit into the request is sent afterwards.
        let beside = if look.len() <= first.room() { look.as_slice() } else { &[] };
        let asking = |link: Arc<Link>| {
            let parts = parts.lock().unwrap_or_else(PoisonError::into_inner).take();
            let request = parts
                .unwrap_or_else(again)
                .request(beside.iter().map(Get::look), !self.txn.look_if_rejected);
            async move { link.txn(request).await }
        };
        let seen = self.reader.history.seen();
        let answer = self.reader.endpoints.call(self.call, asking).await;
        let answer = answer.map_err(|error| self.explain(error))?.0;
        self.reader.history.answered(answer.header.as_ref(), seen).map_err(unsure)?;
        if !answer.succeeded {
            // Boxed: most transactions are applied.
            return Box::pin(self.refused(&first, beside, answer)).await;
        }
        let commit = self.committed(&first, beside, answer).await.map_err(unsure)?;
        Ok(Some(Outcome::Committed(commit)))
    }

    /// A missing lease means that the session has ended, unless it may be the lease of a TTL node.
    fn explain(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::SessionLost && self.own.granted().next().is_some() {
            return Error::new(ErrorKind::Unreachable, "commit")
                .because("a lease was over before what should hang on it was there")
                .caused_by(error);
        }
        error
    }

    /// The rejection, with the view of its follow-up read, which was answered at the same revision;
    /// `None` as in [`Self::attempt`].
    async fn refused(
        &self,
        plan: &Plan<'_>,
        look: &[Get],
        answer: PbTxnResponse,
    ) -> Result<Option<Outcome>> {
        let revision = revision(answer.header.as_ref());
        let mut answers = ranges(answer);
        let ranges = answers.split_off(plan.questions().min(answers.len()));
        let answers: Vec<Vec<PbKeyValue>> = answers.into_iter().map(|range| range.kvs).collect();
        let Some(rejected) = plan.rejected(&self.txn.ops, &answers)? else { return Ok(None) };
        let seen = self.look(look, Answer { revision, ranges }).await;
        // The transaction was refused, even if the follow-up read failed.
        Ok(Some(Outcome::Rejected(rejected.with_look(seen.unwrap_or_default()))))
    }

    async fn committed(
        &self,
        plan: &Plan<'_>,
        look: &[Get],
        answer: PbTxnResponse,
    ) -> Result<Commit> {
        let at = revision(answer.header.as_ref());
        let mut answers = ranges(answer);
        let read_ranges = answers.split_off(plan.writes().min(answers.len()));
        let written: Vec<Option<&PbKeyValue>> = plan
            .answer_places()
            .iter()
            .map(|place| place.and_then(|place| answers.get(place)?.kvs.first()))
            .collect();
        let answer = Answer { revision: at, ranges: read_ranges };
        let mut commit = self.commit_of(&written, at).await?;
        if self.txn.look_of_commit().is_some() {
            commit.look = self.look(look, answer).await?;
        }
        Ok(commit)
    }

    /// The commit, with the nodes in the answers by their indexes.
    pub(crate) async fn commit_of(
        &self,
        written: &[Option<&PbKeyValue>],
        at: i64,
    ) -> Result<Commit> {
        let leases = written.iter().flatten().map(|kv| kv.lease).filter(|id| lease::is_ttl(*id));
        refresh(&self.reader.endpoints, leases, self.call).await?;
        let done = self.txn.ops.iter().enumerate();
        let done = done.map(|(index, op)| self.done(op, at, index, written[index])).collect();
        Ok(Commit::new(Some(fetch::revision(at)), done, None))
    }

    fn done(&self, op: &Op, at: i64, index: usize, kv: Option<&PbKeyValue>) -> OpResult {
        let done = OpResult::new(op.path().clone());
        match op {
            Op::Create { lifetime, sequential, .. } if *lifetime != Lifetime::Container => {
                let owner = self.own.leases[index].and_then(lease::owner);
                let at = fetch::revision(at);
                let stat = Stat::new(at, at, fetch::version_of(at), owner);
                let done = done.with_stat(stat);
                if !sequential {
                    return done;
                }
                if *lifetime == Lifetime::Session {
                    self.tickets.add(&done.path);
                }
                done.with_sequence(Sequence::new(at.get()))
            }
            Op::Set { .. } => match kv {
                Some(kv) => done.with_stat(fetch::stat(kv)),
                None => done,
            },
            _ => done,
        }
    }

    async fn look(&self, gets: &[Get], answer: Answer) -> Result<Option<View>> {
        let Some(query) = &self.txn.look else { return Ok(None) };
        let view = if gets.is_empty() {
            self.reader.read_in(self.call.harmless(), query).await?
        } else {
            match self.reader.complete(self.call.harmless(), query, gets, answer).await {
                // A slightly newer view is as good as one at the commit.
                Err(_too_late) => self.reader.read_in(self.call.harmless(), query).await?,
                Ok(view) => view,
            }
        };
        Ok(Some(view))
    }
}

/// The leases for the nodes of a transaction.
pub(crate) struct Own {
    pub(crate) leases: Vec<Option<i64>>,
    pub(crate) session: i64,
}

impl Own {
    fn granted(&self) -> impl Iterator<Item = i64> {
        self.leases.iter().flatten().copied().filter(|lease| *lease != self.session)
    }

    /// Revokes the granted leases, because no node was created.
    pub(crate) async fn give_up(&self, endpoints: &Endpoints, call: Call) {
        let left = call.end.saturating_duration_since(Instant::now());
        // A lease that is not revoked expires.
        let _tried = join_all(self.granted().map(|lease| revoke(endpoints, lease, left))).await;
    }

    /// Renews the granted leases, so that their whole time starts now.
    pub(crate) async fn catch_up(&self, endpoints: &Endpoints, call: Call) -> Result<()> {
        refresh(endpoints, self.granted(), call).await
    }
}

/// Renews the leases of nodes that were just written, concurrently, before the call ends.
async fn refresh(
    endpoints: &Endpoints,
    leases: impl IntoIterator<Item = i64>,
    call: Call,
) -> Result<()> {
    let call = call.harmless();
    let renewing: Vec<_> = leases.into_iter().map(|lease| renew(endpoints, lease, call)).collect();
    if renewing.is_empty() {
        return Ok(());
    }
    try_join_all(renewing).await.map(drop).map_err(|error| {
        let why = "the nodes were written, and their time to live may be that of before";
        Error::new(ErrorKind::Unreachable, "commit")
            .because(why)
            .with_unknown_effect()
            .caused_by(error)
    })
}
