//! [`Recipes`]: the recipes of synod, on a directory or on a server.

use std::future::pending;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use synod::cache::Cache;
use synod::lock::{Mutex, MutexGuard};
use synod::queue::Queue;
use synod::value::Counter;
use synod::{Client, ClientWatch, Query, path};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep};

use super::job::{Job, Rival, add_one};
use super::lap::{Lap, clock};
use super::sqlite::PAUSE;
use crate::crowd::Crowd;
use crate::racer::Failure;

/// The time to live of sessions: longer than any measurement.
const SESSION: u64 = 60_000;

/// The shortest time to live that a server allows, where it determines the result.
const SHORT_SESSION: u64 = 4_000;

/// One client of a store.
pub(super) struct Recipes {
    runtime: Runtime,
    client: Client,
    job: Job,
    index: usize,
    sum: PathBuf,
    mutex: Mutex,
    counter: Counter,
    queue: Queue<String>,
    watch: Option<ClientWatch>,
    /// Held until the process is killed.
    held: Option<MutexGuard>,
}

/// The URL of a store. `place` is its directory, or the address of its server.
pub(super) fn url(rival: Rival, job: Job, place: &str) -> String {
    let session = if job == Job::Death { SHORT_SESSION } else { SESSION };
    match rival {
        Rival::Zookeeper => format!("zk://{place}?acl=open&session={session}ms"),
        Rival::Etcd => format!("etcd://{place}?session={session}ms"),
        // Its time to live does not matter.
        _ => format!("file://{place}/store?session={SESSION}ms"),
    }
}

impl Recipes {
    pub(super) fn open(
        rival: Rival,
        job: Job,
        place: &str,
        sum: &FilePath,
        index: usize,
    ) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let url = url(rival, job, place);
        let (client, watch) = runtime.block_on(async {
            let client = synod::connect(&url).await?;
            let watch = if job == Job::Wake && index > 0 {
                let watched = client.watch(Query::node(path!("/stamp"))).await?;
                Some(watched.1)
            } else {
                None
            };
            Ok::<_, Failure>((client, watch))
        })?;
        let mutex = Mutex::new(&client, path!("/lock"));
        let counter = Counter::new(&client, path!("/counter"));
        let queue = Queue::new(&client, path!("/queue"));
        let sum = sum.to_owned();
        Ok(Self { runtime, client, job, index, sum, mutex, counter, queue, watch, held: None })
    }
}

impl Lap for Recipes {
    fn lap(&mut self) -> Result<Duration, Failure> {
        let Self { runtime, client, job, index, sum, mutex, counter, queue, watch, .. } = self;
        let item = "x".repeat(crate::ours::DATA.len() - 2);
        runtime.block_on(async {
            let started = Instant::now();
            match job {
                Job::Lock => {
                    let guard = mutex.lock().await?;
                    add_one(sum)?;
                    guard.release().await?;
                }
                Job::QueueTake => {
                    queue.put(&item).await?;
                    queue.take().await?;
                }
                Job::QueueAck => {
                    queue.put(&item).await?;
                    queue.claim().await?.ack().await?;
                }
                Job::Counter => drop(counter.increment().await?),
                Job::Wake if *index == 0 => {
                    client.put(&path!("/stamp"), clock().to_string()).await?;
                    sleep(PAUSE).await;
                }
                Job::Wake => {
                    let event = match watch {
                        Some(watch) => watch.next().await,
                        None => pending().await,
                    };
                    let now = clock();
                    let Some(synod::Event::Changed(change)) = event else {
                        return Err("the watch has ended".into());
                    };
                    let stamp = match change.node {
                        Some(node) => node.data,
                        None => client.get(&change.path).await?.ok_or("no stamp")?.data,
                    };
                    let stamp: u64 = std::str::from_utf8(&stamp)?.parse()?;
                    return Ok(Duration::from_nanos(now.saturating_sub(stamp)));
                }
                Job::CacheSmall | Job::CacheLarge => {
                    let crowd = Crowd::of(job.nodes());
                    let cache = Cache::open(client, crowd.dir()?).await?;
                    let complete = started.elapsed();
                    crowd.expect(cache.snapshot().iter())?;
                    return Ok(complete);
                }
                Job::Death => return Err("a death is no lap".into()),
            }
            Ok(started.elapsed())
        })
    }

    fn hold(&mut self) -> Result<(), Failure> {
        let Self { runtime, mutex, held, .. } = self;
        runtime.block_on(async {
            *held = Some(mutex.lock().await?);
            Ok(())
        })
    }
}
