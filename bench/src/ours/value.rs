//! Single values: a counter, unique numbers, and a value with a copy in each client.

use std::cell::RefCell;
use std::pin::pin;

use futures_util::StreamExt as _;
use futures_util::future::join;
use synod::value::{Counter, Ids, SharedValue};
use tokio::time::Instant;

use super::Ours;
use crate::racer::{Failure, drive};
use crate::report::{Report, Stopwatch};
use crate::task::{BLOCK, Task};

/// All add to one counter, each with a session of its own.
pub(super) async fn increment(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join("counter")?;
    let clients = ours.sessions(task.clients).await?.iter();
    counted(task, clients.map(|client| Counter::new(client, path.clone())).collect()).await
}

/// All tasks add to one counter, with one session.
pub(super) async fn increment_tasks(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let counter = Counter::new(&ours.clients[0], ours.dir.join("counter-of-tasks")?);
    counted(task, vec![counter; task.clients]).await
}

/// Each adds to its counter, which is the same one in the store.
async fn counted(task: &Task, counters: Vec<Counter>) -> Result<Report, Failure> {
    let counter = counters.first().ok_or("no clients")?.clone();
    let before = counter.get().await?;
    let lanes = counters.into_iter().map(|counter| {
        async move || {
            counter.increment().await?;
            Ok(())
        }
    });
    let report = drive(task, lanes.collect()).await?;
    expect_sum(counter.get().await? - before, &report)?;
    Ok(report)
}

/// Fails unless each lap has added 1.
pub(super) fn expect_sum(added: i64, report: &Report) -> Result<(), Failure> {
    if u64::try_from(added) == Ok(report.laps) {
        return Ok(());
    }
    Err(format!("{} additions were answered, and the sum has {added}", report.laps).into())
}

/// All take unique numbers, each with a session of its own.
pub(super) async fn ids(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let (path, taken) = (ours.dir.join("ids")?, RefCell::new(Vec::new()));
    let taken_by_all = &taken;
    let lanes = ours.sessions(task.clients).await?.iter().map(|client| {
        let ids = Ids::new(client, path.clone(), BLOCK);
        async move || {
            for _ in 0..BLOCK.get() {
                let id = ids.next().await?;
                taken_by_all.borrow_mut().push(id);
            }
            Ok(())
        }
    });
    let report = drive(task, lanes.collect()).await?;
    expect_unique(taken.into_inner())?;
    Ok(report)
}

fn expect_unique(mut taken: Vec<u64>) -> Result<(), Failure> {
    taken.sort_unstable();
    match taken.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(format!("{} was handed out twice", pair[0]).into()),
    }
}

/// One session sets the value. A lap is from the call until the copy of another session shows it.
pub(super) async fn shared(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join("shared-value")?;
    let clients = ours.sessions(2).await?;
    let writer = SharedValue::open(&clients[0], path.clone(), &0_u64).await?;
    let reader = SharedValue::open(&clients[1], path, &0_u64).await?;
    let (mut copies, mut number) = (pin!(reader.changes()), writer.get().value);
    let stopwatch = Stopwatch::start(task);
    let mut laps = Vec::new();
    while stopwatch.goes_on(laps.len()) {
        number += 1;
        let called = Instant::now();
        let seen = async {
            while let Some(copy) = copies.next().await {
                if copy.value == number {
                    return Ok(called.elapsed());
                }
            }
            Err("the value is not followed any more")
        };
        // The copy may change before the answer.
        let (seen, set) = join(seen, writer.set(&number)).await;
        set?;
        laps.push(seen?);
    }
    Ok(stopwatch.stop(laps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::report;

    #[test]
    fn a_lost_or_repeated_addition_is_noticed() {
        let two = report(vec![std::time::Duration::ZERO; 2], 1.0, None, None);
        let noticed = [1, 2, 3, -2].map(|added| expect_sum(added, &two).is_err());
        assert_eq!(noticed, [true, false, true, true]);
    }

    #[test]
    fn a_number_that_is_handed_out_twice_is_noticed() {
        assert!(expect_unique(vec![3, 1, 2]).is_ok());
        assert!(expect_unique(vec![3, 1, 3]).is_err());
    }
}
