//! [`Filter`]: a command that reads its input, writes its output, and ends, such as one of a
//! pipeline.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use synod_core::store::SessionFiles;
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::process::guard::Guard;
use crate::process::{copies, feed, not_started};

/// A command that is run repeatedly, each time with other input.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) command: Vec<OsString>,
    /// Time that the command may take to end after SIGTERM.
    pub(crate) grace: Duration,
    /// The largest output, in bytes. A run with a larger output is ended and fails.
    pub(crate) max_output: usize,
    /// The files of the session that is not to end before the command.
    pub(crate) session_files: Option<Arc<SessionFiles>>,
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
    /// Runs the command to its end, and returns its output, or the reason for its failure. When
    /// this is dropped, its processes are ended.
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
        let guard = Guard::start(self.grace, &copies(self.session_files.as_deref())?)?;
        let mut command = Command::new(program);
        command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
        command.process_group(guard.group().as_raw()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| not_started(program, &error))?;
        let mut ending = Ending(Some(guard));
        let (done, ended) = oneshot::channel();
        let (input, max_output) = (input.to_vec(), self.max_output);
        // The pipes block; the thread ends with the processes of the group.
        std::thread::spawn(move || to_its_end(child, input, max_output, done));
        let ended = ended.await.unwrap_or_else(|_gone| Err(std::io::ErrorKind::Other.into()))?;
        let Some((status, output)) = ended else {
            return Ok(Err(format!("its output is larger than {max_output} bytes")));
        };
        // Processes that the command has left in its group stay, as in a pipeline.
        drop(ending.0.take());
        Ok(if status.success() { Ok(output) } else { Err(failure(status)) })
    }
}

/// The exit status and the output of a command; `None` if the output is too large.
type Run = std::io::Result<Option<(ExitStatus, Vec<u8>)>>;

/// Writes the input of a command while its output is read, and waits for its end.
fn to_its_end(mut child: Child, input: Vec<u8>, max_output: usize, done: oneshot::Sender<Run>) {
    if let Some(pipe) = child.stdin.take() {
        feed(pipe, input);
    }
    let output = match child.stdout.take() {
        Some(pipe) => read_up_to(pipe, max_output),
        None => Ok(Some(Vec::new())),
    };
    match output {
        Ok(Some(output)) => {
            let ended = child.wait().map(|status| Some((status, output)));
            let _awaited = done.send(ended).is_ok();
        }
        // The reader of this ends the command.
        other => {
            let _awaited = done.send(other.map(|_too_large| None)).is_ok();
            let _ended = child.wait().is_ok();
        }
    }
}

/// Reads to the end; `None` if that is more than `max` bytes.
fn read_up_to(from: impl std::io::Read, max: usize) -> std::io::Result<Option<Vec<u8>>> {
    let (mut read, limit) = (Vec::new(), u64::try_from(max).unwrap_or(u64::MAX));
    from.take(limit.saturating_add(1)).read_to_end(&mut read)?;
    Ok((read.len() <= max).then_some(read))
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
    fn an_output_is_read_up_to_its_limit() {
        for (length, max, fits) in [(0, 0, true), (1, 0, false), (7, 7, true), (8, 7, false)] {
            let bytes = vec![b'x'; length];
            let read = read_up_to(&*bytes, max).expect("memory can be read");
            assert_eq!(read, fits.then_some(bytes), "{length} of {max}");
        }
        assert_eq!(read_up_to(&b"x"[..], usize::MAX).expect("readable"), Some(b"x".to_vec()));
        // Endless output is not read beyond the limit, either.
        assert_eq!(read_up_to(std::io::repeat(b'x'), 10_000).expect("readable"), None);
    }

    #[test]
    fn a_failure_says_how_the_command_ended() {
        assert_eq!(failure(ExitStatus::from_raw(3 << 8)), "exit code 3");
        assert_eq!(failure(ExitStatus::from_raw(9)), "signal 9 ended it");
    }
}
