//! The arguments of the command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;
use synod::Path;

use crate::args::acl::{ACL_NOTES, AclAction};
#[cfg(feature = "bench")]
use crate::args::bench::Bench;
#[cfg(feature = "conformance")]
use crate::args::conformance::Conformance;
use crate::args::copy::{
    CP_NOTES, Cp, DIFF_NOTES, Diff, EXPORT_NOTES, Export, IMPORT_NOTES, Import,
};
use crate::args::crew::CrewAction;
#[cfg(unix)]
use crate::args::hold::{Elect, HOLD_NOTES, Lock};
use crate::args::queue::QueueAction;
use crate::args::schedule::ScheduleAction;
#[cfg(feature = "sim")]
use crate::args::sim::Sim;
use crate::args::value::{BarrierAction, CounterAction, SemaphoreAction};
use crate::failure::EXIT_CODES;
use crate::time::time;

pub(crate) mod acl;
#[cfg(feature = "bench")]
pub(crate) mod bench;
#[cfg(feature = "conformance")]
pub(crate) mod conformance;
pub(crate) mod copy;
pub(crate) mod crew;
#[cfg(unix)]
pub(crate) mod hold;
pub(crate) mod queue;
pub(crate) mod schedule;
#[cfg(feature = "sim")]
pub(crate) mod sim;
pub(crate) mod value;

/// Locks, elections and more over ZooKeeper, etcd or memory: inspect a store, run a small cluster
/// in one process, test a store against its contract.
#[derive(Debug, Parser)]
#[command(name = "synod", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// The options of every command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Common {
    /// The store
    #[arg(
        help = "The store: zk://host:2181/path, etcd://host:2379/path, file:///directory, mem://name \
                [env: SYNOD_STORE]",
        long,
        global = true,
        value_name = "URL"
    )]
    pub(crate) store: Option<String>,

    /// The store of this user on this machine
    #[arg(
        help = "The store of this user on this machine, as --store file: (no server is needed)",
        long,
        global = true,
        conflicts_with_all = ["store", "profile"]
    )]
    pub(crate) here: bool,

    /// The store of this name in the configuration file
    #[arg(
        help = "The store of this name in the configuration file [env: SYNOD_PROFILE]",
        long,
        global = true,
        value_name = "NAME"
    )]
    pub(crate) profile: Option<String>,

    /// The configuration file
    #[arg(
        help = "The configuration file: $XDG_CONFIG_HOME/synod/config.toml by default",
        long,
        global = true,
        value_name = "FILE"
    )]
    pub(crate) config: Option<PathBuf>,

    /// The user
    #[arg(
        help = "The user, with --password-file or the password in SYNOD_PASSWORD",
        long,
        global = true,
        value_name = "NAME"
    )]
    pub(crate) user: Option<String>,

    /// The file with the password of the user
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// Print JSON, one object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Log to standard error
    #[arg(
        help = "Log to standard error; -vv and -vvv log more, and RUST_LOG selects by module",
        long,
        short,
        global = true,
        action = ArgAction::Count
    )]
    pub(crate) verbose: u8,
}

/// The command to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print which servers of the store answer, their versions, the leader and the alarms
    #[command(after_help = STATUS_NOTES)]
    Status {
        /// Time for an answer
        #[arg(long, short = 'w', value_name = "TIME", value_parser = time, default_value = "5s")]
        timeout: Duration,
    },
    /// Write a store in a directory to a new file, while others use the store
    #[command(after_help = BACKUP_NOTES)]
    Backup {
        /// The new file, which only its owner may read
        #[arg(value_name = "FILE")]
        to: PathBuf,
    },
    /// Report on a store in a directory: its processes, their ends, and what is wrong
    #[command(after_help = DOCTOR_NOTES)]
    Doctor,
    /// Watch three programs share a list of members, a lock and tasks, in memory; with --store the
    /// tasks, on a server
    Demo,
    /// Print the data of nodes
    Get {
        /// The node, like /config/colour. Several are read as of one moment, up to 100, and each is
        /// printed as a line with its path and then its data
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<Path>,
        /// Print the bytes as they are, without a trailing newline and without paths
        #[arg(long, conflicts_with = "json")]
        raw: bool,
    },
    /// Replace the data of a node
    Set {
        /// The node
        path: Path,
        /// The new data; - reads standard input
        data: String,
        /// Only if it has this version, as `get --json` shows it
        #[arg(long, value_name = "VERSION")]
        version: Option<u64>,
    },
    /// Replace the data of a node, or create it and the containers above it
    Put {
        /// The node
        path: Path,
        /// Its data; - reads standard input
        data: String,
    },
    /// Create a node, and the containers above it
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
    /// List the children of nodes
    Ls {
        /// The node. Of several, each is listed below a line with its path
        #[arg(default_value = "/", value_name = "PATH")]
        paths: Vec<Path>,
        /// Show the version, size and kind of each node
        #[arg(long, short)]
        long: bool,
        /// Show the data of each node, on one line
        #[arg(long, short)]
        data: bool,
    },
    /// Draw everything below nodes, with the start of their data
    Tree {
        /// The node
        #[arg(default_value = "/", value_name = "PATH")]
        paths: Vec<Path>,
        /// Show the data whole, each on one line
        #[arg(long, short)]
        data: bool,
    },
    /// Print every change of a node as it happens, or run a command for it, until interrupted
    #[cfg_attr(unix, command(after_help = WATCH_NOTES))]
    Watch(Watch),
    /// List the holders and waiters of a lock or an election, or the state of any recipe at a path
    Inspect {
        /// The lock, queue, crew or group, by the path that its users give it
        path: Path,
        /// List all recipes below it too
        #[arg(long, short)]
        recursive: bool,
        /// Look at this many nodes and no more, with a warning if there are more
        #[arg(long, value_name = "N", default_value_t = 100_000, requires = "recursive")]
        limit: usize,
    },
    /// Show what is wrong with the recipes below a path, worst first, and the state of each
    #[command(after_help = TOP_NOTES)]
    Top {
        /// The path below which recipes are looked for
        #[arg(default_value = "/")]
        path: Path,
        /// Look once, and end
        #[arg(long)]
        once: bool,
        /// Look again after this time
        #[arg(long, value_name = "TIME", value_parser = time, default_value = "2s")]
        every: Duration,
        /// Look at this many nodes and no more, with a warning if there are more
        #[arg(long, value_name = "N", default_value_t = 100_000)]
        limit: usize,
    },
    /// Read or set the number of permits that `lock --permits stored` shares
    Semaphore {
        /// The semaphore; all commands that name it share it
        path: Path,
        #[command(subcommand)]
        action: SemaphoreAction,
    },
    /// Ask the holders of a lock to release it: those that listen are notified, and decide
    RequestRelease {
        /// The lock, or one ticket of it, as `inspect --json` shows its path
        path: Path,
    },
    /// Print or replace the access list of a node, on ZooKeeper
    #[command(after_help = ACL_NOTES)]
    Acl {
        #[command(subcommand)]
        action: AclAction,
    },
    /// Apply several operations together, or none of them
    #[command(after_help = TXN_NOTES)]
    Txn {
        /// The file with the operations; standard input by default
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Read or change a number that many programs share
    Counter {
        /// The counter; all programs that name it share it
        path: Path,
        #[command(subcommand)]
        action: CounterAction,
    },
    /// Set or lift a barrier that many programs wait for, or wait for it
    Barrier {
        /// The barrier; all programs that name it share it
        path: Path,
        #[command(subcommand)]
        action: BarrierAction,
    },
    /// Put items into a queue, take them, list them, or run a command for each
    Queue {
        /// The queue; all programs that name it share it
        path: Path,
        #[command(subcommand)]
        action: QueueAction,
    },
    /// List the members of a group: one line each
    Members {
        /// The group, by the path that its members give it
        path: Path,
    },
    /// List services, or the instances of one: one line each
    Discover {
        /// The path below which the services are registered
        base: Path,
        /// The service, to list its instances
        service: Option<String>,
    },
    /// Submit tasks to a crew of workers, run them, and manage them
    Crew {
        /// The crew; all programs that name it share its tasks
        path: Path,
        #[command(subcommand)]
        action: CrewAction,
    },
    /// Run a command at dates, once on all machines, or print its last run
    Schedule {
        /// The schedule; all programs that name it share its runs
        path: Path,
        #[command(subcommand)]
        action: ScheduleAction,
    },
    /// Keep a node and everything below it as files, and run a command when they change
    #[cfg(unix)]
    #[command(after_help = MIRROR_NOTES)]
    Mirror(Mirror),
    /// Run a command while being a member of a group
    #[cfg(unix)]
    #[command(after_help = JOIN_EXIT_CODES)]
    Join(Join),
    /// Run a command while holding a lock
    #[cfg(unix)]
    #[command(after_help = HOLD_NOTES)]
    Lock(Lock),
    /// Run a command while leading an election
    #[cfg(unix)]
    #[command(after_help = HOLD_NOTES)]
    Elect(Elect),
    /// Print a node and everything below it as lines of JSON, for `import` and `diff`
    #[command(after_help = EXPORT_NOTES)]
    Export(Export),
    /// Write the nodes of a file that `export` printed
    #[command(after_help = IMPORT_NOTES)]
    Import(Import),
    /// Copy a node and everything below it to another store, or another path
    #[command(after_help = CP_NOTES)]
    Cp(Cp),
    /// Compare a node and everything below it with a file that `export` printed, or another node
    #[command(after_help = DIFF_NOTES)]
    Diff(Diff),
    /// Print a script by which a shell completes commands and options
    #[command(after_help = COMPLETION_FILES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write the pages of all commands
    Man {
        /// The directory to write the pages to, such as /usr/local/share/man/man1
        #[arg(long, value_name = "DIRECTORY")]
        into: Option<PathBuf>,
    },
    /// Helper process that ends the command of `lock` and `elect` if they are killed
    #[cfg(unix)]
    #[command(name = "__guard", hide = true)]
    Guard {
        /// Time that the command may take to end, in milliseconds
        grace: u64,
    },
    /// Measure how fast a store is, below a node that is removed afterwards
    #[cfg(feature = "bench")]
    Bench(Bench),
    /// Test a store against its contract: one line per case, then a count
    #[cfg(feature = "conformance")]
    Conformance(Conformance),
    /// Run processes on a simulated store with faults; without arguments, list the workloads
    #[cfg(feature = "sim")]
    Sim(Box<Sim>),
}

const TXN_NOTES: &str = "\
The operations are objects of JSON, one after the other:
  {\"op\":\"check\",\"path\":\"/a\",\"version\":3}
  {\"op\":\"check\",\"path\":\"/b\",\"exists\":false}
  {\"op\":\"create\",\"path\":\"/b\",\"data\":\"text\",\"ttl\":\"30s\"}
  {\"op\":\"set\",\"path\":\"/a\",\"data_base64\":\"/wA=\",\"version\":3}
  {\"op\":\"delete\",\"path\":\"/c\"}
A version, as `get --json` shows it, may be left out of a set and a delete, and the
ttl of a create. A store accepts 40 operations, and writes each path once. --json
prints the path of each, and its version if the store returns that.

Exit codes:
  66   none was applied: a node is not there
  73   none was applied: a node is there already, or has another version
  otherwise those of `synod --help`";

const TOP_NOTES: &str = "\
A trouble has a command of synod that shows more. Ages are computed from dates in
the store, by the clocks of the processes that wrote them. A recipe that is recognised
by names that other programs may use, too, is called likely, and is never a trouble.";

const BACKUP_NOTES: &str = "\
The file is the store as of one moment. To restore it, stop all programs that use
the store, make a new directory that others may not enter (chmod 700), and put the
file there as store.db, alone. Nodes of sessions end after the TTL of those. For
other stores use: synod export.";

const DOCTOR_NOTES: &str = "\
It changes nothing, opens no session, and works while a stopped process keeps all
others from writing.

Exit codes:
  0   nothing is wrong    1   something is, and each line begins with `problem`
  otherwise those of `synod --help`";

const STATUS_NOTES: &str = "\
A session is opened with all servers of the URL, and with each of them alone, and
a node is read in each session. Each server is asked for its version and its role:
ZooKeeper by the command `srvr`, and etcd by its maintenance interface, which also
answers while no session can be opened. Only etcd has alarms (NOSPACE and CORRUPT)
and leases, one for each session; ZooKeeper counts the connections of each server.
A value that is not known is left out, and null in --json.

Exit codes:
  0    the store and each server answer, and no alarm is active
  1    the store answers; some server does not, or an alarm is active
  69   the store does not answer
  otherwise those of `synod --help`";

/// The files in which shells look for completions.
const COMPLETION_FILES: &str = "\
Save it where the shell looks for it:
  bash  synod completions bash > ~/.local/share/bash-completion/completions/synod
  zsh   synod completions zsh > DIRECTORY/_synod, with DIRECTORY in $fpath
  fish  synod completions fish > ~/.config/fish/completions/synod.fish";

/// The node to create.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The node; with --sequential, the start of its name
    pub(crate) path: Path,
    /// Its data; - reads standard input
    #[arg(default_value = "")]
    pub(crate) data: String,
    /// Append a number to its name, larger than those of its siblings
    #[arg(long)]
    pub(crate) sequential: bool,
    /// Keep it only as long as this command runs: until it is interrupted
    #[arg(long, group = "lifetime")]
    pub(crate) ephemeral: bool,
    /// Delete it once it has not been written for this long, like 30s
    #[arg(long, group = "lifetime", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) ttl: Option<Duration>,
}

/// The nodes to watch, and the command to run for each change.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// The node
    pub(crate) path: Path,
    /// Watch its children instead
    #[arg(long, conflicts_with = "subtree")]
    pub(crate) children: bool,
    /// Watch the node and everything below it
    #[arg(long)]
    pub(crate) subtree: bool,
    /// Stop after this many events; with a command, after it ran for this many changes
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<usize>,
    /// Time that the command may take to end after SIGTERM: 2s by default
    #[cfg(unix)]
    #[arg(long, value_name = "TIME", value_parser = time, requires = "command")]
    pub(crate) grace: Option<Duration>,
    /// The command to run for each change, and its arguments; after -- if it begins with a hyphen
    #[cfg(unix)]
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The group to join, and the command to run during the membership.
#[cfg(unix)]
#[derive(Debug, Args)]
pub(crate) struct Join {
    /// The group; all commands that name it are members
    pub(crate) path: Path,
    /// The name of the member; without it, a name that no other member has
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Replace a member of that name
    #[arg(long, requires = "name")]
    pub(crate) take_over: bool,
    /// Text that `members` shows of the member: host and process by default
    #[arg(long, value_name = "TEXT")]
    pub(crate) data: Option<String>,
    /// Time that the command may take to end after SIGTERM: 2s, or a quarter of the session's time
    /// to live if that is less
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) grace: Option<Duration>,
    /// The command and its arguments; after -- if it begins with a hyphen. Without a command, it is
    /// a member until this process is interrupted
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The directory to keep as files, and the command to run when they change.
#[cfg(unix)]
#[derive(Debug, Args)]
pub(crate) struct Mirror {
    /// The node
    pub(crate) path: Path,
    /// The directory: a new or empty one, or one that was a mirror of the same node before
    pub(crate) directory: PathBuf,
    /// Write the files once, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Time that the command may take to end after SIGTERM: 2s by default
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) grace: Option<Duration>,
    /// The command to run after files have changed, and its arguments; after -- if it begins with a
    /// hyphen
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[cfg(unix)]
const JOIN_EXIT_CODES: &str = "\
The command finds the path of its member in SYNOD_PATH. It runs in a process
group of its own; signals that synod gets are passed on to that group. When the
session is lost the command goes on, and synod joins again.

Without a command the name of the member is printed once it has joined, and it
leaves on Ctrl-C.

Exit codes:
  that of the command, or 128 + N if signal N ended it
  75   there is a member of that name
  126  the command cannot be run    127  there is no such command
  otherwise those of `synod --help`";

#[cfg(unix)]
const MIRROR_NOTES: &str = "\
Each node becomes a file, which is replaced as a whole. A node with nodes below
it becomes a directory; its data, unless it is empty, is in the file .value
there. Files of nodes that are removed are removed, too, and so is whatever else
is put into the directory, at the latest when the mirror is started again. No
other user may write to the directory. On a file system that does not
distinguish A from a, use names that differ in more than that. While the store
does not answer, the files stay.

The command finds the directory in SYNOD_DIRECTORY. It runs to its end; changes
meanwhile become files, and run it again, afterwards. Ctrl-C ends both.

Exit codes:
  0    it was ended by a signal, or with --once all files are written
  with --once that of the command, or 128 + N if signal N ended it
  126  the command cannot be run    127  there is no such command
  otherwise those of `synod --help`";

#[cfg(unix)]
const WATCH_NOTES: &str = "\
A command runs once for each node that is there at the start, and then once for
each node that changes. It reads the data of the node from its input, and finds
in its environment:
  SYNOD_PATH     the node
  SYNOD_EVENT    found (at the start), created, updated or deleted
  SYNOD_VERSION  the version of the node; empty after deleted

One command runs at a time. It runs to its end, and several changes of a node
meanwhile are one change: the next run has the latest data. So a command that
is slower than the changes misses data in between, and never the last. A change
during an outage of the store is found afterwards. A run that fails is reported
on standard error, and the next change runs the command again. Ctrl-C is passed
on to the command, and ends synod when the command has ended.

Exit codes:
  0    it was ended by a signal
  with --count that of the last run that failed, or 128 + N if signal N ended it
  126  the command cannot be run    127  there is no such command
  otherwise those of `synod --help`";
