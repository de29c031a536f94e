//! Caches: the delays until they are complete and show a change, and their cost.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::join;
use futures_util::{Stream, StreamExt as _};
use synod::cache::{Cache, CacheEvent};
use synod::{Expect, Node};
use tokio::time::{Instant, timeout};

use super::{Ours, done};
use crate::crowd::{Crowd, number};
use crate::racer::Failure;
use crate::report::{Report, Stopwatch, rss};
use crate::task::Task;

/// Limit of the wait for a change, while there are a thousand a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// Fills a cache repeatedly. The memory is the growth of the process by the first cache.
pub(super) async fn complete(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let crowd = Crowd::of(task.nodes);
    let (mut laps, mut grown) = (Vec::new(), None);
    let before = rss();
    let stopwatch = Stopwatch::start(task);
    while stopwatch.goes_on(laps.len()) {
        let started = Instant::now();
        let cache = Cache::open(&ours.clients[0], crowd.dir()?).await?;
        laps.push(started.elapsed());
        grown = grown.or_else(|| Some(rss()?.saturating_sub(before?)));
        crowd.expect(cache.snapshot().iter())?;
    }
    let report = stopwatch.stop_with(laps, grown);
    Ok(Report { nodes: u64::try_from(task.nodes).ok(), ..report })
}

/// One session changes a node. A lap is from the call until the cache of another session shows it.
pub(super) async fn seen(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let crowd = Crowd::of(task.nodes);
    let clients = ours.sessions(2).await?;
    let cache = Cache::open(&clients[1], crowd.dir()?).await?;
    let mut events = pin!(cache.events());
    let mut last = complete_with(&mut events).await?;
    let stopwatch = Stopwatch::start(task);
    let mut laps = Vec::new();
    while stopwatch.goes_on(laps.len()) {
        last += 1;
        let (path, data) = crowd.change(last)?;
        let called = Instant::now();
        let seen = async {
            while changed(&mut events).await? != last {}
            Ok::<_, Failure>(called.elapsed())
        };
        // The cache may show it before the answer.
        let (seen, set) = join(seen, clients[0].set(&path, data, Expect::Any)).await;
        let _stat = done(set?)?;
        laps.push(seen?);
        if cache.get(&path).as_ref().and_then(number) != Some(last) {
            return Err("the event is reported, and the cache has an older node".into());
        }
    }
    Ok(stopwatch.stop(laps))
}

/// Follows changes that another process makes. A lap is a change.
pub(super) async fn changes(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let crowd = Crowd::of(task.nodes);
    let cache = Cache::open(&ours.clients[0], crowd.dir()?).await?;
    let mut events = pin!(cache.events());
    let _before = complete_with(&mut events).await?;
    let first = changed(&mut events).await?;
    let (stopwatch, started) = (Stopwatch::start(task), Instant::now());
    let (mut last, mut made) = (first, 0);
    while stopwatch.goes_on(made) {
        last = last.max(changed(&mut events).await?);
        made = usize::try_from(last.saturating_sub(first))?;
    }
    let each = started.elapsed() / u32::try_from(made)?.max(1);
    Ok(stopwatch.stop(vec![each; made]))
}

/// Takes the events until the cache is complete. Returns the number of the last change.
async fn complete_with(
    events: &mut (impl Stream<Item = CacheEvent> + Unpin),
) -> Result<u64, Failure> {
    let mut last = 0;
    while let Some(event) = events.next().await {
        match event {
            CacheEvent::Created(node) | CacheEvent::Updated { node, .. } => {
                last = last.max(own(&node)?);
            }
            CacheEvent::Complete(_) => return Ok(last),
            _ => {}
        }
    }
    Err("the cache has ended".into())
}

/// The number of the next change.
async fn changed(events: &mut (impl Stream<Item = CacheEvent> + Unpin)) -> Result<u64, Failure> {
    match timeout(PATIENCE, events.next()).await? {
        Some(CacheEvent::Updated { node, .. }) => own(&node),
        other => Err(format!("no change but {other:?}").into()),
    }
}

fn own(node: &Node) -> Result<u64, Failure> {
    number(node).ok_or_else(|| format!("{} has other data than its own", node.path).into())
}
