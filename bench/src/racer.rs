//! [`Racer`]: a client that does a [`Task`], and the protocol that drives it from another process.

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use crate::report::{Report, Stopwatch};
use crate::task::Task;

/// The reason why a task was not done.
pub type Failure = Box<dyn Error + Send + Sync>;

/// One client library, working on one server.
#[async_trait(?Send)]
pub trait Racer {
    /// Does the task; `None` if it does not support it.
    ///
    /// # Errors
    ///
    /// If a call to the store fails.
    async fn run(&mut self, task: &Task) -> Result<Option<Report>, Failure>;
}

/// The answer of a racer in a process of its own to a task, on one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[expect(clippy::exhaustive_enums, reason = "the protocol")]
pub enum Answer {
    /// The task was done.
    Done(Report),
    /// The racer does not support it.
    Missing {
        /// The name of the work.
        missing: String,
    },
    /// The task failed.
    Failed {
        /// The reason for the failure.
        failed: String,
    },
}

/// Makes a client for each of the lanes do laps, until the task is over.
///
/// # Errors
///
/// The first error of any lane.
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

/// Does tasks for another process, until that closes the input: a task per line of input, an answer
/// per line of output. Sessions stay open between tasks.
///
/// # Errors
///
/// If the answers cannot be written.
pub fn serve(
    runtime: &Runtime,
    racer: &mut dyn Racer,
    tasks: impl BufRead + Send + 'static,
    mut answers: impl Write,
) -> io::Result<()> {
    let (sender, mut lines) = unbounded_channel();
    // A thread that waits for input cannot keep sessions alive meanwhile, so another thread reads.
    let reading = std::thread::spawn(move || {
        for line in tasks.lines() {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    runtime.block_on(async {
        while let Some(line) = lines.recv().await {
            let line = line?;
            let answer = match serde_json::from_str(&line) {
                Ok(task) => answer(&task, racer.run(&task).await),
                Err(error) => Answer::Failed { failed: format!("not a task: {error}: {line}") },
            };
            serde_json::to_writer(&mut answers, &answer)?;
            answers.write_all(b"\n")?;
            answers.flush()?;
        }
        Ok::<_, io::Error>(())
    })?;
    reading.join().map_err(|_panic| io::Error::other("reading the tasks failed"))
}

fn answer(task: &Task, done: Result<Option<Report>, Failure>) -> Answer {
    match done {
        Ok(Some(report)) => Answer::Done(report),
        Ok(None) => Answer::Missing { missing: task.work.to_string() },
        Err(failure) => Answer::Failed { failed: failure.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::report;
    use crate::task::Work;

    struct Fake;

    #[async_trait(?Send)]
    impl Racer for Fake {
        async fn run(&mut self, task: &Task) -> Result<Option<Report>, Failure> {
            match task.work {
                Work::Get => Ok(Some(report(vec![Duration::from_micros(2)], 2.0, None, None))),
                Work::Lock => Err("out of order".into()),
                _ => Ok(None),
            }
        }
    }

    #[test]
    fn each_line_is_answered_by_one() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let tasks = "{\"work\":\"get\",\"clients\":1,\"millis\":5}\n\
            {\"work\":\"lock\",\"clients\":2,\"laps\":5}\n\
            {\"work\":\"drain\",\"clients\":3}\n\
            {\"work\":\"nap\"}\n";
        let mut told = Vec::new();
        serve(&runtime, &mut Fake, tasks.as_bytes(), &mut told).expect("there is room");

        let told = String::from_utf8(told).expect("text");
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[0].starts_with("{\"laps\":1,\"micros\":2.0,"), "{told}");
        assert_eq!(lines[1], "{\"failed\":\"out of order\"}");
        assert_eq!(lines[2], "{\"missing\":\"lock, drain\"}");
        assert!(lines[3].contains("not a task") && lines.len() == 4, "{told}");
    }

    /// Input that arrives only after something else has happened.
    struct Late(std::sync::mpsc::Receiver<()>);

    impl io::Read for Late {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            // The end of the input: the sender is gone.
            let _happened = self.0.recv().is_ok();
            Ok(0)
        }
    }

    #[test]
    fn what_keeps_sessions_alive_goes_on_between_tasks() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (sender, receiver) = std::sync::mpsc::channel();
        let _beating = runtime.spawn(async move { sender.send(()) });

        // This would wait for ever if the task did not run while the input is awaited.
        let input = io::BufReader::new(Late(receiver));
        serve(&runtime, &mut Fake, input, Vec::new()).expect("there is room");
    }

    #[tokio::test(start_paused = true)]
    async fn all_lanes_work_until_the_task_is_over() {
        let lane = |pause: u64| {
            async move || {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                Ok(())
            }
        };
        let task = Task::lasting(Work::Get, 2, Duration::from_millis(10));
        let report = drive(&task, vec![lane(5), lane(2)]).await.expect("nothing fails");
        assert_eq!(report.laps, 7);

        let failing = vec![async || Err("no".into())];
        assert_eq!(drive(&task, failing).await.expect_err("it fails").to_string(), "no");
    }
}
