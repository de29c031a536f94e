//! [`Process`]: a racer in a process of its own, driven by lines.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::racer::{Answer, Failure, Racer};
use crate::report::Report;
use crate::task::Task;

/// Time that a racer may take beyond the requested time.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program that does tasks: it ends with its input, and at the latest when this is dropped.
#[derive(Debug)]
pub struct Process {
    _child: Child,
    tasks: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts the program, whose standard error goes to the file at `log`.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(program: &Path, arguments: &[&str], log: &Path) -> Result<Self, Failure> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(File::create(log)?).kill_on_drop(true);
        let started = command.spawn();
        let mut child = started.map_err(|error| format!("{}: {error}", program.display()))?;
        let tasks = child.stdin.take().ok_or("its standard input is not piped")?;
        let answers = child.stdout.take().ok_or("no way to hear it")?;
        Ok(Self { _child: child, tasks, answers: BufReader::new(answers).lines() })
    }

    async fn ask(&mut self, task: &Task) -> Result<Answer, Failure> {
        let mut line = serde_json::to_vec(task)?;
        line.push(b'\n');
        self.tasks.write_all(&line).await?;
        let answer = self.answers.next_line().await?;
        let answer = answer.ok_or("it ended before it answered; see its log")?;
        Ok(serde_json::from_str(&answer)?)
    }
}

#[async_trait(?Send)]
impl Racer for Process {
    async fn run(&mut self, task: &Task) -> Result<Option<Report>, Failure> {
        let limit = Duration::from_millis(task.millis) + PATIENCE;
        let answer = timeout(limit, self.ask(task)).await;
        match answer.map_err(|_| format!("no answer within {} s", limit.as_secs()))?? {
            Answer::Done(report) => Ok(Some(report)),
            Answer::Missing { .. } => Ok(None),
            Answer::Failed { failed } => Err(failed.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Work;

    /// A racer that is a line of shell.
    async fn run(script: &str) -> Result<Option<Report>, Failure> {
        let log = std::env::temp_dir().join(format!("synod-bench-{}.log", std::process::id()));
        let mut process = Process::start(Path::new("sh"), &["-c", script], &log)?;
        let done = process.run(&Task::laps(Work::Get, 1, 1)).await;
        drop(process);
        std::fs::remove_file(log).or_else(|gone| match gone.kind() {
            // Another one of these tests uses the same log.
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(gone),
        })?;
        done
    }

    #[tokio::test]
    async fn a_program_gets_a_task_and_returns_a_report() {
        let echo = r#"read task; case "$task" in *get*) echo '{"laps":1,"micros":4,"p50":1,"p90":2,"p99":3}';; esac"#;
        let report = run(echo).await.expect("it answers").expect("it can");
        assert_eq!((report.laps, report.p99, report.cpu), (1, 3.0, None));

        assert_eq!(run(r#"read task; echo '{"missing":"get"}'"#).await.expect("it answers"), None);
    }

    #[tokio::test]
    async fn a_program_that_fails_or_ends_is_reported() {
        let failed = run(r#"read task; echo '{"failed":"no server"}'"#).await;
        assert_eq!(failed.expect_err("it failed").to_string(), "no server");
        let ended = run("read task; exit 1").await.expect_err("it ended").to_string();
        assert!(ended.contains("ended before it answered"), "{ended}");
        let none = Process::start(Path::new("/nowhere/to/be/found"), &[], Path::new("/dev/null"));
        assert!(none.expect_err("nothing is there").to_string().contains("/nowhere/to/be/found"));
    }
}
