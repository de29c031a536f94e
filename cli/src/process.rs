//! [`Job`]: a command in a process group of its own, which is ended when the lock is lost.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use futures_util::future::{FutureExt as _, LocalBoxFuture, pending, select_all};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use synod::client::Client;
use synod::clock::{self, Vigil};
use synod::recipe::Held;
use synod::session::Session;
use tokio::time::{Instant, sleep, sleep_until};

use crate::failure::Failure;
use crate::process::guard::Guard;
use crate::process::signals::{Caught, Signals};
use crate::process::terminal::Terminal;

pub(crate) mod filter;
pub(crate) mod guard;
pub(crate) mod progress_file;
pub(crate) mod signals;
mod terminal;

/// The command to run.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) command: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// How long the command may take to end after SIGTERM.
    pub(crate) grace: Duration,
    /// What the command reads, instead of the input of this process.
    pub(crate) input: Option<Vec<u8>>,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With this exit code.
    Exited(u8),
    /// The command was ended because the lock was lost.
    Lost,
}

/// The next event while the command runs.
enum Next {
    Child,
    Caught(Caught),
    Lost,
    GraceOver,
}

/// The command while it runs, with all processes that it starts.
struct Group {
    child: Child,
    /// The first process of the group, whose id is the group's. It outlives the command.
    guard: Option<Guard>,
    id: Pid,
    terminal: Option<Terminal>,
}

/// The processes of a group that was not given up are ended: what runs the command may be dropped at any time.
impl Drop for Group {
    fn drop(&mut self) {
        self.take_terminal_back();
        if let Some(guard) = self.guard.take() {
            guard.end_group();
        }
    }
}

impl Job {
    /// Runs the command while `held` is held, and passes signals on to it.
    pub(crate) async fn run_while(
        self,
        client: &Client,
        held: &impl Held,
        signals: &mut Signals,
    ) -> Result<End, Failure> {
        let session = client.session().await?;
        let mut group = self.start()?;
        let danger = || endangered(held, &session, self.grace).boxed_local();
        let ended = group.watch(&danger, signals, self.grace).await;
        group.end(&ended).await;
        match ended {
            Ended { lost: true, .. } => Ok(End::Lost),
            // The command ended by itself, but the lock was no longer certain by then.
            Ended { .. } if !held.is_held() => Ok(End::Lost),
            Ended { code, .. } => Ok(End::Exited(code)),
        }
    }

    /// Runs the command to its end, and passes signals on to it. Returns its exit code.
    pub(crate) async fn run(self, signals: &mut Signals) -> Result<u8, Failure> {
        let mut group = self.start()?;
        let ended = group.watch(&|| pending().boxed_local(), signals, self.grace).await;
        group.end(&ended).await;
        Ok(ended.code)
    }

    fn start(&self) -> Result<Group, Failure> {
        let guard = Guard::start(self.grace)?;
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
                Ok(Group { child, id: guard.group(), guard: Some(guard), terminal })
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

/// Writes the input of a command. A thread waits for a command that reads slowly; one that reads nothing ends it.
fn feed(mut pipe: ChildStdin, input: Vec<u8>) {
    std::thread::spawn(move || {
        let _read = pipe.write_all(&input).is_ok();
    });
}

fn not_started(program: &OsString, error: &io::Error) -> Failure {
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    Failure::Exit(code, Some(format!("{}: {error}", program.display())))
}

/// How the command ended, and why.
#[derive(Clone, Copy, Debug)]
struct Ended {
    code: u8,
    lost: bool,
    /// When the remaining processes of the group are killed, if the group was sent SIGTERM.
    deadline: Option<Instant>,
}

impl Group {
    /// Waits for the end of the command, and ends it when it must.
    async fn watch<'a>(
        &mut self,
        danger: &dyn Fn() -> LocalBoxFuture<'a, ()>,
        signals: &mut Signals,
        grace: Duration,
    ) -> Ended {
        let (mut lost, mut deadline) = (false, None);
        loop {
            if let Some(code) = self.exit_code() {
                return Ended { code, lost, deadline };
            }
            match next(danger, signals, lost, deadline).await {
                Next::Child => {}
                Next::Caught(caught) => {
                    self.signal(caught.signal());
                    if caught == Caught::Terminate {
                        deadline = deadline.or(Some(Instant::now() + grace));
                    }
                }
                Next::Lost => {
                    lost = true;
                    self.signal(Signal::SIGTERM);
                    // A stopped process handles no signals before SIGCONT.
                    self.signal(Signal::SIGCONT);
                    deadline = deadline.or(Some(Instant::now() + grace));
                }
                Next::GraceOver => {
                    self.signal(Signal::SIGKILL);
                    deadline = None;
                }
            }
        }
    }

    /// The exit code of the command, if it ended; 128 + N if signal N ended it.
    fn exit_code(&self) -> Option<u8> {
        loop {
            let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
            match waitpid(Pid::from_raw(self.child.id().cast_signed()), Some(flags)) {
                Ok(WaitStatus::Exited(_, code)) => return Some(u8::try_from(code).unwrap_or(1)),
                Ok(WaitStatus::Signaled(_, signal, _)) => return Some(signals::exit_code(signal)),
                Ok(WaitStatus::Stopped(..)) => {
                    // Ctrl-Z stopped the command: give the terminal to the parent of this process.
                    if let Some(terminal) = &self.terminal {
                        terminal.stop_with(self.id);
                    }
                }
                Err(Errno::EINTR) => {}
                Ok(_) => return None,
                // Cannot happen: only this process waits for the child.
                Err(_) => return Some(1),
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let _there = killpg(self.id, signal).is_ok();
    }

    fn take_terminal_back(&mut self) {
        if let Some(terminal) = self.terminal.take() {
            terminal.take_back();
        }
    }

    /// Gives up the group. Processes that were sent SIGTERM and do not end are killed after the
    /// deadline.
    async fn end(mut self, ended: &Ended) {
        const LOOK: Duration = Duration::from_millis(10);
        self.take_terminal_back();
        let group = self.id;
        // The id of the group is not reused while a process of it remains.
        drop(self.guard.take());
        let Some(deadline) = ended.deadline else { return };
        while killpg(group, None).is_ok() {
            if Instant::now() >= deadline {
                let _there = killpg(group, Signal::SIGKILL).is_ok();
                return;
            }
            sleep(LOOK).await;
        }
    }
}

/// Waits for the next event. `danger` waits until the command must end.
async fn next<'a>(
    danger: &dyn Fn() -> LocalBoxFuture<'a, ()>,
    signals: &mut Signals,
    lost: bool,
    deadline: Option<Instant>,
) -> Next {
    let over: LocalBoxFuture<'_, Next> = match deadline {
        Some(deadline) => sleep_until(deadline).map(|()| Next::GraceOver).boxed_local(),
        None => pending().boxed_local(),
    };
    let endangered: LocalBoxFuture<'_, Next> =
        if lost { pending().boxed_local() } else { danger().map(|()| Next::Lost).boxed_local() };
    let caught = async {
        match signals.next().await {
            Caught::Child => Next::Child,
            caught => Next::Caught(caught),
        }
    };
    let (next, _, _) = select_all([over, endangered, caught.boxed_local()]).await;
    next
}

/// Waits until the lock is lost, or until only `grace` is left before it may be.
pub(crate) async fn endangered(held: &impl Held, session: &Session, grace: Duration) {
    let running_out = async {
        let status = session.status();
        loop {
            let until = status.borrow().until();
            let Some(alarm) = until.and_then(|until| until.checked_sub(grace)) else { return };
            if clock::now() >= alarm {
                return;
            }
            // By then the deadline of the session has usually moved on.
            Vigil::new().sleep_until(alarm).await;
        }
    };
    let lost = async { held.lost().await };
    futures_util::future::select(Box::pin(lost), Box::pin(running_out)).await;
}
