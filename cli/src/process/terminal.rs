//! [`Terminal`]: the process group that may read from the terminal and receives Ctrl-C.

use std::fs::File;
use std::io::{self, IsTerminal as _};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal of this process, as long as it is in the foreground.
#[derive(Debug)]
pub(super) struct Terminal(File);

impl Terminal {
    /// The terminal, if this process reads from and writes to it in the foreground. In a pipeline
    /// the terminal is left to the other processes, such as a pager that reads from it.
    pub(super) fn of_foreground() -> Option<Self> {
        if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return None;
        }
        let terminal = File::open("/dev/tty").ok()?;
        let foreground = tcgetpgrp(&terminal).ok()?;
        (foreground == getpgrp()).then_some(Self(terminal))
    }

    /// Puts a group into the foreground.
    pub(super) fn give(&self, group: Pid) {
        let _given = tcsetpgrp(&self.0, group).is_ok();
    }

    /// Puts this process into the foreground again.
    pub(super) fn take_back(&self) {
        // A background process that calls `tcsetpgrp` is stopped by SIGTTOU, unless it blocks the
        // signal.
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let Ok(before) = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return };
        self.give(getpgrp());
        let _restored = before.thread_set_mask().is_ok();
    }

    /// Stops this process like its group. Once this process is continued, it continues the group,
    /// if that is permitted, and then returns true.
    pub(super) fn stop_with(&self, group: Pid, may_continue: impl Fn() -> bool) -> bool {
        self.take_back();
        let _stopped = killpg(getpgrp(), Signal::SIGTSTP).is_ok();
        if !may_continue() {
            return false;
        }
        // This process was continued: in the foreground, or by `bg` in the background.
        if tcgetpgrp(&self.0).is_ok_and(|foreground| foreground == getpgrp()) {
            self.give(group);
        }
        let _goes_on = killpg(group, Signal::SIGCONT).is_ok();
        true
    }
}
