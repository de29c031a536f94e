//! The partition: the delay until each item has a member again after a member has left.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;

use futures_util::StreamExt as _;
use futures_util::future::{Either, select, try_join_all};
use synod::partition::{Partition, Share, ShareChange};
use tokio::time::Instant;

use super::Ours;
use crate::racer::Failure;
use crate::report::{Report, Stopwatch};
use crate::task::{ITEMS, Task};

/// The last member joins and leaves, and the others have its items.
pub(super) async fn settle(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join("partition")?.join(&task.clients.to_string())?;
    let clients = ours.sessions(task.clients).await?;
    let items: Vec<String> = (0..ITEMS).map(|item| format!("item-{item}")).collect();
    let partitions = clients.iter().map(|it| Partition::new(it, path.clone(), items.clone()));
    let partitions: Vec<Partition> = partitions.collect();
    let Some((last, others)) = partitions.split_last() else {
        return Err("a partition needs a member".into());
    };
    let names: Vec<String> = (0..others.len()).map(|member| member.to_string()).collect();
    let joining = others.iter().zip(&names).map(|(partition, name)| partition.join(name));
    let staying = try_join_all(joining).await?;
    let (stopwatch, mut laps) = (Stopwatch::start(task), Vec::new());
    while stopwatch.goes_on(laps.len()) {
        let leaving = last.join("last").await?;
        let all: Vec<_> = staying.iter().chain([&leaving]).collect();
        while_releasing(&all, all_have_members(&all)).await?;
        let others: Vec<_> = staying.iter().collect();
        let started = Instant::now();
        let left = async {
            leaving.leave().await?;
            all_have_members(&others).await
        };
        while_releasing(&others, left).await?;
        laps.push(started.elapsed());
    }
    let report = stopwatch.stop(laps);
    try_join_all(staying.into_iter().map(Share::leave)).await?;
    Ok(report)
}

/// Waits until the members have all items.
async fn all_have_members(members: &[&Share]) -> Result<(), Failure> {
    while members.iter().map(|share| share.items().len()).sum::<usize>() < ITEMS {
        try_join_all(members.iter().map(|share| share.settled())).await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// The result of `work`, while the members release the items that are requested from them.
async fn while_releasing<T>(
    members: &[&Share],
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let releasing = try_join_all(members.iter().map(|share| releases(share)));
    match select(pin!(work), pin!(releasing)).await {
        Either::Left((done, _)) => done,
        Either::Right((Err(error), _)) => Err(error.into()),
        Either::Right((Ok(_), _)) => Err("there are no members".into()),
    }
}

async fn releases(share: &Share) -> synod::Result<Infallible> {
    let mut changes = pin!(share.changes());
    while let Some(change) = changes.next().await {
        if let ShareChange::Release(items) = change {
            share.release(&items).await?;
        }
    }
    pending().await
}
