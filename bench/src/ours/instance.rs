//! Service discovery: the delay until all clients know that an instance is gone.

use std::pin::pin;

use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use synod::discovery::{Discovery, Instance, Service};
use tokio::time::Instant;

use super::Ours;
use crate::racer::Failure;
use crate::report::{Report, Stopwatch};
use crate::task::Task;

const SERVICE: &str = "bench";

/// The first process has an instance until it is killed. In the other one, clients with a session
/// each follow the service until they all no longer show it.
pub(super) async fn killed(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let base = ours.dir.join("services")?;
    let stopwatch = Stopwatch::start(task);
    let started = Instant::now();
    if task.heir {
        let watchers = ours.sessions(task.clients).await?.iter().map(async |client| {
            let service = Discovery::<()>::new(client, base.clone()).open(SERVICE).await?;
            until(&service, 1).await?;
            until(&service, 0).await
        });
        try_join_all(watchers).await?;
    } else {
        let discovery = Discovery::<()>::new(&ours.clients[0], base);
        until(&discovery.open(SERVICE).await?, 0).await?;
        ours.registered = Some(discovery.register(Instance::new(SERVICE, "127.0.0.1")).await?);
    }
    Ok(stopwatch.stop(vec![started.elapsed()]))
}

/// Waits until a service has this number of instances.
async fn until(service: &Service<()>, count: usize) -> Result<(), Failure> {
    let mut changes = pin!(service.changes());
    while let Some(view) = changes.next().await {
        if view.endpoints.len() == count {
            return Ok(());
        }
    }
    Err("the service is not followed any more".into())
}
