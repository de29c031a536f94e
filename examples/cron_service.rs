//! A cron service from its config file to its shutdown: of its processes one leads and runs a job
//! at intervals, by a schedule that is changed while it runs.
//!
//! ```text
//! cargo run --example cron_service
//! echo '{ "url": "zk://localhost:2181/cron?acl=open", "session": "10s" }' > cron.json
//! cargo run --features zookeeper --example cron_service -- cron.json
//! ```
//!
//! `SYNOD_STORE='zk://localhost:2181/cron?acl=open' synod set /schedule '{"every":"5s"}'` changes
//! the schedule meanwhile, and `synod lock /jobs/backup` keeps the job from running.

use std::error::Error as StdError;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, join, select};
use serde::{Deserialize, Serialize};
use synod::ErrorKind;
use synod::election::LeaderLatch;
use synod::lock::Mutex;
use synod::{Client, Config, ConnectionState, Held, Lifetime, Result, Txn, ValueWatch, path};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The configuration that an operator changes while the service runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Schedule {
    #[serde(with = "humantime_serde")]
    every: Duration,
}

/// The state that the service stores.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Last {
    runs: u64,
    by: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn StdError>> {
    tracing_subscriber::fmt().init();
    let config: Config = match std::env::args().nth(1) {
        Some(file) => serde_json::from_str(&std::fs::read_to_string(file)?)?,
        None => Config::new("mem://cron")?,
    };
    let client = config.connect().await?;
    let name = format!("process {}", std::process::id());
    serve(client, &name, async {
        let _either_way = tokio::signal::ctrl_c().await.is_ok();
    })
    .await?;
    Ok(())
}

/// Takes part until `stop`, and releases everything.
async fn serve(client: Client, name: &str, stop: impl Future<Output = ()>) -> Result<()> {
    let usual = Schedule { every: Duration::from_secs(1) };
    // The first process creates the nodes that are missing. Losing that race is not an error.
    let life = Lifetime::Persistent;
    let _first = client.create_value(&path!("/schedule"), &usual, life).await?.ok();
    let _first = client.create_value(&path!("/last"), &Last::default(), life).await?.ok();
    let followed = client.follow_value::<Schedule>(&path!("/schedule")).await?;
    let now = followed.current().map_or(usual, |schedule| schedule.value.clone());
    let (publish, schedule) = watch::channel(now);

    // They end with the client.
    let mut background = JoinSet::new();
    background.spawn(report(client.state()));
    background.spawn(follow(followed, publish));

    let (stopping, stopped) = watch::channel(false);
    let stop = async {
        stop.await;
        stopping.send_replace(true);
    };
    let (left, ()) = join(lead(&client, name, &schedule, stopped), stop).await;
    // The locks of the session are free for the others when this returns.
    let closed = client.close().await;
    while let Some(ended) = background.join_next().await {
        ended.expect("the tasks do not panic");
    }
    left.and(closed)
}

/// Logs the state of the connection.
async fn report(mut state: watch::Receiver<ConnectionState>) {
    while state.changed().await.is_ok() {
        let state = *state.borrow_and_update();
        tracing::info!(?state, "the connection changed");
    }
}

/// Forwards the schedule. A schedule that cannot be read changes nothing.
async fn follow(mut followed: ValueWatch<Schedule>, publish: watch::Sender<Schedule>) {
    loop {
        match followed.changed().await {
            Ok(()) => {
                if let Some(schedule) = followed.current() {
                    publish.send_replace(schedule.value.clone());
                }
            }
            // The client is closed.
            Err(error) if error.kind() == ErrorKind::SessionLost => return,
            Err(error) => tracing::warn!(%error, "the schedule stays as it is"),
        }
    }
}

/// Is a candidate until it receives a stop request, and runs the job while it leads.
async fn lead(
    client: &Client,
    name: &str,
    schedule: &watch::Receiver<Schedule>,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    let candidacy =
        LeaderLatch::new(client, path!("/leader")).label(name.to_owned()).join().await?;
    loop {
        let stopped = stop.wait_for(|stop| *stop);
        let lead = match select(pin!(candidacy.leading()), pin!(stopped)).await {
            Either::Left((Ok(lead), _)) => lead,
            Either::Left((Err(error), _)) if error.kind() == ErrorKind::SessionLost => {
                return Err(error);
            }
            Either::Left((Err(error), _)) => {
                tracing::warn!(%error, "could not campaign; trying again");
                continue;
            }
            Either::Right(_) => break,
        };
        // Dropped when the lead is lost, at any point.
        let work = Box::pin(jobs(client, name, &lead, schedule, &mut stop));
        match Box::pin(lead.run(work)).await {
            Ok(()) => break,
            Err(error) => tracing::warn!(%error, "another process leads"),
        }
    }
    candidacy.close().await
}

/// Runs the job at intervals, until it receives a stop request. A job that runs is finished first.
async fn jobs(
    client: &Client,
    name: &str,
    lead: &impl Held,
    schedule: &watch::Receiver<Schedule>,
    stop: &mut watch::Receiver<bool>,
) {
    loop {
        let every = schedule.borrow().every;
        let stopped = stop.wait_for(|stop| *stop);
        if let Either::Left(_) = select(pin!(stopped), pin!(sleep(every))).await {
            return;
        }
        match backup(client, name, lead).await {
            Ok(Some(runs)) => tracing::info!(runs, "the backup is done"),
            Ok(None) => tracing::warn!("the backup was left out: another has its lock, or leads"),
            Err(error) => tracing::warn!(%error, "the backup failed"),
        }
    }
}

/// Runs the job, and returns the number of the run. Its write commits only while this process leads
/// and has the lock.
async fn backup(client: &Client, name: &str, lead: &impl Held) -> Result<Option<u64>> {
    let lock = Mutex::new(client, path!("/jobs/backup")).label(name.to_owned());
    let Some(guard) = lock.lock_within(Duration::from_secs(1)).await? else { return Ok(None) };
    let at = path!("/last");
    let Some(last) = client.get_value::<Last>(&at).await? else { return Ok(None) };
    let next = Last { runs: last.value.runs + 1, by: name.to_owned() };
    let done = Txn::new().under(lead).under(&guard).set_value(&at, &next, last.unchanged())?;
    let written = client.commit(done).await?.is_committed();
    guard.release().await?;
    Ok(written.then_some(next.runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(5);

    /// Waits until the job was run this number of times.
    async fn runs(client: &Client, runs: u64) -> Last {
        loop {
            let last = client.get_value::<Last>(&path!("/last")).await.expect("memory answers");
            match last {
                Some(last) if last.value.runs >= runs => return last.value,
                _ => sleep(MOMENT).await,
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_of_two_leads_and_the_other_goes_on_when_it_is_stopped() {
        let config: Config = serde_json::from_str(
            r#"{ "url": "mem://cron-service", "namespace": "/cron", "session": "5s" }"#,
        )
        .expect("a config");
        let connect = async || config.connect().await.expect("memory is always there");
        let operator = connect().await;
        let quick = Schedule { every: MOMENT };
        operator.put_value(&path!("/schedule"), &quick).await.expect("memory answers");

        let mut services = JoinSet::new();
        let mut stops = Vec::new();
        for name in ["ann", "bob"] {
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let client = connect().await;
            services.spawn(async move {
                let stopped = async {
                    let _either_way = stopped.await.is_ok();
                };
                serve(client, name, stopped).await
            });
            stops.push((name, stop));
            // It becomes a candidate after the rest of its setup.
            while operator.children(&path!("/leader")).await.expect("memory answers").len()
                < stops.len()
            {
                sleep(MOMENT).await;
            }
        }
        runs(&operator, 3).await;
        // A schedule that cannot be read changes nothing.
        operator.put(&path!("/schedule"), "every day").await.expect("memory answers");
        let last = runs(&operator, 6).await;
        assert_eq!(last.by, "ann", "it came first");

        let (_ann, stop) = stops.remove(0);
        assert!(stop.send(()).is_ok(), "it runs");
        services.join_next().await.expect("two run").expect("no panic").expect("it leaves");
        let before = runs(&operator, 6).await;
        let last = runs(&operator, before.runs + 3).await;
        assert_eq!(last.by, "bob", "it leads now");

        let (_bob, stop) = stops.remove(0);
        assert!(stop.send(()).is_ok(), "it runs");
        services.join_next().await.expect("one runs").expect("no panic").expect("it leaves");
        let left = operator.children(&path!("/leader")).await.expect("memory answers");
        assert!(left.is_empty(), "no candidate is left: {left:?}");
        operator.close().await.expect("memory answers");
    }
}
