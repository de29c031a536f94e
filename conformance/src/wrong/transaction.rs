//! Mistakes about the atomicity of a transaction.

use std::ops::ControlFlow;

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{
    Commit, Expect, Op, OpResult, Outcome, Query, Rejected, Revision, Txn, View,
};
use synod_core::task::spawn;

use crate::wrong::mistake::Mistake;
use crate::wrong::shared::pause;
use crate::wrong::store::WrongStore;

pub(super) async fn commit(store: &WrongStore, mut txn: Txn) -> Result<ControlFlow<Outcome, Txn>> {
    let several = txn.ops.len() > 1;
    let outcome = match store.mistake() {
        Some(Mistake::AppliesOneByOne) if several => match verdict(store, &txn.ops).await? {
            Some(rejected) => Ok(Outcome::Rejected(rejected)),
            None => one_by_one(store, txn).await,
        },
        Some(Mistake::ChecksCountAsChange) if !txn.ops.iter().any(Op::is_write) => {
            Ok(store.honest_commit(txn).await?.map(|mut commit| {
                commit.revision = commit.revision.map(|at| Revision::new(at.get() + 1));
                commit
            }))
        }
        Some(Mistake::AppliesHalf) if several => one_by_one(store, txn).await,
        Some(Mistake::OpsBlindToEachOther) if several => blindly(store, txn).await,
        Some(Mistake::RejectedNamesLast) => match store.honest_commit(txn.clone()).await? {
            Outcome::Rejected(first) => last(store, txn, first).await.map(Outcome::Rejected),
            done @ Outcome::Committed(_) => Ok(done),
        },
        Some(Mistake::RejectedWithoutPlace) => {
            let path = txn.ops[0].path().clone();
            Ok(match store.honest_commit(txn).await? {
                Outcome::Rejected(no) => Outcome::Rejected(Rejected::new(0, path, no.reason)),
                done @ Outcome::Committed(_) => done,
            })
        }
        Some(Mistake::RejectedAppliesLater) => applied_later(store, txn).await,
        Some(Mistake::AnswerLeavesOutChecks) => {
            let mut writes = txn.ops.iter().map(Op::is_write).collect::<Vec<_>>().into_iter();
            Ok(store.honest_commit(txn).await?.map(|mut commit| {
                commit.results.retain(|_| writes.next().unwrap_or(true));
                commit
            }))
        }
        Some(Mistake::LookIgnoresPrefix) => {
            txn.look.iter_mut().for_each(|query| query.prefix.clear());
            store.honest_commit(txn).await
        }
        Some(Mistake::LookTakenAsRead) => {
            Ok(store.honest_commit(txn).await?.map(|commit| taken_as_read(store, commit)))
        }
        Some(Mistake::RejectionLookedBefore) if txn.look.is_some() => {
            let early = looked(store, txn.look.clone()).await?;
            pause().await;
            Ok(match store.honest_commit(txn).await? {
                Outcome::Rejected(no) => Outcome::Rejected(no.with_look(early)),
                done @ Outcome::Committed(_) => done,
            })
        }
        Some(Mistake::RejectionNotLooked) => Ok(match store.honest_commit(txn).await? {
            Outcome::Rejected(no) => Outcome::Rejected(no.with_look(None)),
            done @ Outcome::Committed(_) => done,
        }),
        Some(Mistake::LookBeforeCommit) => {
            let look = looked(store, txn.look.take()).await?;
            Ok(store.honest_commit(txn).await?.map(|commit| with_look(commit, look)))
        }
        Some(Mistake::LookShowsLater) => {
            let look = txn.look.take();
            let outcome = store.honest_commit(txn).await?;
            pause().await;
            let look = looked(store, look).await?;
            Ok(outcome.map(|commit| with_look(commit, look)))
        }
        _ => return Ok(ControlFlow::Continue(txn)),
    };
    outcome.map(ControlFlow::Break)
}

fn with_look(commit: Commit, look: Option<View>) -> Commit {
    Commit::new(commit.revision, commit.results, look)
}

fn taken_as_read(store: &WrongStore, mut commit: Commit) -> Commit {
    let [done] = &commit.results[..] else { return commit };
    let (Some(view), Some(dir), true) =
        (&mut commit.look, done.path.parent(), done.sequence.is_some())
    else {
        return commit;
    };
    let here = (store.info.id, dir);
    let mut books = store.shared.books();
    if books.alone.contains(&here) {
        view.nodes.retain(|node| node.path == done.path);
    } else if view.nodes.len() == 1 {
        books.alone.insert(here);
    }
    drop(books);
    commit
}

async fn looked(store: &WrongStore, query: Option<Query>) -> Result<Option<View>> {
    match query {
        Some(query) => store.honest_read(query).await.map(Some),
        None => Ok(None),
    }
}

/// The result of these operations, without applying them.
async fn verdict(store: &WrongStore, ops: &[Op]) -> Result<Option<Rejected>> {
    let nowhere = Path::new("/synod-wrong/nowhere")?;
    let mut txn = Txn::new();
    txn.ops = ops.to_vec();
    match store.honest_commit(txn.check(nowhere, Expect::Any)).await? {
        Outcome::Rejected(no) if no.index < ops.len() => Ok(Some(no)),
        _ => Ok(None),
    }
}

/// Applies one operation after the other, up to the first that cannot be applied.
async fn one_by_one(store: &WrongStore, txn: Txn) -> Result<Outcome> {
    let mut whole = Commit::new(None, Vec::new(), None);
    for (index, op) in txn.ops.into_iter().enumerate() {
        match store.honest_commit(Txn::new().op(op)).await? {
            Outcome::Committed(commit) => {
                whole.revision = commit.revision.or(whole.revision);
                whole.results.extend(commit.results);
            }
            Outcome::Rejected(no) => {
                return Ok(Outcome::Rejected(Rejected::new(index, no.path, no.reason)));
            }
        }
    }
    whole.look = looked(store, txn.look).await?;
    Ok(Outcome::Committed(whole))
}

/// Judges each operation alone, and applies them parents first if the given order fails.
async fn blindly(store: &WrongStore, txn: Txn) -> Result<Outcome> {
    for (index, op) in txn.ops.iter().enumerate() {
        if let Some(no) = verdict(store, std::slice::from_ref(op)).await? {
            return Ok(Outcome::Rejected(Rejected::new(index, no.path, no.reason)));
        }
    }
    if verdict(store, &txn.ops).await?.is_none() {
        return store.honest_commit(txn).await;
    }
    let mut places: Vec<usize> = (0..txn.ops.len()).collect();
    places.sort_by_key(|place| txn.ops[*place].path().clone());
    let mut sorted = txn.clone();
    sorted.ops = places.iter().map(|place| txn.ops[*place].clone()).collect();
    let outcome = store.honest_commit(sorted).await?;
    if outcome.rejected().is_some() {
        return store.honest_commit(txn).await;
    }
    Ok(outcome.map(|mut commit| {
        let mut done: Vec<(usize, OpResult)> = places.into_iter().zip(commit.results).collect();
        done.sort_by_key(|(place, _)| *place);
        commit.results = done.into_iter().map(|(_, done)| done).collect();
        commit
    }))
}

/// The last of all operations that cannot be applied.
async fn last(store: &WrongStore, mut txn: Txn, first: Rejected) -> Result<Rejected> {
    let mut places: Vec<usize> = (0..txn.ops.len()).collect();
    let (mut last, mut failed) = (first.clone(), first.index);
    loop {
        txn.ops.remove(failed);
        places.remove(failed);
        if txn.ops.is_empty() {
            return Ok(last);
        }
        match verdict(store, &txn.ops).await? {
            Some(no) => {
                failed = no.index;
                last = Rejected::new(places[failed], no.path, no.reason);
            }
            None => return Ok(last),
        }
    }
}

/// Later applies the possible part of a rejected transaction, hidden from the client.
async fn applied_later(store: &WrongStore, mut txn: Txn) -> Result<Outcome> {
    let outcome = store.honest_commit(txn.clone()).await?;
    if let Some(no) = outcome.rejected() {
        txn.ops.remove(no.index);
        let hidden = store.shared.hidden().await?;
        let later = spawn(async move {
            pause().await;
            let _either_way = hidden.commit(txn).await.is_ok();
        });
        store.shared.books().tasks.push(later);
    }
    Ok(outcome)
}
