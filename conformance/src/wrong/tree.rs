//! Mistakes about parents, children and containers.

use std::cmp::Reverse;
use std::ops::ControlFlow;

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{
    Commit, Expect, Lifetime, Node, Op, OpResult, Outcome, Query, RejectReason, Rejected, Txn,
};

use crate::wrong::listing;
use crate::wrong::mistake::Mistake;
use crate::wrong::store::WrongStore;

pub(super) async fn commit(store: &WrongStore, mut txn: Txn) -> Result<ControlFlow<Outcome, Txn>> {
    let outcome = match store.mistake() {
        Some(Mistake::NoImplicitParents) => match orphan(store, &txn).await? {
            Some(no) => Ok(Outcome::Rejected(no)),
            None => store.honest_commit(txn).await,
        },
        Some(Mistake::ContainerIsNode) => {
            make_ancestors(store, &mut txn).await?;
            store.honest_commit(txn).await
        }
        Some(Mistake::ContainerStays) => match in_the_way(store, &txn).await? {
            Some(no) => Ok(Outcome::Rejected(no)),
            None => remembered(store, txn).await,
        },
        Some(Mistake::PathTakenForPattern) => match taken_for_parent(store, &txn).await? {
            Some(no) => Ok(Outcome::Rejected(no)),
            None => store.honest_commit(txn).await,
        },
        Some(Mistake::ParentGoesWithLastChild) => with_empty_parents(store, txn).await,
        Some(
            Mistake::CreateReplacesContainer
            | Mistake::DeleteIgnoresChildren
            | Mistake::ContainerDeletesItsChildren
            | Mistake::EphemeralMayHaveChildren
            | Mistake::EphemeralMayHaveGrandchildren,
        ) => {
            let outcome = store.honest_commit(txn.clone()).await?;
            match outcome.rejected() {
                Some(no) => Ok(forced(store, txn, no).await?.unwrap_or(outcome)),
                None => Ok(outcome),
            }
        }
        _ => return Ok(ControlFlow::Continue(txn)),
    };
    outcome.map(ControlFlow::Break)
}

async fn node(store: &WrongStore, path: &Path) -> Result<Option<Node>> {
    Ok(store.honest_read(Query::node(path)).await?.into_node())
}

/// The first create whose parent is not a node, and was not created before it.
async fn orphan(store: &WrongStore, txn: &Txn) -> Result<Option<Rejected>> {
    for (index, op) in txn.ops.iter().enumerate() {
        let Op::Create { path, .. } = op else { continue };
        let Some(parent) = path.parent().filter(|parent| !parent.is_root()) else { continue };
        let made = txn.ops[..index].iter().any(|op| *op.path() == parent);
        if !made && node(store, &parent).await?.is_none() {
            return Ok(Some(Rejected::new(index, path.clone(), RejectReason::Missing)));
        }
    }
    Ok(None)
}

async fn make_ancestors(store: &WrongStore, txn: &mut Txn) -> Result<()> {
    for op in &mut txn.ops {
        let Op::Create { path, lifetime, .. } = op else { continue };
        let mut above: Vec<Path> = path.ancestors().filter(|above| !above.is_root()).collect();
        above.sort();
        for ancestor in above {
            let make = Txn::new().create(ancestor, "", Lifetime::Persistent);
            let _there_already = store.honest_commit(make).await?;
        }
        if *lifetime == Lifetime::Container {
            *lifetime = Lifetime::Persistent;
        }
    }
    Ok(())
}

/// The first delete of a node without children while a similar path has some.
async fn taken_for_parent(store: &WrongStore, txn: &Txn) -> Result<Option<Rejected>> {
    for (index, op) in txn.ops.iter().enumerate() {
        let Op::Delete { path, .. } = op else { continue };
        let Some(parent) = path.parent() else { continue };
        let beside = store.honest_read(Query::subtree(parent)).await?;
        let like = |above: &Path| *above != *path && listing::is_like(above, path);
        if beside.nodes.iter().any(|node| node.path.ancestors().any(|above| like(&above))) {
            return Ok(Some(Rejected::new(index, path.clone(), RejectReason::HasChildren)));
        }
    }
    Ok(None)
}

/// The first operation at a path where a container was left.
async fn in_the_way(store: &WrongStore, txn: &Txn) -> Result<Option<Rejected>> {
    for (index, op) in txn.ops.iter().enumerate() {
        let path = op.path();
        let wants = matches!(
            op,
            Op::Create { sequential: false, .. } | Op::Check { expect: Expect::Absent, .. }
        );
        let left = store.shared.books().containers.contains(path);
        if wants && left && node(store, path).await?.is_none() {
            return Ok(Some(Rejected::new(index, path.clone(), RejectReason::Exists)));
        }
    }
    Ok(None)
}

async fn remembered(store: &WrongStore, txn: Txn) -> Result<Outcome> {
    let mut above = Vec::new();
    for op in txn.ops.iter().filter(|op| matches!(op, Op::Create { .. })) {
        for ancestor in op.path().ancestors() {
            if node(store, &ancestor).await?.is_none() {
                above.push(ancestor);
            }
        }
    }
    let outcome = store.honest_commit(txn).await?;
    if outcome.rejected().is_none() {
        store.shared.books().containers.extend(above);
    }
    Ok(outcome)
}

async fn with_empty_parents(store: &WrongStore, txn: Txn) -> Result<Outcome> {
    let deletes = txn.ops.iter().filter(|op| matches!(op, Op::Delete { .. }));
    let parents: Vec<Path> = deletes.filter_map(|op| op.path().parent()).collect();
    let outcome = store.honest_commit(txn).await?;
    if outcome.rejected().is_none() {
        for parent in parents.into_iter().filter(|parent| !parent.is_root()) {
            let _not_empty = store.honest_commit(Txn::new().delete(parent, Expect::Any)).await?;
        }
    }
    Ok(outcome)
}

/// Removes the operation that made the store reject the transaction, and tries again. `None` if the
/// rejection was correct.
async fn forced(store: &WrongStore, txn: Txn, no: &Rejected) -> Result<Option<Outcome>> {
    let path = &no.path;
    let is_node = node(store, path).await?.is_some();
    match (store.mistake(), no.reason) {
        (Some(Mistake::DeleteIgnoresChildren), RejectReason::HasChildren) if is_node => {
            let _gone = clear_below(store, path).await?;
            store.honest_commit(txn).await.map(Some)
        }
        (Some(Mistake::ContainerDeletesItsChildren), RejectReason::HasChildren) if !is_node => {
            let _gone = clear_below(store, path).await?;
            let done = txn.ops.iter().map(|op| OpResult::new(op.path().clone())).collect();
            Ok(Some(Outcome::Committed(Commit::new(None, done, None))))
        }
        (Some(Mistake::CreateReplacesContainer), RejectReason::Exists) if !is_node => {
            let below = clear_below(store, path).await?;
            let outcome = store.honest_commit(txn).await?;
            for node in below {
                let again = Txn::new().create(node.path, node.data, Lifetime::Persistent);
                let _there_again = store.honest_commit(again).await?;
            }
            Ok(Some(outcome))
        }
        (Some(mistake), RejectReason::BelowEphemeral) => {
            let mut above = path.ancestors().filter(|above| !above.is_root());
            let near = mistake == Mistake::EphemeralMayHaveChildren;
            let candidates: Vec<Path> =
                if near { above.next().into_iter().collect() } else { above.skip(1).collect() };
            for ancestor in candidates {
                if let Some(found) = node(store, &ancestor).await? {
                    keep(store, found).await?;
                    return store.honest_commit(txn).await.map(Some);
                }
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// Removes all nodes below a path, and returns them.
async fn clear_below(store: &WrongStore, path: &Path) -> Result<Vec<Node>> {
    let mut below = store.honest_read(Query::subtree(path)).await?.nodes;
    below.retain(|node| node.stat.is_some() && node.path != *path);
    below.sort_by_key(|node| Reverse(node.path.as_str().len()));
    for node in &below {
        let _gone = store.honest_commit(Txn::new().delete(&node.path, Expect::Any)).await?;
    }
    Ok(below)
}

/// Makes a node persistent.
async fn keep(store: &WrongStore, node: Node) -> Result<()> {
    let _gone = store.honest_commit(Txn::new().delete(&node.path, Expect::Any)).await?;
    let again = Txn::new().create(node.path, node.data, Lifetime::Persistent);
    let _there_again = store.honest_commit(again).await?;
    Ok(())
}
