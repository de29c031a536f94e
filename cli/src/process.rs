//! [`Job`]: a command in its own process group, which is ended when the lock is lost.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use synod::Client;
use synod::Held;
use synod::Session;
use synod_core::store::SessionFiles;

use crate::failure::Failure;
use crate::process::group::Group;
use crate::process::guard::Guard;
use crate::process::signals::Signals;
use crate::process::tenure::Tenure;
use crate::process::terminal::Terminal;

mod boot_time;
pub(crate) mod filter;
mod group;
pub(crate) mod guard;
mod members;
pub(crate) mod progress_file;
pub(crate) mod signals;
pub(crate) mod tenure;
mod terminal;

/// The command to run.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) command: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Time that the command may take to end after SIGTERM.
    pub(crate) grace: Duration,
    /// The input of the command, instead of the input of this process.
    pub(crate) input: Option<Vec<u8>>,
}

/// The way in which the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The command exited with this code.
    Exited(u8),
    /// The command was ended because the lock was lost.
    Lost,
}

impl Job {
    /// Runs the command while `held` is held, and passes signals on to it. Processes that the
    /// command leaves in its group are ended with it.
    pub(crate) async fn run_while(
        self,
        client: &Client,
        held: &impl Held,
        signals: &mut Signals,
    ) -> Result<End, Failure> {
        let session = client.session().await?;
        let Some(mut tenure) = Tenure::new(held, &session, self.grace) else {
            return Ok(End::Lost);
        };
        let mut group = self.start(&copies(session_files(&session).as_deref())?)?;
        let ended = group.watch(Some(&mut tenure), signals, self.grace).await;
        let is_held = held.is_held();
        group.end_all(&ended, &mut tenure, self.grace).await;
        // If the command ended after the lock was no longer certain, the lock also counts as lost.
        Ok(if ended.lost || !is_held { End::Lost } else { End::Exited(ended.code) })
    }

    /// Runs the command to its end, and passes signals on to it. Returns its exit code. If this
    /// process is killed, the session, if one is given, ends after the command.
    pub(crate) async fn run(
        self,
        session: Option<&Session>,
        signals: &mut Signals,
    ) -> Result<u8, Failure> {
        let files = match session {
            Some(session) => copies(session_files(session).as_deref())?,
            None => Vec::new(),
        };
        let mut group = self.start(&files)?;
        let ended = group.watch(None, signals, self.grace).await;
        group.end(&ended).await;
        Ok(ended.code)
    }

    fn start(&self, files: &[OwnedFd]) -> Result<Group, Failure> {
        let guard = Guard::start(self.grace, files)?;
        let terminal = Terminal::of_foreground().filter(|_| self.input.is_none());
        if let Some(terminal) = &terminal {
            terminal.give(guard.group());
        }
        let (program, arguments) = self.command.split_first().ok_or(Failure::Told)?;
        let mut command = Command::new(program);
        command.args(arguments).envs(self.environment.iter().cloned());
        command.process_group(guard.group().as_raw());
        if self.input.is_some() {
            command.stdin(Stdio::piped());
        }
        match command.spawn() {
            Ok(mut child) => {
                if let (Some(pipe), Some(input)) = (child.stdin.take(), &self.input) {
                    feed(pipe, input.clone());
                }
                Ok(Group::new(child, guard, terminal))
            }
            Err(error) => {
                if let Some(terminal) = &terminal {
                    terminal.take_back();
                }
                Err(not_started(program, &error))
            }
        }
    }
}

/// Returns the files that keep a session alive, if its store has such files.
pub(crate) fn session_files(session: &Session) -> Option<Arc<SessionFiles>> {
    session.info().extension()
}

/// Copies the files that keep a session alive, for the guard of a command.
fn copies(files: Option<&SessionFiles>) -> Result<Vec<OwnedFd>, Failure> {
    let copied = files.map_or(Ok(Vec::new()), SessionFiles::copy);
    copied.map_err(|error| Failure::plain(format!("the files of the session: {error}")))
}

/// Writes the input of a command. The thread waits for a command that reads slowly, and ends if the
/// command does not read.
fn feed(mut pipe: ChildStdin, input: Vec<u8>) {
    std::thread::spawn(move || {
        let _read = pipe.write_all(&input).is_ok();
    });
}

fn not_started(program: &OsString, error: &io::Error) -> Failure {
    let shown = program.display().to_string();
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    // The command may be one string, as for `flock -c`.
    let hint = if is_missing && shown.contains(' ') {
        "; for a line of a shell say: sh -c LINE"
    } else {
        ""
    };
    let text = format!("{}: {error}{hint}", shown.escape_debug());
    Failure::Exit(if is_missing { 127 } else { 126 }, Some(text))
}
