//! [`Writer`]: commits transactions, each from its leases to its answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::LeaseGrantOptions;
use etcd_client::proto::{PbKeyValue, PbTxnResponse};
use futures_util::future::{join_all, try_join_all};
use synod_core::chance::Chance;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{Commit, Done, Lifetime, Op, Outcome, Sequence, Stat, Txn, View};
use tokio::time::Instant;

use crate::alone::Alone;
use crate::endpoints::{Call, Endpoints};
use crate::fetch::{self, Get};
use crate::lease;
use crate::link::Link;
use crate::plan::{Asking, Plan};
use crate::pulse::{renew, revoke};
use crate::reader::{Answer, Reader, ranges, revision, unsure};
use crate::tickets::Tickets;

/// Added to the time to live of a node: the time between the grant of its lease and its creation.
const HEAD_START: Duration = Duration::from_secs(1);

/// Writes for one session.
#[derive(Debug)]
pub(crate) struct Writer {
    reader: Arc<Reader>,
    chance: Chance,
    /// The session's lease.
    lease: i64,
    tickets: Tickets,
}

impl Writer {
    pub(crate) fn new(reader: Arc<Reader>, chance: Chance, lease: i64) -> Self {
        Self { reader, chance, lease, tickets: Tickets::default() }
    }

    pub(crate) async fn commit(&self, txn: Txn) -> Result<Outcome> {
        let committed = self.apply(&txn).await;
        committed.map_err(|error| match (error.path(), txn.ops.first()) {
            (None, Some(op)) => error.at(op.path()),
            _ => error,
        })
    }

    async fn apply(&self, txn: &Txn) -> Result<Outcome> {
        let (reader, began) = (&*self.reader, Instant::now());
        let call = Call::write("commit", reader.limit);
        let leases = leases(&reader.endpoints, &self.chance, call, self.lease, &txn.ops).await?;
        let own = Own { leases, session: self.lease };
        let committing = Committing { reader, tickets: &self.tickets, call, txn, own: &own };
        let outcome = committing.run().await;
        match &outcome {
            Ok(Outcome::Committed(_)) if began.elapsed() > HEAD_START => {
                own.catch_up(&reader.endpoints, call).await?;
            }
            Ok(Outcome::Rejected(_)) => own.give_up(&reader.endpoints, call).await,
            Err(error) if !error.is_ambiguous() => own.give_up(&reader.endpoints, call).await,
            _ => {}
        }
        outcome
    }
}

/// The leases for the nodes of a transaction.
struct Own {
    leases: Vec<Option<i64>>,
    session: i64,
}

impl Own {
    fn granted(&self) -> impl Iterator<Item = i64> {
        self.leases.iter().flatten().copied().filter(|lease| *lease != self.session)
    }

    /// Revokes the granted leases, because no node was created.
    async fn give_up(&self, endpoints: &Endpoints, call: Call) {
        let left = call.end.saturating_duration_since(Instant::now());
        // A lease that is not revoked expires by itself.
        let _tried = join_all(self.granted().map(|lease| revoke(endpoints, lease, left))).await;
    }

    /// Renews the granted leases, so that the nodes have their whole time from now on.
    async fn catch_up(&self, endpoints: &Endpoints, call: Call) -> Result<()> {
        refresh(endpoints, self.granted(), call).await
    }
}

/// Renews the leases of nodes that were just written, all at once, before the call ends.
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

/// The lease of each operation's node: the session's own, or a new one.
async fn leases(
    endpoints: &Endpoints,
    chance: &Chance,
    call: Call,
    session: i64,
    ops: &[Op],
) -> Result<Vec<Option<i64>>> {
    let own = |op: &Op| match op {
        Op::Create { lifetime: Lifetime::Session, .. } => Some(session),
        _ => None,
    };
    let mut leases: Vec<Option<i64>> = ops.iter().map(own).collect();
    let granting = ops.iter().enumerate().filter_map(|(index, op)| match op {
        Op::Create { lifetime: Lifetime::Ttl(ttl), .. } => Some(async move {
            // A lease whose grant was not received expires by itself.
            grant(endpoints, chance, call.harmless(), *ttl).await.map(|lease| (index, lease))
        }),
        _ => None,
    });
    let granting: Vec<_> = granting.collect();
    if !granting.is_empty() {
        for (index, lease) in try_join_all(granting).await? {
            leases[index] = Some(lease);
        }
    }
    Ok(leases)
}

async fn grant(endpoints: &Endpoints, chance: &Chance, call: Call, ttl: Duration) -> Result<i64> {
    let seconds = lease::seconds(ttl + HEAD_START);
    let granting = |link: Arc<Link>| {
        let id = LeaseGrantOptions::new().with_id(lease::of_ttl(chance));
        async move { link.lease.clone().grant(seconds, Some(id)).await }
    };
    Ok(endpoints.call(call, granting).await?.id())
}

/// A transaction in flight.
pub(crate) struct Committing<'a> {
    pub(crate) reader: &'a Reader,
    pub(crate) tickets: &'a Tickets,
    pub(crate) call: Call,
    txn: &'a Txn,
    own: &'a Own,
}

impl Committing<'_> {
    async fn run(&self) -> Result<Outcome> {
        if let Some(alone) = Alone::of(self.txn) {
            return alone.send(self).await;
        }
        let mut asking = Asking::Little;
        loop {
            if let Some(outcome) = self.attempt(asking).await? {
                return Ok(outcome);
            }
            // It did nothing, so repeating it with other reads is as good as the first attempt.
            asking = Asking::All;
        }
    }

    /// The outcome; `None` if it was refused, and the reads were not enough to explain it.
    async fn attempt(&self, asking: Asking) -> Result<Option<Outcome>> {
        let plan = || Plan::new(&self.txn.ops, &self.own.leases, asking);
        let mut first = plan()?;
        // A repeated request is built again, because the parts were moved into the first.
        let parts = Mutex::new(Some(first.take()));
        let again = || plan().unwrap_or_default().take();
        let look = self.txn.look.as_ref().map(fetch::gets).unwrap_or_default();
        // A look for which there is no room is read afterwards.
        let beside = if look.len() <= first.room() { look.as_slice() } else { &[] };
        let asking = |link: Arc<Link>| {
            let parts = parts.lock().unwrap_or_else(PoisonError::into_inner).take();
            let request = parts.unwrap_or_else(again).request(beside.iter().map(Get::look));
            async move { link.txn(request).await }
        };
        let answer = self.reader.endpoints.call(self.call, asking).await;
        let answer = answer.map_err(|error| self.explain(error))?.0;
        self.reader.saw(revision(answer.header.as_ref()));
        if !answer.succeeded {
            let told: Vec<Vec<PbKeyValue>> =
                ranges(answer).into_iter().map(|range| range.kvs).collect();
            let rejected = first.rejected(&self.txn.ops, &told)?;
            return Ok(rejected.map(Outcome::Rejected));
        }
        let commit = self.committed(&first, beside, answer).await.map_err(unsure)?;
        Ok(Some(Outcome::Committed(commit)))
    }

    /// A missing lease means the end of the session, unless it may be the lease of another node.
    fn explain(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::SessionLost && self.own.granted().next().is_some() {
            return Error::new(ErrorKind::Unreachable, "commit")
                .because("a lease was over before what should hang on it was there")
                .caused_by(error);
        }
        error
    }

    async fn committed(
        &self,
        plan: &Plan<'_>,
        look: &[Get],
        answer: PbTxnResponse,
    ) -> Result<Commit> {
        let at = revision(answer.header.as_ref());
        let mut told = ranges(answer);
        let look_ranges = told.split_off(plan.writes().min(told.len()));
        let written: Vec<Option<&PbKeyValue>> = plan
            .told()
            .iter()
            .map(|place| place.and_then(|place| told.get(place)?.kvs.first()))
            .collect();
        let answer = Answer { revision: at, ranges: look_ranges };
        let mut commit = self.told(&written, at).await?;
        commit.look = self.look(look, answer).await?;
        Ok(commit)
    }

    /// The commit, with the nodes in the answers by their indexes.
    pub(crate) async fn told(&self, written: &[Option<&PbKeyValue>], at: i64) -> Result<Commit> {
        let leases = written.iter().flatten().map(|kv| kv.lease).filter(|id| lease::is_ttl(*id));
        refresh(&self.reader.endpoints, leases, self.call).await?;
        let done = self.txn.ops.iter().enumerate();
        let done = done.map(|(index, op)| self.done(op, at, index, written[index])).collect();
        Ok(Commit::new(Some(fetch::revision(at)), done, None))
    }

    fn done(&self, op: &Op, at: i64, index: usize, kv: Option<&PbKeyValue>) -> Done {
        let done = Done::new(op.path().clone());
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
