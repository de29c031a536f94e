//! What a person types.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use synod::path::Path;
use synod::sim::{Fault, Personality};

use crate::sim;

/// Locks, elections and more over ZooKeeper, etcd or memory: look into a store, try a cluster in
/// one process, hold a store to its laws.
#[derive(Debug, Parser)]
#[command(name = "synod", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// The store
    #[arg(
        help = "The store: mem://name, zk://host:2181/path, etcd://host:2379/path",
        long,
        global = true,
        env = "SYNOD_STORE",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub(crate) store: Option<String>,

    /// Print JSON, one object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch a small cluster live and lose sessions, in this process, on a store in memory
    Demo,
    /// Print what a node holds
    Get {
        /// The node, like /config/colour
        path: Path,
        /// Print the bytes as they are, without a newline behind them
        #[arg(long, conflicts_with = "json")]
        raw: bool,
    },
    /// Replace what a node holds
    Set {
        /// The node
        path: Path,
        /// What it shall hold; - reads standard input
        data: String,
        /// Only if it has this version, as `get --json` shows it
        #[arg(long, value_name = "VERSION")]
        version: Option<u64>,
    },
    /// Make a node, and the containers above it
    Create(Create),
    /// Remove a node
    Delete {
        /// The node
        path: Path,
        /// Only if it has this version, as `get --json` shows it
        #[arg(long, value_name = "VERSION", conflicts_with = "recursive")]
        version: Option<u64>,
        /// Remove everything below it too
        #[arg(long, short)]
        recursive: bool,
    },
    /// List the children of a node
    Ls {
        /// The node
        #[arg(default_value = "/")]
        path: Path,
        /// Tell version, size and kind of each
        #[arg(long, short)]
        long: bool,
    },
    /// Draw everything below a node
    Tree {
        /// The node
        #[arg(default_value = "/")]
        path: Path,
    },
    /// Print every change of a node as it happens, until interrupted
    Watch {
        /// The node
        path: Path,
        /// Its children instead
        #[arg(long, conflicts_with = "subtree")]
        children: bool,
        /// Itself and everything below it
        #[arg(long)]
        subtree: bool,
        /// Stop after so many events
        #[arg(long, value_name = "N")]
        count: Option<usize>,
    },
    /// Tell who holds a lock, a semaphore or an election, and who waits for it
    Inspect {
        /// The lock, as everybody who uses it names it
        path: Path,
    },
    /// Run a command while holding a lock
    #[cfg(unix)]
    #[command(after_help = EXIT_CODES)]
    Lock(Lock),
    /// Run a command while leading an election
    #[cfg(unix)]
    #[command(after_help = EXIT_CODES)]
    Elect(Elect),
    /// What stays beside the command of `lock` and `elect`, and ends it if they are killed
    #[cfg(unix)]
    #[command(name = "__guard", hide = true)]
    Guard {
        /// How long the command may take to end, in milliseconds
        grace: u64,
    },
    /// Measure how fast a store is, below a node that is removed again
    Bench(Bench),
    /// Hold a store to its laws: one line a law, then a count
    Conformance {
        /// Only cases whose name contains this
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
    /// Run processes on a simulated store on which everything goes wrong; alone it lists what there is
    Sim(Box<Sim>),
}

/// What to simulate.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Sim {
    #[command(subcommand)]
    pub(crate) what: Option<SimCommand>,

    /// What the processes do; `synod sim` lists what there is, and `all` is one after the other
    pub(crate) workload: Option<String>,

    #[command(flatten)]
    pub(crate) seeds: Seeds,

    #[command(flatten)]
    pub(crate) shown: Shown,

    /// Write a history that fails to a file in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,

    /// Fail if something never happened that should have, however few seeds there are
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Which histories.
#[derive(Clone, Debug, Args)]
pub(crate) struct Seeds {
    /// How many
    #[arg(long = "seeds", value_name = "N", default_value_t = 1_000)]
    pub(crate) count: u64,
    /// As many as can be run in this time, like 2min
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) limit: Option<Duration>,
    /// No more of a workload once its tasks had so many turns: the same for each, whatever it costs
    #[arg(long, value_name = "N", conflicts_with = "limit")]
    pub(crate) turns: Option<u64>,
    /// The first of them
    #[arg(long, value_name = "S", default_value = "0", value_parser = sim::seed)]
    pub(crate) from: u64,
    /// Whose habits the store has: ideal, zk, etcd, etcd-3.4; one after the other if it is not said
    #[arg(long, value_name = "NAME")]
    pub(crate) personality: Option<Personality>,
    /// Switch a fault off, like F2
    #[arg(long, value_name = "FAULT", value_parser = sim::fault)]
    pub(crate) without: Vec<Fault>,
    /// Make a known mistake; `synod sim mutants` lists them
    #[arg(long, value_name = "NAME")]
    pub(crate) mutant: Option<String>,
    /// On so many threads
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
}

/// How a history is shown.
#[derive(Clone, Debug, Args)]
pub(crate) struct Shown {
    /// Write it to a page for a browser as well
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// What else there is to do.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Show a history again, by its seed or from a file
    Replay {
        /// What the processes do, or a file that was kept
        what: String,
        /// Which history
        #[arg(long, value_parser = sim::seed)]
        seed: Option<u64>,
        /// Whose habits the store has
        #[arg(long, value_name = "NAME", default_value = "ideal")]
        personality: Personality,
        /// The known mistake that is made
        #[arg(long, value_name = "NAME")]
        mutant: Option<String>,
        /// Switch a fault off, like F2
        #[arg(long, value_name = "FAULT", value_parser = sim::fault)]
        without: Vec<Fault>,
        /// All of it, with nothing taken away
        #[arg(long)]
        whole: bool,
        /// Write what is left to a file in this directory
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
        #[command(flatten)]
        shown: Shown,
    },
    /// Let small worlds crash at each call, and drop each call at each of its awaits
    Sweep {
        /// Only workloads whose name contains this
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
        /// From so many beginnings
        #[arg(long, value_name = "N", default_value_t = 4)]
        seeds: u64,
        /// Go every way with up to so many faults, of ten kinds, instead
        #[arg(long, value_name = "N")]
        faults: Option<usize>,
        /// Stop after so many histories in each world
        #[arg(long, value_name = "N", requires = "faults")]
        most: Option<u64>,
    },
    /// Make known mistakes, and tell how soon each is found
    Mutants {
        /// Only mistakes whose name contains this, or that of the workload that finds them
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
        /// How many histories for each
        #[arg(long, value_name = "N", default_value_t = 2_000)]
        seeds: u64,
        /// Stop at the first history in which one is found
        #[arg(long)]
        first: bool,
        /// Which of them nobody finds without each of the faults
        #[arg(long)]
        faults: bool,
        /// Every mistake under every workload, and which laws it breaks
        #[arg(long, conflicts_with = "faults")]
        all: bool,
        /// Write the first history in which each is found to a file in this directory
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
    },
}

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// All of it, for some minutes, with up to a thousand who wait for one lock
    #[arg(long)]
    pub(crate) full: bool,
    /// Only what has this in its name
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
}

/// How to make a node.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The node; the start of its name with --sequential
    pub(crate) path: Path,
    /// What it holds; - reads standard input
    #[arg(default_value = "")]
    pub(crate) data: String,
    /// Give it a place in line behind its siblings, and a name of its own
    #[arg(long)]
    pub(crate) sequential: bool,
    /// Keep it only as long as this command runs: until it is interrupted
    #[arg(long, group = "lifetime")]
    pub(crate) ephemeral: bool,
    /// Keep it only until it was not written for so long, like 30s
    #[arg(long, group = "lifetime", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) ttl: Option<Duration>,
}

/// What to hold.
#[cfg(unix)]
#[derive(Debug, Args)]
pub(crate) struct Lock {
    /// The lock; everybody who names it shares it
    pub(crate) path: Path,
    /// Hold it together with others who say --shared
    #[arg(long, short, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Let so many hold it at once; everybody must say the same number
    #[arg(long, short = 'n', value_name = "N", value_parser = permits)]
    pub(crate) permits: Option<NonZeroU32>,
    /// What it is to others who look: host and process by default
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    #[command(flatten)]
    pub(crate) running: Running,
}

/// What to lead.
#[cfg(unix)]
#[derive(Debug, Args)]
pub(crate) struct Elect {
    /// The election; everybody who names it takes part
    pub(crate) path: Path,
    /// What to proclaim as the leader: host and process by default
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    #[command(flatten)]
    pub(crate) running: Running,
}

/// What to run meanwhile, and how.
#[cfg(unix)]
#[derive(Debug, Args)]
pub(crate) struct Running {
    /// Give up if it is not to be had within this time, like 30s; 30 is seconds, too
    #[arg(
        long,
        short = 'w',
        visible_alias = "wait",
        value_name = "TIME",
        value_parser = time,
        conflicts_with = "try"
    )]
    pub(crate) timeout: Option<Duration>,
    /// Give up at once if somebody has it
    #[arg(long, visible_alias = "nonblock")]
    pub(crate) r#try: bool,
    /// What to exit with after giving up
    #[arg(long, short = 'E', value_name = "CODE", default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
    /// How long the command may take to end when it must: 2s, or a quarter of the session's time to live if
    /// that is less
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) grace: Option<Duration>,
    /// The command and its arguments; behind -- if it begins with a hyphen. Without one, it is held until
    /// this is interrupted
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// A time as people write it; a plain number is seconds, as it is to flock.
#[cfg(unix)]
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time; say 30, 30s, 1.5 or 2m");
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| wrong()),
        Err(_) => humantime::parse_duration(text).map_err(|_| wrong()),
    }
}

#[cfg(unix)]
fn permits(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| format!("`{text}` is no number of permits; there is at least one"))
}

#[cfg(unix)]
const EXIT_CODES: &str = "\
The command finds the number that proves its turn in SYNOD_TOKEN (larger for
whoever comes later), and the path in SYNOD_PATH. It runs in a process group of
its own; signals that synod gets are passed on to that. When what is held is
lost, or the store has not answered for so long that it will be, the group gets
SIGTERM, and SIGKILL after --grace.

Without a command the name of the ticket is printed when it is held, and it is
given back on Ctrl-C.

Exit codes:
  that of the command, or 128 + N if signal N ended it
  75   somebody else has it (--try) or had it for too long (--timeout);
       -E names another
  76   it was lost while the command ran, which was ended, or while there was none
  126  the command cannot be run    127  there is no such command
  1    anything else, with a line that says what";
