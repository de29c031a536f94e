//! [`Filter`]: a command that reads its input, writes its output, and ends, such as one of a pipeline.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::process::guard::Guard;
use crate::process::{feed, not_started};

/// A command that is run again and again, each time with other input.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) command: Vec<OsString>,
    /// How long it may take to end after SIGTERM.
    pub(crate) grace: Duration,
}

/// Ends the processes of a run that is dropped before its end.
struct Ending(Option<Guard>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            guard.end_group();
        }
    }
}

impl Filter {
    /// Runs the command to its end, and returns its output, or why it failed. When this is dropped, its processes are ended.
    ///
    /// # Errors
    ///
    /// If the command does not start.
    pub(crate) async fn run(
        &self,
        input: &[u8],
        environment: &[(&str, String)],
    ) -> Result<Result<Vec<u8>, String>, Failure> {
        let (program, arguments) = self.command.split_first().ok_or(Failure::Told)?;
        let guard = Guard::start(self.grace)?;
        let mut command = Command::new(program);
        command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
        command.process_group(guard.group().as_raw()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| not_started(program, &error))?;
        let mut ending = Ending(Some(guard));
        let (done, ended) = oneshot::channel();
        let input = input.to_vec();
        // The pipes block, and what a thread waits for ends with the processes of the group.
        std::thread::spawn(move || done.send(to_its_end(child, input)).is_ok());
        let ended = ended.await.unwrap_or_else(|_gone| Err(std::io::ErrorKind::Other.into()));
        // What it has left in its group stays, as in a pipeline.
        drop(ending.0.take());
        let (status, output) = ended?;
        Ok(if status.success() { Ok(output) } else { Err(failure(status)) })
    }
}

/// Writes the input of a command while its output is read, and waits for its end.
fn to_its_end(mut child: Child, input: Vec<u8>) -> std::io::Result<(ExitStatus, Vec<u8>)> {
    if let Some(pipe) = child.stdin.take() {
        feed(pipe, input);
    }
    let mut output = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_end(&mut output)?;
    }
    Ok((child.wait()?, output))
}

fn failure(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_how_the_command_ended() {
        assert_eq!(failure(ExitStatus::from_raw(3 << 8)), "exit code 3");
        assert_eq!(failure(ExitStatus::from_raw(9)), "signal 9 ended it");
    }
}
