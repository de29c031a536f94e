//! [`Racer`]: whoever does a [`Task`], and how one is driven from another process.

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::report::{Report, Stopwatch};
use crate::task::Task;

/// Why a task was not done.
pub type Failure = Box<dyn Error + Send + Sync>;

/// One client library, at work on one server.
#[async_trait(?Send)]
pub trait Racer {
    /// Does the task; `None` if it has nothing that does it.
    ///
    /// # Errors
    ///
    /// If the store fails it.
    async fn run(&mut self, task: &Task) -> Result<Option<Report>, Failure>;
}

/// What a racer in a process of its own answers to each task, each on a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[expect(clippy::exhaustive_enums, reason = "the protocol")]
pub enum Answer {
    /// It was done.
    Done(Report),
    /// It has nothing that does it.
    Missing {
        /// What was asked for.
        missing: String,
    },
    /// It failed.
    Failed {
        /// Why.
        failed: String,
    },
}

/// Has a client for each of the lanes do laps, until the task is over.
///
/// # Errors
///
/// The first of any lane.
pub async fn drive<L>(task: &Task, lanes: Vec<L>) -> Result<Report, Failure>
where
    L: AsyncFnMut() -> Result<(), Failure>,
{
    let watch = Stopwatch::start(task);
    let lanes = lanes.into_iter().map(async |mut lane: L| {
        let mut laps: Vec<Duration> = Vec::new();
        while watch.goes_on(laps.len()) {
            let started = Instant::now();
            lane().await?;
            laps.push(started.elapsed());
        }
        Ok::<_, Failure>(laps)
    });
    let laps: Result<Vec<_>, Failure> = join_all(lanes).await.into_iter().collect();
    Ok(watch.stop(laps?.concat()))
}

/// Does tasks for another process, until that closes the input: a task on each line there, an
/// answer on each line here.
///
/// # Errors
///
/// If nobody reads the answers.
pub fn serve(
    runtime: &Runtime,
    racer: &mut dyn Racer,
    tasks: impl BufRead,
    mut answers: impl Write,
) -> io::Result<()> {
    for line in tasks.lines() {
        let line = line?;
        let answer = match serde_json::from_str(&line) {
            Ok(task) => answer(&task, runtime.block_on(racer.run(&task))),
            Err(error) => Answer::Failed { failed: format!("not a task: {error}: {line}") },
        };
        serde_json::to_writer(&mut answers, &answer)?;
        answers.write_all(b"\n")?;
        answers.flush()?;
    }
    Ok(())
}

fn answer(task: &Task, done: Result<Option<Report>, Failure>) -> Answer {
    match done {
        Ok(Some(report)) => Answer::Done(report),
        Ok(None) => Answer::Missing { missing: task.work.to_string() },
        Err(failure) => Answer::Failed { failed: failure.to_string() },
    }
}
