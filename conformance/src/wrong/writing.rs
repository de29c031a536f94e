//! Mistakes in single operations: versions, and nodes in the way.

use std::ops::ControlFlow;
use std::time::Duration;

use synod_core::error::Result;
use synod_core::store::{
    Commit, Expect, Lifetime, Op, OpResult, Outcome, Query, RejectReason, Rejected, Txn, Version,
};
use tokio::time::sleep;

use crate::wrong::mistake::Mistake;
use crate::wrong::store::WrongStore;

pub(super) async fn commit(store: &WrongStore, mut txn: Txn) -> Result<ControlFlow<Outcome, Txn>> {
    let Some(mistake) = store.mistake() else { return Ok(ControlFlow::Continue(txn)) };
    txn.ops.iter_mut().for_each(|op| expectation(mistake, op));
    if matches!(mistake, Mistake::LocalBehindLatest | Mistake::LocalBehindEvents) {
        store.past.forget();
    }
    let outcome = match mistake {
        Mistake::CasInTwoSteps => compared(store, txn).await,
        Mistake::VersionStays => changed(store, txn).await,
        Mistake::StatOfBefore => with_old_stats(store, txn).await,
        Mistake::CheckWrites => checked_by_writing(store, txn).await,
        Mistake::CreateOverwrites | Mistake::SetCreates | Mistake::DeleteOfMissingSucceeds => {
            mended(store, mistake, txn).await
        }
        _ => return Ok(ControlFlow::Continue(txn)),
    };
    outcome.map(ControlFlow::Break)
}

fn expectation(mistake: Mistake, op: &mut Op) {
    let blind = match op {
        Op::Set { .. } => mistake == Mistake::CasIgnoresVersion,
        Op::Delete { .. } => mistake == Mistake::DeleteIgnoresVersion,
        Op::Check { .. } => mistake == Mistake::CheckIgnoresVersion,
        Op::Create { .. } => false,
    };
    if let Op::Check { expect, .. } | Op::Set { expect, .. } | Op::Delete { expect, .. } = op
        && let Expect::Version(version) = expect
    {
        if blind {
            *expect = Expect::Any;
        } else if mistake == Mistake::CasNeverMatches {
            *expect = Expect::Version(Version::new(version.get() + 1));
        }
    }
}

/// Replaces a rejected operation by another one, if the mistake treats that as correct.
async fn mended(store: &WrongStore, mistake: Mistake, mut txn: Txn) -> Result<Outcome> {
    loop {
        let outcome = store.honest_commit(txn.clone()).await?;
        let Outcome::Rejected(no) = &outcome else { return Ok(outcome) };
        let mended = txn.ops.get(no.index).and_then(|op| mend(mistake, op, no.reason));
        let Some(op) = mended else { return Ok(outcome) };
        txn.ops[no.index] = op;
    }
}

fn mend(mistake: Mistake, op: &Op, why: RejectReason) -> Option<Op> {
    Some(match (mistake, why, op) {
        (
            Mistake::CreateOverwrites,
            RejectReason::Exists,
            Op::Create { path, data, sequential: false, .. },
        ) => Op::Set { path: path.clone(), data: data.clone(), expect: Expect::Any },
        (Mistake::SetCreates, RejectReason::Missing, Op::Set { path, data, .. }) => {
            let (path, data, lifetime) = (path.clone(), data.clone(), Lifetime::Persistent);
            Op::Create { path, data, lifetime, sequential: false }
        }
        (Mistake::DeleteOfMissingSucceeds, RejectReason::Missing, Op::Delete { path, .. }) => {
            Op::Check { path: path.clone(), expect: Expect::Absent }
        }
        _ => return None,
    })
}

/// Compares versions first, and writes the nodes that matched.
async fn compared(store: &WrongStore, mut txn: Txn) -> Result<Outcome> {
    const BETWEEN: Duration = Duration::from_millis(10);
    for (index, op) in txn.ops.iter_mut().enumerate() {
        let Op::Set { path, expect, .. } = op else { continue };
        let Expect::Version(version) = *expect else { continue };
        let view = store.honest_read(Query::node(&*path)).await?;
        let found = view.node().and_then(|node| node.stat).map(|stat| stat.version);
        if found != Some(version) {
            let why =
                if found.is_some() { RejectReason::OtherVersion } else { RejectReason::Missing };
            return Ok(Outcome::Rejected(Rejected::new(index, path.clone(), why)));
        }
        *expect = Expect::Any;
        sleep(BETWEEN).await;
    }
    store.honest_commit(txn).await
}

async fn changed(store: &WrongStore, txn: Txn) -> Result<Outcome> {
    if let [Op::Set { path, data, expect: Expect::Any }] = txn.ops.as_slice() {
        let view = store.honest_read(Query::node(path)).await?;
        if let Some(node) = view.into_node().filter(|node| node.data == *data)
            && let Some(stat) = node.stat
        {
            let done = vec![OpResult::new(node.path).with_stat(stat)];
            return Ok(Outcome::Committed(Commit::new(None, done, None)));
        }
    }
    store.honest_commit(txn).await
}

async fn with_old_stats(store: &WrongStore, txn: Txn) -> Result<Outcome> {
    let mut before = Vec::new();
    for op in &txn.ops {
        let view = store.honest_read(Query::node(op.path())).await?;
        before.push(view.node().and_then(|node| node.stat));
    }
    Ok(store.honest_commit(txn).await?.map(|mut commit| {
        for (done, before) in commit.results.iter_mut().zip(before) {
            done.stat = done.stat.map(|stat| before.unwrap_or(stat));
        }
        commit
    }))
}

async fn checked_by_writing(store: &WrongStore, mut txn: Txn) -> Result<Outcome> {
    for index in 0..txn.ops.len() {
        let Op::Check { path, expect } = &txn.ops[index] else { continue };
        let (path, expect) = (path.clone(), *expect);
        let is_last = txn.ops[index + 1..].iter().all(|later| *later.path() != path);
        if expect == Expect::Absent || !is_last {
            continue;
        }
        if let Some(node) = store.honest_read(Query::node(&path)).await?.into_node() {
            txn.ops[index] = Op::Set { path, data: node.data, expect };
        }
    }
    store.honest_commit(txn).await
}
