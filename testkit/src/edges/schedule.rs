//! The arguments of schedules.

use std::convert::Infallible;
use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_recipes::schedule::{Schedule, ScheduledRun, Timetable};
use tokio::sync::Notify;

use crate::recipe::edge::{Takes, check, first, ignore_panic, positive};

pub(crate) const SCHEDULE: Takes = Takes {
    texts: &[
        first("label", |client, path, label| {
            Box::pin(async move {
                let schedule = Schedule::new(&client, &path, once()).label(&label);
                runs(&schedule, &path).await?;
                let state = schedule.state().await?.and_then(|state| state.last);
                check(state.is_some_and(|last| last.by == label), "showing a label", &path)
            })
        }),
        first("cron", |client, path, expression| {
            Box::pin(async move { begins(&client, &path, Timetable::cron(&expression)?).await })
        }),
        first("cron_in", |client, path, zone| {
            Box::pin(async move {
                begins(&client, &path, Timetable::cron_in("0 3 * * *", &zone)?).await
            })
        }),
    ],
    numbers: &[
        first("attempts", |client, path, attempts| {
            Box::pin(async move {
                let schedule = Schedule::new(&client, &path, once());
                runs(&schedule.attempts(positive(attempts)?, Duration::ZERO), &path).await
            })
        }),
        first("catch_up", |client, path, dates| {
            Box::pin(async move {
                let schedule = Schedule::new(&client, &path, once());
                runs(&schedule.catch_up(positive(dates)?), &path).await
            })
        }),
    ],
    times: &[
        first("every", |client, path, period| {
            Box::pin(async move { begins(&client, &path, Timetable::every(period)).await })
        }),
        first("attempts", |client, path, pause| {
            Box::pin(async move {
                let schedule = Schedule::new(&client, &path, once());
                let two = positive(2)?;
                runs(&schedule.attempts(two, pause), &path).await
            })
        }),
        first("start_within", |client, path, limit| {
            Box::pin(async move {
                // The date has passed long ago: it has a run, or is too late.
                let schedule = Schedule::new(&client, &path, once()).start_within(limit);
                schedule.run(|_run| ready(Ok::<_, Infallible>(()))).await
            })
        }),
    ],
    functions: &[
        first("run", |client, path, trap| {
            Box::pin(async move {
                let schedule = Schedule::new(&client, &path, once()).attempts(positive(2)?, NONE);
                let work = async |_run: ScheduledRun| {
                    trap.spring();
                    Ok::<_, Infallible>(())
                };
                ignore_panic(schedule.run(work)).await;
                schedule.run(work).await
            })
        }),
        first("run_until", |client, path, trap| {
            Box::pin(async move {
                let schedule = Schedule::new(&client, &path, once()).attempts(positive(2)?, NONE);
                let work = |_run: ScheduledRun| {
                    trap.spring();
                    ready(Ok::<_, Infallible>(()))
                };
                let stop = std::future::pending;
                ignore_panic(schedule.run_until(stop(), work)).await;
                schedule.run_until(stop(), work).await
            })
        }),
    ],
    ..Takes::NONE
};

const NONE: Duration = Duration::ZERO;

/// A date that has passed.
fn once() -> Timetable {
    Timetable::at(SystemTime::UNIX_EPOCH)
}

/// Runs the schedule of a single date.
async fn runs(schedule: &Schedule, path: &Path) -> Result<()> {
    let runs = AtomicUsize::new(0);
    let run = |_run| {
        runs.fetch_add(1, Ordering::Relaxed);
        ready(Ok::<_, Infallible>(()))
    };
    schedule.run(run).await?;
    check(runs.load(Ordering::Relaxed) == 1, "running a schedule", path)
}

/// Runs a schedule until it has adopted the timetable, whenever its dates are.
async fn begins(client: &Client, path: &Path, timetable: Timetable) -> Result<()> {
    let (stop, shown) = (Notify::new(), timetable.to_string());
    let schedule = Schedule::new(client, path, timetable);
    let adopted = async {
        loop {
            let state = schedule.state().await;
            match state {
                Ok(Some(state)) => break check(state.timetable == shown, "showing dates", path),
                Ok(None) => synod_core::clock::sleep(Duration::from_millis(1)).await,
                Err(error) => break Err(error),
            }
        }
    };
    let adopted = async {
        let adopted = adopted.await;
        stop.notify_one();
        adopted
    };
    let run = schedule.run_until(stop.notified(), |_run| ready(Ok::<_, Infallible>(())));
    futures_util::future::try_join(run, adopted).await.map(drop)
}
