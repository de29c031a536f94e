//! Queues: items that are taken one by one, acknowledged, or taken in bunches.

use std::future::ready;
use std::num::NonZeroUsize;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use synod::Path;
use synod::queue::Queue;

use super::{DATA, Ours};
use crate::racer::{Failure, drive};
use crate::report::Report;
use crate::task::{BUNCH, Task};

/// Number of waiting items that are put in one transaction.
const TOGETHER: usize = 30;
/// Number of these transactions in flight.
const AT_ONCE: usize = 20;

/// An item of 98 bytes, which are 100 as JSON.
fn item() -> String {
    "x".repeat(DATA.len() - 2)
}

/// A queue for each client, each with a session of its own. They share a path, if it is the same.
async fn queues(
    ours: &mut Ours,
    task: &Task,
    path: impl Fn(usize) -> Result<Path, Failure>,
) -> Result<Vec<Queue<String>>, Failure> {
    let clients = ours.sessions(task.clients).await?.iter().enumerate();
    clients.map(|(lane, client)| Ok(Queue::new(client, path(lane)?))).collect()
}

pub(super) async fn taken(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join("taken")?;
    put_and_take(task, &queues(ours, task, |_lane| Ok(path.clone())).await?).await
}

/// The items that wait stay: each lap puts as many as it takes.
pub(super) async fn with_waiting(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join(&format!("waiting-{}", task.waiting))?;
    let all = queues(ours, task, |_lane| Ok(path.clone())).await?;
    let missing = task.waiting.saturating_sub(all[0].len().await?);
    let items = vec![item(); missing];
    let bunches = items.chunks(TOGETHER).map(|some| all[0].put_many(some));
    stream::iter(bunches).buffer_unordered(AT_ONCE).try_for_each(|()| ready(Ok(()))).await?;
    // Each consumer then knows the items in the queue.
    for queue in &all {
        queue.put(&item()).await?;
        queue.take().await?;
    }
    put_and_take(task, &all).await
}

async fn put_and_take(task: &Task, all: &[Queue<String>]) -> Result<Report, Failure> {
    let lanes = all.iter().map(|queue| {
        async move || {
            queue.put(&item()).await?;
            queue.take().await?;
            Ok(())
        }
    });
    drive(task, lanes.collect()).await
}

pub(super) async fn acknowledged(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join("acknowledged")?;
    let all = queues(ours, task, |_lane| Ok(path.clone())).await?;
    let lanes = all.iter().map(|queue| {
        async move || {
            queue.put(&item()).await?;
            Ok(queue.claim().await?.ack().await?)
        }
    });
    drive(task, lanes.collect()).await
}

/// Each client has a queue of its own: in a shared one it would have to wait for the items that
/// others take.
pub(super) async fn in_bunches(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join("bunches")?;
    let all = queues(ours, task, |lane| Ok(path.join(&lane.to_string())?)).await?;
    let items = vec![item(); BUNCH.get()];
    let items = &items;
    let lanes = all.iter().map(|queue| {
        async move || {
            queue.put_many(items).await?;
            let mut left = Some(BUNCH);
            while let Some(most) = left {
                let had = queue.take_many(most).await?.len();
                left = NonZeroUsize::new(most.get() - had);
            }
            Ok(())
        }
    });
    drive(task, lanes.collect()).await
}
