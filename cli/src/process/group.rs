//! [`Group`]: a command while it runs, with all processes that it starts.

use std::process::Child;
use std::time::Duration;

use futures_util::future::{FutureExt as _, LocalBoxFuture, pending, select_all};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use synod::clock::{self, Vigil};
use tokio::time::{Instant, sleep};

use crate::process::guard::Guard;
use crate::process::signals::{self, Caught, Signals};
use crate::process::tenure::{Change, Tenure};
use crate::process::terminal::Terminal;

/// The pause between two checks of the processes of a group.
const LOOK: Duration = Duration::from_millis(10);

/// The time limit for the end of processes that were killed. A process that waits for a device may
/// end later.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// The command while it runs, with all processes that it starts.
pub(super) struct Group {
    child: Child,
    /// The first process of the group, whose id is also the id of the group. It outlives the
    /// command.
    guard: Option<Guard>,
    id: Pid,
    terminal: Option<Terminal>,
}

/// The end of the command, and the reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) code: u8,
    pub(super) lost: bool,
    /// The time at which the remaining processes of the group are killed, if the group was sent
    /// SIGTERM.
    deadline: Option<Instant>,
}

/// The next event while the command runs.
enum Next {
    Child,
    Caught(Caught),
    Renewed,
    Lost,
    GraceOver,
}

/// The state of the command.
enum State {
    Runs,
    Ended(u8),
    /// The command was stopped, and was not continued, because the lock was lost in the meantime.
    Lapsed,
}

/// The processes of a group that was not left are ended: the future that runs the command may be
/// dropped at any time.
impl Drop for Group {
    fn drop(&mut self) {
        self.take_terminal_back();
        if let Some(guard) = self.guard.take() {
            guard.end_group();
        }
    }
}

impl Group {
    pub(super) fn new(child: Child, guard: Guard, terminal: Option<Terminal>) -> Self {
        Self { child, id: guard.group(), guard: Some(guard), terminal }
    }

    /// Waits for the end of the command, and ends the command when the lock is lost or a signal
    /// requires it.
    pub(super) async fn watch(
        &mut self,
        mut tenure: Option<&mut Tenure<'_>>,
        signals: &mut Signals,
        grace: Duration,
    ) -> Ended {
        let (mut lost, mut deadline, mut killed) = (false, None, false);
        loop {
            let until = tenure.as_mut().map(|tenure| tenure.until());
            if let (Some(guard), Some(until)) = (&mut self.guard, until.filter(|_| !lost)) {
                guard.kill_at(until);
            }
            let may_continue = || tenure.as_ref().is_none_or(|tenure| tenure.is_held());
            let next = match self.state(may_continue) {
                State::Ended(code) => {
                    // A SIGKILL to the group also ends the guard.
                    let lost = lost || (code == KILLED && !killed && self.poll_guard_ended());
                    return Ended { code, lost, deadline };
                }
                State::Lapsed => Next::Lost,
                State::Runs => {
                    let tenure = if lost { None } else { tenure.as_deref_mut() };
                    next(tenure, signals, deadline).await
                }
            };
            match next {
                Next::Child | Next::Renewed => {}
                Next::Caught(caught) => {
                    self.signal(caught.signal());
                    if caught == Caught::Terminate {
                        deadline = deadline.or_else(|| after(grace));
                    }
                }
                Next::Lost => {
                    lost = true;
                    let until = tenure.as_mut().map(|tenure| tenure.until());
                    let ends = earlier(deadline.or_else(|| after(grace)), until);
                    deadline = self.terminate(ends);
                }
                Next::GraceOver => {
                    self.signal(Signal::SIGKILL);
                    (deadline, killed) = (None, true);
                }
            }
        }
    }

    /// Sends SIGTERM, or SIGKILL if the deadline has passed: another client may have the lock
    /// already. Returns the deadline if the group has time until then.
    fn terminate(&self, deadline: Option<Instant>) -> Option<Instant> {
        if deadline.is_some_and(|deadline| deadline <= clock::now()) {
            self.signal(Signal::SIGKILL);
            return None;
        }
        self.signal(Signal::SIGTERM);
        // A stopped process handles no signals before SIGCONT.
        self.signal(Signal::SIGCONT);
        deadline
    }

    /// The state of the command; its exit code is 128 + N if signal N ended it.
    fn state(&self, may_continue: impl Fn() -> bool) -> State {
        loop {
            let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
            match waitpid(Pid::from_raw(self.child.id().cast_signed()), Some(flags)) {
                Ok(WaitStatus::Exited(_, code)) => {
                    return State::Ended(u8::try_from(code).unwrap_or(1));
                }
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    return State::Ended(signals::exit_code(signal));
                }
                Ok(WaitStatus::Stopped(..)) => {
                    // Ctrl-Z stopped the command: give the terminal to the parent of this process.
                    if let Some(terminal) = &self.terminal
                        && !terminal.stop_with(self.id, &may_continue)
                    {
                        return State::Lapsed;
                    }
                }
                Err(Errno::EINTR) => {}
                Ok(_) => return State::Runs,
                // Unreachable: only this process waits for the child.
                Err(_) => return State::Ended(1),
            }
        }
    }

    /// Returns `true` if the guard has ended, which it does only together with its group.
    fn poll_guard_ended(&mut self) -> bool {
        self.guard.as_mut().is_some_and(Guard::poll_ended)
    }

    fn signal(&self, signal: Signal) {
        let _there = killpg(self.id, signal).is_ok();
    }

    fn take_terminal_back(&mut self) {
        if let Some(terminal) = self.terminal.take() {
            terminal.take_back();
        }
    }

    /// Leaves the group. Processes that were sent SIGTERM and do not end are killed after the
    /// deadline; others stay, as in a pipeline.
    pub(super) async fn end(mut self, ended: &Ended) {
        self.take_terminal_back();
        // The id of the group is not reused while a process of it remains.
        drop(self.guard.take());
        if let Some(deadline) = ended.deadline {
            until_gone(self.id, deadline).await;
        }
    }

    /// Ends all processes that the command has left in its group, before the lock that they rely on
    /// is released.
    pub(super) async fn end_all(mut self, ended: &Ended, tenure: &mut Tenure<'_>, grace: Duration) {
        self.take_terminal_back();
        let deadline = match ended.deadline {
            Some(deadline) => Some(deadline),
            // The guard alone does not handle this.
            None => self.terminate(earlier(after(grace), Some(tenure.until()))),
        };
        drop(self.guard.take());
        until_gone(self.id, deadline.unwrap_or_else(clock::now)).await;
    }
}

/// The exit code of a command that SIGKILL ended.
const KILLED: u8 = 128 + Signal::SIGKILL as u8;

/// Waits for the end of all processes of a group, and kills those that remain at the deadline.
async fn until_gone(group: Pid, deadline: Instant) {
    let mut killed_at = None;
    loop {
        // If this process is the first one of a container, it is the parent of orphaned processes.
        while matches!(
            waitpid(Pid::from_raw(-group.as_raw()), Some(WaitPidFlag::WNOHANG)),
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
        ) {}
        if killpg(group, None).is_err() {
            return;
        }
        let now = clock::now();
        match killed_at {
            None if now >= deadline => {
                let _there = killpg(group, Signal::SIGKILL).is_ok();
                killed_at = Some(now);
            }
            Some(at) if now.saturating_duration_since(at) >= AFTER_KILL => return,
            _ => sleep(LOOK).await,
        }
    }
}

/// The instant after this time; `None` if the clock cannot represent it.
fn after(grace: Duration) -> Option<Instant> {
    clock::now().checked_add(grace)
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

/// Waits for the next event.
async fn next(
    tenure: Option<&mut Tenure<'_>>,
    signals: &mut Signals,
    deadline: Option<Instant>,
) -> Next {
    let over: LocalBoxFuture<'_, Next> = match deadline {
        Some(deadline) => over(deadline).map(|()| Next::GraceOver).boxed_local(),
        None => pending().boxed_local(),
    };
    let changed: LocalBoxFuture<'_, Next> = match tenure {
        Some(tenure) => {
            let next = |change| match change {
                Change::Renewed => Next::Renewed,
                Change::Endangered => Next::Lost,
            };
            tenure.change().map(next).boxed_local()
        }
        None => pending().boxed_local(),
    };
    let caught = async {
        match signals.next().await {
            Caught::Child => Next::Child,
            caught => Next::Caught(caught),
        }
    };
    let (next, _, _) = select_all([over, changed, caught.boxed_local()]).await;
    next
}

/// Waits until this instant, even if the machine is suspended during the wait.
async fn over(deadline: Instant) {
    while clock::now() < deadline {
        Vigil::new().sleep_until(deadline).await;
    }
}
