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
    texts: &[first("label", |client, path, label| {
        Box::pin(async move {
            let schedule = Schedule::new(&client, &path, often()).label(&label);
            runs(&schedule, &path).await?;
            let state = schedule.state().await?.and_then(|state| state.last);
            check(state.is_some_and(|last| last.by == label), "showing a label", &path)
        })
    })],
    numbers: &[
        first("attempts", |client, path, attempts| {
            Box::pin(async move {
                let schedule = Schedule::new(&client, &path, often());
                runs(&schedule.attempts(positive(attempts)?, Duration::ZERO), &path).await
            })
        }),
        first("catch_up", |client, path, dates| {
            Box::pin(async move {
                let schedule = Schedule::new(&client, &path, often());
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
                let schedule = Schedule::new(&client, &path, often());
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

fn often() -> Timetable {
    Timetable::every(Duration::from_millis(1))
}

/// Runs a schedule until its next date.
async fn runs(schedule: &Schedule, path: &Path) -> Result<()> {
    let (runs, stop) = (AtomicUsize::new(0), Notify::new());
    let run = |_run| {
        runs.fetch_add(1, Ordering::Relaxed);
        stop.notify_one();
        ready(Ok::<_, Infallible>(()))
    };
    schedule.run_until(stop.notified(), run).await?;
    check(runs.load(Ordering::Relaxed) == 1, "running a schedule", path)
}

/// Runs a schedule until it has adopted the timetable, whenever its dates are.
async fn begins(client: &Client, path: &Path, timetable: Timetable) -> Result<()> {
    let (stop, shown) = (Notify::new(), timetable.to_string());
    let schedule = Schedule::new(client, path, timetable);
    let adopted = async {
        loop {
            match schedule.state().await {
                Ok(Some(state)) if state.timetable == shown => break Ok(()),
                Ok(_) => synod_core::clock::sleep(Duration::from_millis(1)).await,
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
