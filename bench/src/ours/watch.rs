//! The delay until a change is reported.

use synod::{Event, Expect, Query};
use tokio::time::Instant;

use super::{DATA, Ours, done, ensure};
use crate::racer::Failure;
use crate::report::{Report, Stopwatch};
use crate::task::Task;

/// One session changes a node, another watches it. A lap is from the call to the event.
pub(super) async fn observe(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let node = ours.dir.join("observed")?;
    let clients = ours.sessions(2).await?;
    ensure(&clients[0], &node).await?;
    let (_view, mut watch) = clients[1].watch(Query::node(&node)).await?;
    let stopwatch = Stopwatch::start(task);
    let mut laps = Vec::new();
    while stopwatch.goes_on(laps.len()) {
        let called = Instant::now();
        let heard = async {
            match watch.next().await {
                Some(Event::Changed(_)) => Ok(called.elapsed()),
                other => Err(format!("no change but {other:?}").into()),
            }
        };
        let set = async {
            let set = clients[0].set(&node, DATA, Expect::Any).await?;
            done(set).map(drop)
        };
        // The event may arrive before the answer.
        let (heard, set) = futures_util::future::join(heard, set).await;
        set?;
        laps.push(heard.map_err(|why: Failure| why)?);
    }
    Ok(stopwatch.stop(laps))
}
