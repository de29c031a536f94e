//! Leader election: the delay until the next candidate leads after a resignation.

use std::time::Duration;

use futures_util::future::join;
use synod::Query;
use synod::election::Election;
use tokio::time::{Instant, sleep};

use super::Ours;
use crate::racer::Failure;
use crate::report::{Report, Stopwatch};
use crate::task::{Task, Work};

/// Returns the time that a candidate has waited in the queue when it becomes the leader.
fn stood(work: Work) -> Duration {
    Duration::from_millis(if work == Work::ResignLate { 300 } else { 5 })
}

/// Two sessions lead in turn.
pub(super) async fn resign(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join("leader")?;
    let clients = ours.sessions(2).await?;
    let line = Query::children(path.clone()).names_only().local();
    let elections = [0, 1].map(|one: usize| Election::new(&clients[one], path.clone()));
    let mut leader = elections[0].campaign("0").await?;
    let stopwatch = Stopwatch::start(task);
    let mut laps = Vec::new();
    while stopwatch.goes_on(laps.len()) {
        let next = &elections[(laps.len() + 1) % 2];
        let resigning = async {
            // As cheap as in other racers, because these requests are counted.
            while clients[0].read(line.clone()).await?.nodes.len() < 2 {
                sleep(Duration::from_millis(1)).await;
            }
            sleep(stood(task.work)).await;
            let started = Instant::now();
            leader.resign().await?;
            Ok::<_, Failure>(started)
        };
        let leading = async {
            let led = next.campaign("1").await;
            (led, Instant::now())
        };
        let (resigned, (led, now)) = join(resigning, leading).await;
        laps.push(now.saturating_duration_since(resigned?));
        leader = led?;
    }
    let report = stopwatch.stop(laps);
    leader.resign().await?;
    Ok(report)
}

/// Leads, and does not stop while this process lives.
pub(super) async fn lead(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join("killed")?;
    let stopwatch = Stopwatch::start(task);
    let started = Instant::now();
    let leader = Election::new(&ours.clients[0], path).campaign("0").await?;
    ours.leader = Some(leader);
    Ok(stopwatch.stop(vec![started.elapsed()]))
}
