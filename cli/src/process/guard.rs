//! [`Guard`]: a process that leads the command's group, and ends the group if this process is
//! killed.
//!
//! It waits for the end of its input, which the operating system closes however this process ends.
//! As the first process of its group it gives the group its id, which cannot be reused while the
//! guard exists.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, getpgrp};

use crate::failure::Failure;

/// The guard of one group. It ends when this is dropped, and does not signal the group then.
#[derive(Debug)]
pub(super) struct Guard(Child);

const READY: u8 = b'!';

impl Guard {
    /// Starts it, in a group of its own.
    pub(super) fn start(grace: Duration) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::plain(format!("the command's guard does not start: {error}"))
        };
        let mut command = Command::new(itself().map_err(failed)?);
        command.arg("__guard").arg(grace.as_millis().to_string()).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // The guard connects to no store, and needs no password.
        command.env_remove("SYNOD_STORE");
        let mut guard = Self(command.spawn().map_err(failed)?);
        let mut first = [0];
        if let Some(out) = &mut guard.0.stdout {
            out.read_exact(&mut first).map_err(failed)?;
        }
        Ok(guard)
    }

    /// Lets it end the group: the processes in it get SIGTERM now, and SIGKILL after the grace.
    pub(super) fn end_group(mut self) {
        drop(self.0.stdin.take());
        // This waits for it, so that it is no zombie. It kills itself with the group.
        std::thread::spawn(move || self.0.wait().is_ok());
    }

    /// The group, for processes that join it.
    pub(super) fn group(&self) -> Pid {
        Pid::from_raw(self.0.id().cast_signed())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait()).is_ok();
    }
}

/// The executable of this process, even if the file was replaced meanwhile.
fn itself() -> io::Result<std::path::PathBuf> {
    let running = std::path::Path::new("/proc/self/exe");
    if running.exists() { Ok(running.to_owned()) } else { std::env::current_exe() }
}

/// Runs the guard: the whole of its process.
pub(crate) fn stand(grace: Duration) -> ExitCode {
    // Signals to the group are meant for the command, not for its guard.
    let deaf = SigSet::all().thread_block().is_ok();
    let ready = io::stdout().write_all(&[READY]).and_then(|()| io::stdout().flush()).is_ok();
    let watched = io::stdin().read_to_end(&mut Vec::new()).is_ok();
    let group = getpgrp();
    let _told =
        killpg(group, Signal::SIGTERM).and_then(|()| killpg(group, Signal::SIGCONT)).is_ok();
    if deaf && ready && watched {
        sleep(grace);
    }
    // This kills the guard too.
    let _killed = killpg(group, Signal::SIGKILL).is_ok();
    ExitCode::FAILURE
}
