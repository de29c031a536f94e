//! [`commit`]: a transaction, from its leases to its answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use etcd_client::proto::{PbKeyValue, PbTxnResponse};
use etcd_client::{LeaseGrantOptions, PutOptions};
use futures_util::future::try_join_all;
use synod_core::chance::Chance;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{
    Commit, Done, Expect, Lifetime, Op, Outcome, Rejected, Sequence, Stat, Txn, View, Why,
};
use tokio::time::Instant;

use crate::endpoints::{Call, Endpoints};
use crate::error::is_missing;
use crate::fetch::{self, Get};
use crate::key;
use crate::lease;
use crate::link::Link;
use crate::plan::Plan;
use crate::pulse::{renew, revoke};
use crate::reader::{Answer, Reader, ranges, revision, unsure};

/// What a node with a time to live gets on top of it: the time between its lease and its creation.
const HEAD_START: Duration = Duration::from_secs(1);

/// How much data is written by the plain call, whose answer brings what was there before.
const SMALL: usize = 16 << 10;

/// Commits for the session with this lease.
pub(crate) async fn commit(
    reader: &Reader,
    chance: &Chance,
    session: i64,
    txn: Txn,
) -> Result<Outcome> {
    let committed = apply(reader, chance, session, &txn).await;
    committed.map_err(|error| match (error.path(), txn.ops.first()) {
        (None, Some(op)) => error.at(op.path()),
        _ => error,
    })
}

async fn apply(reader: &Reader, chance: &Chance, session: i64, txn: &Txn) -> Result<Outcome> {
    let began = Instant::now();
    let call = Call::write("commit", reader.limit);
    let leases = leases(&reader.endpoints, chance, call, session, &txn.ops).await?;
    let own = Own { leases, session };
    let committing = Committing { reader, call, txn, own: &own };
    let outcome = committing.run().await;
    match &outcome {
        Ok(Outcome::Committed(_)) if began.elapsed() > HEAD_START => {
            own.catch_up(&reader.endpoints, reader.limit).await?;
        }
        Ok(Outcome::Rejected(_)) => own.give_up(&reader.endpoints, call).await,
        Err(error) if !error.is_ambiguous() => own.give_up(&reader.endpoints, call).await,
        _ => {}
    }
    outcome
}

/// The leases that the nodes of a transaction get.
struct Own {
    leases: Vec<Option<i64>>,
    session: i64,
}

impl Own {
    fn granted(&self) -> impl Iterator<Item = i64> {
        self.leases.iter().flatten().copied().filter(|lease| *lease != self.session)
    }

    /// Nothing was made.
    async fn give_up(&self, endpoints: &Endpoints, call: Call) {
        let left = call.end.saturating_duration_since(Instant::now());
        for lease in self.granted() {
            // It ends by itself otherwise.
            let _tried = revoke(endpoints, lease, left).await.is_ok();
        }
    }

    /// The nodes live their whole time from now on.
    async fn catch_up(&self, endpoints: &Endpoints, limit: Duration) -> Result<()> {
        for lease in self.granted() {
            refresh(endpoints, lease, limit).await?;
        }
        Ok(())
    }
}

/// Has the time of a node that was just written counted anew.
async fn refresh(endpoints: &Endpoints, lease: i64, limit: Duration) -> Result<()> {
    renew(endpoints, lease, limit, limit).await.map(drop).map_err(|error| {
        let why = "the node was written, and its time to live may be that of before";
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
            // That nobody hears of a lease harms nobody.
            let call = Call { write: false, ..call };
            grant(endpoints, chance, call, *ttl).await.map(|lease| (index, lease))
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

/// A transaction on its way.
struct Committing<'a> {
    reader: &'a Reader,
    call: Call,
    txn: &'a Txn,
    own: &'a Own,
}

impl Committing<'_> {
    async fn run(&self) -> Result<Outcome> {
        if let ([Op::Set { path, data, expect: Expect::Any }], None) =
            (&self.txn.ops[..], &self.txn.look)
            && data.len() <= SMALL
        {
            return self.put(path, data).await;
        }
        let mut plan = Plan::new(&self.txn.ops, &self.own.leases)?;
        // Whoever has to be asked again is asked something new.
        let first = Mutex::new(Some(plan.take()));
        let again = || Plan::new(&self.txn.ops, &self.own.leases).unwrap_or_default().take();
        let look = self.txn.look.as_ref().map(fetch::gets).unwrap_or_default();
        // A look that has no room comes behind.
        let beside = if look.len() <= plan.room() { look.as_slice() } else { &[] };
        let asking = |link: Arc<Link>| {
            let parts = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            let request = parts.unwrap_or_else(again).request(beside.iter().map(Get::look));
            async move { link.txn(request).await }
        };
        let answer = self.reader.endpoints.call(self.call, asking).await;
        let answer = answer.map_err(|error| self.explain(error))?.0;
        self.reader.saw(revision(answer.header.as_ref()));
        if !answer.succeeded {
            let told: Vec<Vec<PbKeyValue>> =
                ranges(answer).into_iter().map(|range| range.kvs).collect();
            return plan.rejected(&self.txn.ops, &told).map(Outcome::Rejected);
        }
        let commit = self.committed(&plan, beside, answer).await;
        commit.map(Outcome::Committed).map_err(unsure)
    }

    /// Sends a set as the plain call: with the lease to be kept, that is refused if nothing is there,
    /// and costs the server less than a transaction with this as its condition.
    async fn put(&self, path: &Path, data: &Bytes) -> Result<Outcome> {
        let asking = |link: Arc<Link>| {
            let keep = PutOptions::new().with_ignore_lease().with_prev_key();
            let (key, data) = (key::of(path), data.clone());
            async move {
                match link.put(key, data, keep).await {
                    Ok(answer) => Ok(Some(answer.0)),
                    Err(error) if is_missing(&error) => Ok(None),
                    Err(error) => Err(error),
                }
            }
        };
        let Some(answer) = self.reader.endpoints.call(self.call, asking).await? else {
            return Ok(Outcome::Rejected(Rejected::new(0, path.clone(), Why::Missing)));
        };
        let at = revision(answer.header.as_ref());
        self.reader.saw(at);
        // What is told is the node as it was before.
        let now = answer.prev_kv.map(|before| PbKeyValue { mod_revision: at, ..before });
        let commit = self.told(&[now.as_ref()], at).await.map_err(unsure)?;
        Ok(Outcome::Committed(commit))
    }

    /// That a lease is gone tells of the session's end, but for those of other nodes.
    fn explain(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::SessionLost && self.own.granted().next().is_some() {
            return Error::new(ErrorKind::Unreachable, "commit")
                .because("a lease was over before what should hang on it was there")
                .caused_by(error);
        }
        error
    }

    async fn committed(&self, plan: &Plan, look: &[Get], answer: PbTxnResponse) -> Result<Commit> {
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

    /// What was done, with the nodes that are told of by their places.
    async fn told(&self, written: &[Option<&PbKeyValue>], at: i64) -> Result<Commit> {
        for kv in written.iter().flatten().filter(|kv| lease::is_ttl(kv.lease)) {
            refresh(&self.reader.endpoints, kv.lease, self.reader.limit).await?;
        }
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
                if *sequential { done.with_sequence(Sequence::new(at.get())) } else { done }
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
            self.reader.read(query).await?
        } else {
            let call = Call { write: false, ..self.call };
            match self.reader.complete(call, query, gets, answer).await {
                // A little newer is as good as at the commit.
                Err(_too_late) => self.reader.read(query).await?,
                Ok(view) => view,
            }
        };
        Ok(Some(view))
    }
}
