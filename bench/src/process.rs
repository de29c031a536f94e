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

/// How much longer than it was told a racer may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program that does tasks: it ends with its input, and at the latest when this is dropped.
#[derive(Debug)]
pub struct Process {
    _child: Child,
    tasks: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts the program, whose complaints go to the file at `log`.
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
        let tasks = child.stdin.take().ok_or("no way to tell it")?;
        let answers = child.stdout.take().ok_or("no way to hear it")?;
        Ok(Self { _child: child, tasks, answers: BufReader::new(answers).lines() })
    }

    async fn ask(&mut self, task: &Task) -> Result<Answer, Failure> {
        let mut line = serde_json::to_vec(task)?;
        line.push(b'\n');
        self.tasks.write_all(&line).await?;
        let answer = self.answers.next_line().await?;
        let answer = answer.ok_or("it ended before it answered; its log tells more")?;
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
