//! [`Guard`]: a process that leads the command's group, and ends the group if this process is
//! killed, or does not renew the time for which the lock is certain.
//!
//! The guard waits for the end of its input, which the operating system closes when this process
//! ends for any reason. This process writes to that input the latest moment at which the group must
//! have ended, so the group ends in time even while this process is stopped. The guard is the first
//! process of its group and gives the group its id, which cannot be reused while the guard exists.
//!
//! A store that learns from the operating system that a process has ended would pass the lock on
//! at once, while the command of a killed `synod` still runs. So the guard has the
//! [files](synod_core::store::SessionFiles) open that keep the session alive, and ends only after
//! the other processes of its group.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, getpgrp};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use synod::clock;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::process::{boot_time, members};

/// The guard of one group. It ends when this is dropped, without a signal to the group.
#[derive(Debug)]
pub(super) struct Guard(Child);

const READY: u8 = b'!';

/// The greatest number of files that a guard keeps open.
const FILES: usize = 4;

/// The size of a moment in the input of a guard: nanoseconds of [`boot_time`].
const MOMENT: usize = size_of::<u64>();

/// The time limit for the end of processes that were killed. A process that waits for a device may
/// end later.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// The longest wait of a guard before it checks the clock: waits do not count the time of a
/// suspension.
const LOOK: Duration = Duration::from_millis(250);

impl Guard {
    /// Starts the guard, in its own group. It keeps the files open until its group has ended.
    pub(super) fn start(grace: Duration, files: &[OwnedFd]) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::plain(format!("the command's guard does not start: {error}"))
        };
        let mut command = Command::new(itself().map_err(failed)?);
        let grace = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        command.arg("__guard").arg(grace.to_string()).process_group(0);
        let (mut here, there) = UnixStream::pair().map_err(failed)?;
        send(&here, files).map_err(failed)?;
        command.stdin(Stdio::piped()).stdout(OwnedFd::from(there)).stderr(Stdio::null());
        // The guard connects to no store, and needs no password.
        command.env_remove("SYNOD_STORE");
        let guard = Self(command.spawn().map_err(failed)?);
        // With it the guard's end of the socket, so that the end of the guard is noticed.
        drop(command);
        if let Some(input) = &guard.0.stdin {
            // A stopped guard does not read: this process must not wait for it.
            rustix::io::ioctl_fionbio(input, true).map_err(|error| failed(error.into()))?;
        }
        here.read_exact(&mut [0]).map_err(failed)?;
        Ok(guard)
    }

    /// Lets the guard kill the group at this moment, unless a later moment is sent before.
    pub(super) fn kill_at(&mut self, until: Instant) {
        // The order matters: if this process is stopped in between, the moment is too early, but
        // never too late.
        let now = boot_time::now();
        let at = now.saturating_add(until.saturating_duration_since(clock::now()));
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        if let Some(input) = &mut self.0.stdin {
            // A write of a few bytes is complete or fails. If it fails, the earlier moment applies.
            let _written = input.write(&nanos.to_le_bytes()).is_ok();
        }
    }

    /// Returns `true` if the guard has ended, together with its group.
    pub(super) fn poll_ended(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(_)))
    }

    /// Lets the guard end the group: the processes in it get SIGTERM now, and SIGKILL after the
    /// grace.
    pub(super) fn end_group(mut self) {
        drop(self.0.stdin.take());
        // The thread waits for the guard, so that it does not stay a zombie. The guard kills itself
        // with the group.
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

/// The executable of this process, even if the file was replaced since.
fn itself() -> io::Result<std::path::PathBuf> {
    let running = std::path::Path::new("/proc/self/exe");
    if running.exists() { Ok(running.to_owned()) } else { std::env::current_exe() }
}

/// Sends the files to the guard, which receives them when it starts.
fn send(to: &UnixStream, files: &[OwnedFd]) -> io::Result<()> {
    let files: Vec<BorrowedFd<'_>> = files.iter().map(OwnedFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("the session has too many files"));
    }
    sendmsg(to, &[IoSlice::new(&[READY])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the files that keep the session alive. There are none without a socket.
fn receive(from: BorrowedFd<'_>) -> Vec<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received =
        recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC);
    if received.is_err() {
        return Vec::new();
    }
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    };
    control.drain().filter_map(rights).flatten().collect()
}

/// The main function of the guard process.
pub(crate) fn stand(grace: Duration) -> ExitCode {
    // Signals to the group are meant for the command, not for its guard.
    let deaf = SigSet::all().thread_block().is_ok();
    // Open until this process ends.
    let _files = receive(io::stdout().as_fd());
    let ready = io::stdout().write_all(&[READY]).and_then(|()| io::stdout().flush()).is_ok();
    let group = getpgrp();
    let until = watch().ok().flatten();
    let over = boot_time::now().saturating_add(grace);
    let over = until.map_or(over, |until| over.min(until));
    // When the moment has passed, another client may have the lock already.
    if deaf && ready && left(over).is_some() {
        let _told =
            killpg(group, Signal::SIGTERM).and_then(|()| killpg(group, Signal::SIGCONT)).is_ok();
        members::wait_until_gone(group, || left(over));
        let _gone = members::kill(group, || left(over.saturating_add(AFTER_KILL)));
    }
    // This also kills the guard.
    let _killed = killpg(group, Signal::SIGKILL).is_ok();
    ExitCode::FAILURE
}

/// Waits for the end of the input, or until the last moment that was read from it has passed.
/// Returns that moment.
fn watch() -> io::Result<Option<Duration>> {
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut until = None;
    // A multiple of the size of a moment, so that no moment is read in parts.
    let mut read = [0; 64 * MOMENT];
    loop {
        // Renewals that were written before the moment passed are read first: only a missing
        // renewal ends the group.
        match poll(&mut [PollFd::new(input.as_fd(), PollFlags::POLLIN)], wait(until)) {
            Ok(0) if until.is_some_and(|until| left(until).is_none()) => return Ok(until),
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let count = input.read(&mut read)?;
        if count == 0 {
            return Ok(until);
        }
        let last = read[..count].rchunks_exact(MOMENT).next();
        if let Some(nanos) = last.and_then(|last| last.try_into().ok()) {
            until = Some(Duration::from_nanos(u64::from_le_bytes(nanos)));
        }
    }
}

/// The wait for input: rounded up, so that the moment has passed after the full wait.
fn wait(until: Option<Duration>) -> PollTimeout {
    let Some(until) = until else { return PollTimeout::NONE };
    let millis = left(until).unwrap_or_default().min(LOOK).as_nanos().div_ceil(1_000_000);
    u16::try_from(millis).unwrap_or(u16::MAX).into()
}

/// The time that is left until this moment; `None` if it has passed.
fn left(until: Duration) -> Option<Duration> {
    until.checked_sub(boot_time::now()).filter(|left| !left.is_zero())
}
