//! The arguments of `lock` and `elect`.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use synod::Path;

use crate::time::time;

/// The lock to hold.
#[derive(Debug, Args)]
pub(crate) struct Lock {
    /// The lock; all commands that name it share it
    pub(crate) path: Path,
    /// Hold it together with other holders that use --shared
    #[arg(long, short, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Allow up to this many holders at once; if commands pass different numbers, the smallest
    /// among the earlier requests applies. With `stored` it is the number that `semaphore set` has
    /// set
    #[arg(long, short = 'n', value_name = "N", value_parser = permits)]
    pub(crate) permits: Option<Permits>,
    /// Run the command once in each period, like 1h, whichever machine starts it first and whatever
    /// its result. Periods begin at the multiples of their length since 1970, UTC, by the clock of
    /// this machine. A later start in the same period ends with the code of -E
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with_all = ["shared", "permits"])]
    pub(crate) once_per: Option<Duration>,
    /// The label that `inspect` shows to others: host and process by default
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    #[command(flatten)]
    pub(crate) running: Running,
}

/// The election to take part in.
#[derive(Debug, Args)]
pub(crate) struct Elect {
    /// The election; all commands that name it take part
    pub(crate) path: Path,
    /// The value to publish as the leader: host and process by default
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    #[command(flatten)]
    pub(crate) running: Running,
}

/// The command to run while holding, and the way to run it.
#[derive(Debug, Args)]
pub(crate) struct Running {
    /// Give up if it is not acquired within this time, like 30s; a plain number is seconds
    #[arg(
        long,
        short = 'w',
        visible_alias = "wait",
        value_name = "TIME",
        value_parser = time,
        conflicts_with = "try"
    )]
    pub(crate) timeout: Option<Duration>,
    /// Give up at once if it is not free
    #[arg(long, visible_alias = "nonblock")]
    pub(crate) r#try: bool,
    /// Release it when `request-release` requests that: the command gets SIGTERM
    #[arg(long)]
    pub(crate) release_on_request: bool,
    /// The exit code after giving up
    #[arg(long, short = 'E', value_name = "CODE", default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
    /// Time that the command may take to end after SIGTERM: 2s, or a quarter of the session's time
    /// to live if that is less
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) grace: Option<Duration>,
    /// The command and its arguments; after -- if it begins with a hyphen. Without a command, it is
    /// held until this process is interrupted
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The number of permits of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permits {
    Number(NonZeroU32),
    /// The number in the store.
    Stored,
}

fn permits(text: &str) -> Result<Permits, String> {
    if text == "stored" {
        return Ok(Permits::Stored);
    }
    let wrong = || format!("`{text}` is no number of permits; there is at least one");
    text.parse().map(Permits::Number).map_err(|_| wrong())
}

pub(crate) const HOLD_NOTES: &str = "\
The command finds its fencing token in SYNOD_TOKEN (a number that is larger for
each later holder), and the path in SYNOD_PATH. It runs in a process group of
its own; signals that synod gets are passed on to that group. When the lock is
lost, or may be lost because the store does not answer, the group gets
SIGTERM, and SIGKILL after --grace or when another may have the lock, also
while synod is stopped. When the command ends, what it has left running in its
group gets SIGTERM, and SIGKILL after --grace, before the lock is released; a
process that is to go on leaves the group (setsid). The command inherits the
environment with SYNOD_STORE, so that it can call synod; for one that must not
see the password in it, use: env -u SYNOD_STORE COMMAND.

An outage of the store while synod waits for the lock does not end the wait;
--timeout does. The first connection fails after 15s, after 2s if all servers
refuse it, or after ?connect=TIME in the URL.

Without a command the path of the ticket is printed once the lock is held, and
the lock is released on Ctrl-C.

Exit codes:
  that of the command, or 128 + N if signal N ended it
  75   the lock is held (--try) or was held for too long (--timeout), or the
       command was run in this period (--once-per); -E sets another code
  76   the lock was lost; a command that was running was ended
  126  the command cannot be run    127  there is no such command
  otherwise those of `synod --help`";
