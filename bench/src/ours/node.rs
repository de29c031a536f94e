//! Reads and writes of plain nodes, which everything else consists of.

use std::sync::Arc;

use synod::Path;
use synod_core::store::{Expect, Lifetime, Query, Store, Txn};

use super::{DATA, Ours, done};
use crate::racer::{Failure, drive};
use crate::report::Report;
use crate::task::{Task, Work};

/// Measures a client, as applications use it.
pub(super) async fn through_the_door(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let dir = &ours.dir;
    for txn in preparation(dir, task)? {
        // It exists from an earlier task, or from now on.
        let _there = ours.clients[0].commit(txn).await?;
    }
    let lanes = ours.shared(task.clients).into_iter().enumerate().map(|(lane, client)| {
        let (node, made, work) = (node(dir, lane)?, made(dir, lane)?, task.work);
        Ok(async move || match work {
            Work::GetLocal => {
                there(client.read(Query::node(node.clone()).local()).await?.node().is_some())
            }
            Work::Get => there(client.get(&node).await?.is_some()),
            Work::Set | Work::SetIfThere => {
                let _set = done(client.set(&node, DATA, Expect::Any).await?)?;
                Ok(())
            }
            _ => {
                let _created = done(client.create(&made, DATA, Lifetime::Session).await?)?;
                done(client.delete(&made, Expect::Any).await?)
            }
        })
    });
    drive(task, lanes.collect::<Result<_, Failure>>()?).await
}

/// Measures a bare session, which applications do not use.
pub(super) async fn at_the_floor(
    store: &Arc<dyn Store>,
    dir: &Path,
    task: &Task,
) -> Result<Report, Failure> {
    for txn in preparation(dir, task)? {
        let _there = store.commit(txn).await?;
    }
    let lanes = (0..task.clients).map(|lane| {
        let (node, made, work) = (node(dir, lane)?, made(dir, lane)?, task.work);
        let store = store.clone();
        Ok(async move || {
            let read = async |query| there(store.read(query).await?.node().is_some());
            let commit = async |txn| done(store.commit(txn).await?).map(drop);
            match work {
                Work::GetLocal => read(Query::node(&node).local()).await,
                Work::Get => read(Query::node(&node)).await,
                Work::Set | Work::SetIfThere => {
                    commit(Txn::new().set(&node, DATA, Expect::Any)).await
                }
                _ => {
                    commit(Txn::new().create(&made, DATA, Lifetime::Session)).await?;
                    commit(Txn::new().delete(&made, Expect::Any)).await
                }
            }
        })
    });
    drive(task, lanes.collect::<Result<_, Failure>>()?).await
}

/// The creates of the nodes that the lanes use, and of the directories for those that they create.
fn preparation(dir: &Path, task: &Task) -> Result<Vec<Txn>, Failure> {
    let places = [Ok(dir.join("nodes")?), Ok(dir.join("made")?)];
    let nodes = (0..task.clients).map(|lane| node(dir, lane));
    let create = |path: Path| Txn::new().create(path, DATA, Lifetime::Persistent);
    places.into_iter().chain(nodes).map(|path| path.map(create)).collect()
}

/// The node that a lane reads and writes.
fn node(dir: &Path, lane: usize) -> Result<Path, Failure> {
    Ok(dir.join("nodes")?.join(&lane.to_string())?)
}

/// The node that a lane creates and deletes.
fn made(dir: &Path, lane: usize) -> Result<Path, Failure> {
    Ok(dir.join("made")?.join(&lane.to_string())?)
}

fn there(found: bool) -> Result<(), Failure> {
    if found { Ok(()) } else { Err("a node is gone that was made".into()) }
}
