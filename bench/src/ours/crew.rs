//! The crew: tasks from their submission to their results, and the cost of a lost worker or master.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select, try_join, try_join_all};
use synod::Client;
use synod::Path;
use synod::crew::{Assignment, Crew, CrewWorker, TaskEnd, TaskStatus};
use tokio::time::{Instant, sleep};

use super::{DATA, Ours};
use crate::racer::{Failure, drive};
use crate::report::{Report, Stopwatch};
use crate::task::Task;

/// Time for which a finished task is kept: so short that its removal is part of the measurement.
const KEPT: Duration = Duration::from_millis(100);

/// Interval at which a process checks whether another one is there, or gone.
const LOOK: Duration = Duration::from_millis(1);

/// For each client a submitter and a worker, and one master, each with a session of its own.
pub(super) async fn tasks(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let (path, count) = (ours.dir.join("crew")?, task.clients);
    let workers_at = path.join("workers")?;
    let clients = ours.sessions(2 * count + 1).await?;
    let crews: Vec<Crew> =
        clients.iter().map(|client| Crew::new(client, path.clone()).retention(KEPT)).collect();
    let (submitters, others) = (&crews[..count], &crews[count..]);
    let workers = others[1..].iter().map(|crew| crew.work(CrewWorker::new(), echo));
    let serving = try_join(others[0].lead(), try_join_all(workers));
    let measured = async {
        until_there(&clients[0], &workers_at, count).await?;
        done(&clients[0], &submitters[0]).await?;
        let lanes = submitters.iter().zip(clients);
        let lanes = lanes.map(|(crew, client)| async move || done(client, crew).await);
        drive(task, lanes.collect()).await
    };
    beside(serving, measured).await
}

/// A worker is lost. The first process works until it is killed. The other one leads, and does the
/// task of the first.
pub(super) async fn worker(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join("crew-of-worker")?;
    let (workers_at, client) = (path.join("workers")?, ours.clients[0].clone());
    let crew = Crew::new(&client, path);
    let stopwatch = Stopwatch::start(task);
    let started = Instant::now();
    if task.heir {
        Box::pin(beside(crew.lead(), take_over(&client, &crew))).await?;
    } else {
        until_there(&client, &workers_at, 0).await?;
        ours.background.spawn(async move {
            crew.work(CrewWorker::new(), |_| pending::<Result<Vec<u8>, Infallible>>()).await
        });
        until_there(&client, &workers_at, 1).await?;
    }
    Ok(stopwatch.stop(vec![started.elapsed()]))
}

/// Submits a task for the other process, and does the task when that process is lost.
async fn take_over(client: &Client, crew: &Crew) -> Result<(), Failure> {
    let task = crew.submit(&client.random().id(), DATA).await?;
    while task.status().await? != Some(TaskStatus::Assigned) {
        sleep(LOOK).await;
    }
    let result = async { Ok(task.wait().await?) };
    expect_done(beside(crew.work(CrewWorker::new(), echo), result).await?.as_ref())
}

/// A master is lost. The first process leads until it is killed, and the other one is a candidate
/// for master and does tasks.
pub(super) async fn master(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join("crew-of-master")?;
    let (candidates, client) = (path.join("master")?, ours.clients[0].clone());
    let crew = Crew::new(&client, path).retention(KEPT);
    let stopwatch = Stopwatch::start(task);
    let started = Instant::now();
    if task.heir {
        let first_of_own = async {
            until_there(&client, &candidates, 2).await?;
            loop {
                // One of these waits while there is no master.
                done(&client, &crew).await?;
                if client.children(&candidates).await?.len() == 1 {
                    return Ok(());
                }
            }
        };
        beside(try_join(crew.lead(), crew.work(CrewWorker::new(), echo)), first_of_own).await?;
    } else {
        until_there(&client, &candidates, 0).await?;
        ours.background.spawn(async move { crew.lead().await });
        until_there(&client, &candidates, 1).await?;
    }
    Ok(stopwatch.stop(vec![started.elapsed()]))
}

async fn echo(task: Assignment) -> Result<Vec<u8>, Infallible> {
    Ok(task.data.to_vec())
}

/// Submits a task, and waits for its result.
async fn done(client: &Client, crew: &Crew) -> Result<(), Failure> {
    let task = crew.submit(&client.random().id(), DATA).await?;
    expect_done(task.wait().await?.as_ref())
}

fn expect_done(end: Option<&TaskEnd>) -> Result<(), Failure> {
    match end {
        Some(TaskEnd::Done(result)) if result == DATA => Ok(()),
        other => Err(format!("a task has another result than its data: {other:?}").into()),
    }
}

/// Waits until a directory has this number of nodes.
async fn until_there(client: &Client, dir: &Path, count: usize) -> Result<(), Failure> {
    while client.children(dir).await?.len() != count {
        sleep(LOOK).await;
    }
    Ok(())
}

/// The result of `work`, while `service` runs, which ends only with an error.
async fn beside<S, T>(
    service: impl Future<Output = synod::Result<S>>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match select(pin!(work), pin!(service)).await {
        Either::Left((done, _)) => done,
        Either::Right((Err(error), _)) => Err(error.into()),
        Either::Right((Ok(_), _)) => Err("a member of the crew has ended".into()),
    }
}
