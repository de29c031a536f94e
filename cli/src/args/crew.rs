//! The arguments of `crew`.

#[cfg(unix)]
use std::ffi::OsString;
#[cfg(unix)]
use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Args, Subcommand};
#[cfg(unix)]
use synod::crew::CrewPolicy;

use crate::time::time;

/// The actions on a crew.
#[derive(Debug, Subcommand)]
pub(crate) enum CrewAction {
    /// Do tasks: run a command for each, with its data as standard input and its output as the
    /// result
    #[cfg(unix)]
    #[command(after_help = WORK_NOTES)]
    Work(CrewWork),
    /// Submit a task, and print its id
    Submit(CrewSubmit),
    /// Print the state and the end of a task, and the attempts at it with the progress that their
    /// workers report
    Status {
        /// The id of the task
        id: String,
        /// Print it again after each change, until the task is over
        #[arg(long, short)]
        follow: bool,
    },
    /// Cancel a task, and print how it ended
    Cancel {
        /// The id of the task
        id: String,
    },
    /// List the workers and the tasks, in a consistent snapshot
    List,
    /// Assign no more tasks to a worker, even after it reconnects; it finishes the tasks that it
    /// has
    Drain {
        /// The worker, as `list` names it
        worker: String,
    },
    /// Assign tasks again to a drained worker
    Undrain {
        /// The worker, as `list` names it
        worker: String,
    },
    /// Assign no tasks to any worker
    Pause,
    /// Assign tasks again
    Resume,
}

/// The options of a worker.
#[cfg(unix)]
#[derive(Debug, Args)]
pub(crate) struct CrewWork {
    /// Number of tasks to do at the same time
    #[arg(long, short = 'n', value_name = "N", default_value = "1")]
    pub(crate) capacity: NonZeroU32,
    /// A property, for tasks that need it; may be given again
    #[arg(long = "property", short, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) properties: Vec<(String, String)>,
    /// Worker that gets a task while this program is the master: least-loaded, round-robin, or
    /// property:NAME for the worker with the preferred value of that property
    #[arg(long, value_name = "POLICY", value_parser = policy, default_value = "least-loaded")]
    pub(crate) policy: CrewPolicy,
    /// Do not become the master; another program has to
    #[arg(long)]
    pub(crate) no_lead: bool,
    /// Time that a command may take to end after SIGTERM, when its task was lost or cancelled
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "2s")]
    pub(crate) grace: Duration,
    /// The command and its arguments; after -- if it begins with a hyphen
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The task to submit.
#[derive(Debug, Args)]
pub(crate) struct CrewSubmit {
    /// The data of the task; without it, standard input
    pub(crate) data: Option<String>,
    /// The id of the task, with which it can be submitted again without running twice: a new id by
    /// default
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Tasks with a lower number are assigned earlier
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
    /// Number of retries after a failed attempt, with growing pauses from one second on
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retries: u32,
    /// A property that its worker must have; may be given again
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) needs: Vec<(String, String)>,
    /// A property that its worker should have, for a master with that policy; may be given again
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) prefers: Vec<(String, String)>,
    /// Let the task expire if it has not finished after this time, by the wall clocks of this
    /// machine and of the master
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) deadline: Option<Duration>,
    /// Let an attempt fail if it takes longer, by the clock of its worker, which then ends the
    /// command
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) attempt_timeout: Option<Duration>,
    /// Wait until the task is over, and print its result instead of its id
    #[arg(long)]
    pub(crate) wait: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("`{text}` is no property; say NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(unix)]
fn policy(text: &str) -> Result<CrewPolicy, String> {
    match text.split_once(':') {
        None if text == "least-loaded" => Ok(CrewPolicy::LeastLoaded),
        None if text == "round-robin" => Ok(CrewPolicy::RoundRobin),
        Some(("property", name)) if !name.is_empty() => Ok(CrewPolicy::property(name)),
        _ => Err(format!("`{text}` is no policy; say least-loaded, round-robin or property:NAME")),
    }
}

#[cfg(unix)]
const WORK_NOTES: &str = "\
The command finds the id of its task in SYNOD_TASK, the number of attempts that
failed before in SYNOD_FAILED, and the path of the crew in SYNOD_PATH. Exit code
0 means that the task is done; any other that this attempt failed. It runs in a
process group of its own, which gets SIGTERM, and SIGKILL after --grace, when
its task was lost or cancelled, its attempt took too long, or this worker ends
at once.

SYNOD_PROGRESS names an empty file. What the command writes there as the last
line is the progress of its task, which `status` shows:
  echo \"$done of $all\" >\"$SYNOD_PROGRESS\"

The worker has the properties `host` and `pid`, and those of --property. After
SIGTERM, SIGINT or SIGHUP it gets no more tasks, ends those that it has, and
exits. A second signal, or another one, ends it at once; its tasks are then
assigned to other workers.

Exit codes:
  0        it has ended its tasks after a signal
  128 + N  signal N ended it at once
  126      the command cannot be run    127  there is no such command
  otherwise those of `synod --help`";
