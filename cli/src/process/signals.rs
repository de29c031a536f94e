//! [`Signals`]: the signals that this process receives and passes on.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// A signal that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caught {
    /// The state of the command changed.
    Child,
    Terminate,
    Interrupt,
    HangUp,
    Quit,
    User1,
    User2,
}

/// The signals that this process handles from now on, instead of being ended by them.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Caught, Stream)>);

impl Caught {
    const ALL: [Self; 7] = [
        Self::Child,
        Self::Terminate,
        Self::Interrupt,
        Self::HangUp,
        Self::Quit,
        Self::User1,
        Self::User2,
    ];

    pub(crate) fn signal(self) -> Signal {
        match self {
            Self::Child => Signal::SIGCHLD,
            Self::Terminate => Signal::SIGTERM,
            Self::Interrupt => Signal::SIGINT,
            Self::HangUp => Signal::SIGHUP,
            Self::Quit => Signal::SIGQUIT,
            Self::User1 => Signal::SIGUSR1,
            Self::User2 => Signal::SIGUSR2,
        }
    }

    /// The exit code that a shell reports for a process that this signal ended.
    pub(crate) fn exit_code(self) -> u8 {
        exit_code(self.signal())
    }
}

/// The exit code that a shell reports for a process that this signal ended.
pub(crate) fn exit_code(signal: Signal) -> u8 {
    u8::try_from(128 + signal as i32).unwrap_or(u8::MAX)
}

impl Signals {
    /// # Errors
    ///
    /// If the operating system refuses to install a handler.
    pub(crate) fn listen() -> io::Result<Self> {
        Self::of(&Caught::ALL)
    }

    /// The signals that ask a process to end.
    ///
    /// # Errors
    ///
    /// If the operating system refuses to install a handler.
    pub(crate) fn fatal_only() -> io::Result<Self> {
        Self::of(&[Caught::Terminate, Caught::Interrupt, Caught::HangUp, Caught::Quit])
    }

    fn of(all: &[Caught]) -> io::Result<Self> {
        let mut streams = Vec::new();
        // A signal that is ignored, as under nohup, must be ignored by the command too.
        let wanted = |caught: &Caught| *caught == Caught::Child || !is_ignored(caught.signal());
        for caught in all.iter().copied().filter(wanted) {
            streams.push((caught, signal(SignalKind::from_raw(caught.signal() as i32))?));
        }
        Ok(Self(streams))
    }

    pub(crate) async fn next(&mut self) -> Caught {
        poll_fn(|cx| {
            for (caught, stream) in &mut self.0 {
                if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return Poll::Ready(*caught);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that ends a process which runs no command.
    pub(crate) async fn fatal(&mut self) -> Caught {
        loop {
            match self.next().await {
                Caught::Child => {}
                caught => return caught,
            }
        }
    }
}

/// Returns `true` if this process was started with the signal ignored. Known on Linux only.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal as i32 - 1) & 1 == 1
}
