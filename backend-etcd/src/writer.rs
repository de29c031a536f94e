//! [`Writer`]: commits transactions, each from its leases to its answer.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::LeaseGrantOptions;
use futures_util::future::try_join_all;
use synod_core::error::Result;
use synod_core::random::Random;
use synod_core::store::{Lifetime, Op, Outcome, Txn};
use tokio::time::Instant;

use crate::committing::{Committing, Own};
use crate::endpoints::{Call, Endpoints};
use crate::lease;
use crate::link::Link;
use crate::plan::Asking;
use crate::reader::Reader;
use crate::single_operation::SingleOperation;
use crate::tickets::Tickets;

/// Added to the time to live of a node: the time between the grant of its lease and its creation.
const HEAD_START: Duration = Duration::from_secs(1);

/// Writes for one session.
#[derive(Debug)]
pub(crate) struct Writer {
    reader: Arc<Reader>,
    random: Random,
    /// The session's lease.
    lease: i64,
    tickets: Tickets,
}

impl Writer {
    pub(crate) fn new(reader: Arc<Reader>, random: Random, lease: i64) -> Self {
        Self { reader, random, lease, tickets: Tickets::default() }
    }

    pub(crate) async fn commit(&self, txn: &Txn) -> Result<Outcome> {
        let (reader, began) = (&*self.reader, Instant::now());
        let call = Call::write("commit", reader.limit);
        let leases = leases(&reader.endpoints, &self.random, call, self.lease, &txn.ops).await?;
        let own = Own { leases, session: self.lease };
        let committing = Committing { reader, tickets: &self.tickets, call, txn, own: &own };
        let outcome = run(&committing).await;
        match &outcome {
            Ok(Outcome::Committed(_)) if began.elapsed() > HEAD_START => {
                own.catch_up(&reader.endpoints, call).await?;
            }
            Ok(Outcome::Rejected(_)) => own.give_up(&reader.endpoints, call).await,
            Err(error) if !error.has_unknown_effect() => own.give_up(&reader.endpoints, call).await,
            _ => {}
        }
        outcome
    }
}

/// The lease of each operation's node: the session's own, or a new one.
async fn leases(
    endpoints: &Endpoints,
    random: &Random,
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
            grant(endpoints, random, call.harmless(), *ttl).await.map(|lease| (index, lease))
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

async fn grant(endpoints: &Endpoints, random: &Random, call: Call, ttl: Duration) -> Result<i64> {
    let seconds = lease::seconds(ttl + HEAD_START);
    let granting = |link: Arc<Link>| {
        let id = LeaseGrantOptions::new().with_id(lease::of_ttl(random));
        async move { link.lease.clone().grant(seconds, Some(id)).await }
    };
    Ok(endpoints.call(call, granting).await?.id())
}

/// Sends a transaction, by a smaller request if there is one for it.
async fn run(committing: &Committing<'_>) -> Result<Outcome> {
    if let Some(alone) = SingleOperation::of(committing.txn) {
        return alone.send(committing).await;
    }
    let mut asking = Asking::Little;
    loop {
        if let Some(outcome) = committing.attempt(asking).await? {
            return Ok(outcome);
        }
        // It did nothing, so repeating it with other reads is as good as the first attempt.
        asking = Asking::All;
    }
}
