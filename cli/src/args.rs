//! What a person types.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use synod::path::Path;

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
    /// Measure how fast a store is, below a node that is removed again
    Bench(Bench),
    /// Hold a store to its laws: one line a law, then a count
    Conformance {
        /// Only cases whose name contains this
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
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
