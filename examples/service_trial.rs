//! Tests a service that never ends in the simulator: workers that take jobs from a queue.
//!
//! `careless` takes each job and then does it. `careful` claims it, does it, and acknowledges it:
//! a job whose worker crashed meanwhile is delivered again.
//!
//! ```sh
//! cargo run --release --example service_trial --features sim
//! ```

#![expect(clippy::print_stdout, reason = "its output is for people")]

use std::collections::BTreeSet;
use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::select;
use synod::queue::{Delivery, Queue};
use synod::sim::{Hunt, Process, Sim};
use synod::{Client, path};

/// The law of the service.
const LAW: &str = "each accepted job is done";

/// A log shared by all processes, which only a simulation can have.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Jobs>>);

#[derive(Default)]
struct Jobs {
    accepted: BTreeSet<String>,
    done: BTreeSet<String>,
}

impl Log {
    fn accepted(&self, job: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).accepted.insert(job);
    }

    fn done(&self, job: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).done.insert(job.to_owned());
    }

    /// Returns an error that names the accepted jobs that nobody has done.
    fn check(&self) -> Result<(), String> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lost: Vec<_> = jobs.accepted.difference(&jobs.done).collect();
        if lost.is_empty() { Ok(()) } else { Err(format!("nobody did {lost:?}")) }
    }
}

fn jobs(client: &Client) -> Queue<String> {
    Queue::new(client, path!("/jobs"))
}

/// Puts a few jobs. A put that failed may be stored or not, so it is not in the log.
async fn producer(me: Process, log: Log) {
    let Ok(client) = me.client().await else { return };
    for number in 0..me.rounds(4) {
        let job = format!("{} {}.{number}", me.name(), me.life());
        if jobs(&client).put(&job).await.is_ok() {
            log.accepted(job);
        }
        me.rest(Duration::from_millis(500)).await;
    }
}

/// Runs a service until everything is repaired: a process that never ends would be reported as one
/// that hangs.
async fn until_mended(me: &Process, service: impl Future<Output = ()>) {
    let _either = select(pin!(service), pin!(me.mended())).await;
}

async fn careless(me: Process, log: Log) {
    let Ok(client) = me.client().await else { return };
    let service = async {
        loop {
            let job = jobs(&client).take().await;
            me.rest(Duration::from_millis(200)).await;
            if let Ok(job) = job {
                log.done(&job);
            }
        }
    };
    until_mended(&me, service).await;
}

async fn careful(me: Process, log: Log) {
    let Ok(client) = me.client().await else { return };
    let service = async {
        loop {
            let work = async |delivery: Arc<Delivery<String>>| {
                me.rest(Duration::from_millis(200)).await;
                log.done(delivery.item());
                Ok::<(), String>(())
            };
            // It fails if the store refuses a request: then it begins again.
            let forever = std::future::pending();
            let _refused = jobs(&client).consume(NonZeroUsize::MIN, forever, work).await;
            me.rest(Duration::from_millis(200)).await;
        }
    };
    until_mended(&me, service).await;
}

/// Does the jobs that are left once everything is repaired, and checks that none is missing. Other
/// processes may be gone for ever.
async fn none_is_lost(me: Process, log: Log) -> Result<(), String> {
    let client = me.client().await.map_err(|error| error.to_string())?;
    let jobs = jobs(&client);
    while jobs.len().await.map_err(|error| error.to_string())? > 0 {
        match jobs.try_claim().await {
            Ok(Some(delivery)) => {
                log.done(delivery.item());
                delivery.ack().await.map_err(|error| error.to_string())?;
            }
            // A worker that is gone has a claim until its session is over.
            Ok(None) => me.rest(me.ttl()).await,
            Err(error) => return Err(error.to_string()),
        }
    }
    log.check()
}

fn trial<F>(name: &str, worker: fn(Process, Log) -> F) -> Hunt
where
    F: Future<Output = ()> + Send + 'static,
{
    Hunt::new(name, move |sim: Sim| {
        let log = Log::default();
        let (puts, works, checks) = (log.clone(), log.clone(), log);
        sim.process("producer", move |me| producer(me, puts.clone()))
            .processes(2, move |me| worker(me, works.clone()))
            .eventually(LAW, move |me| none_is_lost(me, checks))
    })
}

fn main() {
    let found = trial("careless", careless).seeds(0..1_000).or_as_told().run();
    match &found.failure {
        Some(failure) => println!("{failure}\n"),
        None => println!("careless: {} histories, nothing found\n", found.tally.histories),
    }
    let found = trial("careful", careful).seeds(0..1_000).or_as_told().run();
    found.expect_clean();
    println!("careful: {} histories, nothing broken", found.tally.histories);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_careless_worker_is_found_out_and_the_careful_one_is_not() {
        let found = trial("careless", careless).seeds(0..1_000).run();
        let failure = found.failure.expect("a thousand histories are enough");
        assert_eq!(failure.violation.law, LAW);
        trial("careful", careful).seeds(0..200).run().expect_clean();
    }
}
