//! The arguments of `schedule`.

#[cfg(unix)]
use std::ffi::OsString;
#[cfg(unix)]
use std::num::NonZeroU32;
#[cfg(unix)]
use std::time::{Duration, SystemTime};

#[cfg(unix)]
use clap::Args;
use clap::Subcommand;

#[cfg(unix)]
use crate::time::time;

/// The actions on a schedule.
#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleAction {
    /// Run a command at each date, on one of the machines that run this
    #[cfg(unix)]
    #[command(after_help = SCHEDULE_NOTES)]
    Run(ScheduleRun),
    /// Print the last run and the next date
    Show,
}

/// The dates, and the command to run.
#[cfg(unix)]
#[derive(Debug, Args)]
pub(crate) struct ScheduleRun {
    #[command(flatten)]
    pub(crate) dates: ScheduleDates,
    /// The time zone of --cron, like Europe/Berlin: UTC by default
    #[arg(long, value_name = "ZONE", requires = "cron")]
    pub(crate) zone: Option<String>,
    /// Number of attempts at a date, if the command fails or its machine is lost
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) attempts: NonZeroU32,
    /// The pause after a command that failed
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s")]
    pub(crate) pause: Duration,
    /// Number of missed dates to run, the latest ones
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) catch_up: NonZeroU32,
    /// Run nothing that begins later than this after its date
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) start_within: Option<Duration>,
    /// The label that `show` prints: host and process by default
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Time that the command may take to end after SIGTERM: 2s, or a quarter of the session's time
    /// to live if that is less
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) grace: Option<Duration>,
    /// The command and its arguments; after -- if it begins with a hyphen
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The dates: one of these.
#[cfg(unix)]
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ScheduleDates {
    /// A period, like 1h: its dates are its multiples since 1970, UTC
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) every: Option<Duration>,
    /// A cron expression, like '0 3 * * *'
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) cron: Option<String>,
    /// One date, like 2030-01-01T03:00:00Z; a date that has passed is due at once
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub(crate) at: Option<SystemTime>,
}

#[cfg(unix)]
fn date(text: &str) -> Result<SystemTime, String> {
    let wrong = |_| format!("`{text}` is no date; say 2030-01-01T03:00:00Z");
    humantime::parse_rfc3339_weak(text).map_err(wrong)
}

#[cfg(unix)]
const SCHEDULE_NOTES: &str = "\
Start this on every machine, with the same dates. One machine leads and runs the
command; when it ends, or is lost, another one continues. A date has one run on
all machines, and no two runs overlap. A run of which the machine is lost is not
repeated unless --attempts permits it.

The command finds its date in SYNOD_DUE, the number of the attempt in
SYNOD_ATTEMPT, its fencing token in SYNOD_TOKEN (a number that is larger for
each later run), and the path of the schedule in SYNOD_PATH. It runs in a
process group of its own, without input. Any exit code but 0 means that it
failed. When the lead is lost, or may be lost because the store does not answer,
the group gets SIGTERM, and SIGKILL after --grace.

SIGTERM, SIGINT and SIGHUP are passed on to the command. When it has ended, or
at once if none runs, synod leaves the schedule, and exits with 0. It also ends
when no date is left. A command that cannot be run ends it with 126 or 127.";
