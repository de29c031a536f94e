//! The arguments of `sim`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use synod::sim::{Fault, Personality};

/// The histories to simulate.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Sim {
    #[command(subcommand)]
    pub(crate) what: Option<SimCommand>,

    /// The workload; `synod sim` lists them, and `all` runs one after the other
    pub(crate) workload: Option<String>,

    #[command(flatten)]
    pub(crate) seeds: Seeds,

    #[command(flatten)]
    pub(crate) shown: Shown,

    /// Write a history that fails to a file in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,

    /// Fail if an expected event never happened, even with few seeds
    #[arg(long)]
    pub(crate) strict: bool,
}

/// The histories to run.
#[derive(Clone, Debug, Args)]
pub(crate) struct Seeds {
    /// Number of histories
    #[arg(long = "seeds", value_name = "N", default_value_t = 1_000)]
    pub(crate) count: u64,
    /// As many as can be run in this time, like 2min
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) limit: Option<Duration>,
    /// Stop a workload after this many task turns: the same limit for each, however long it takes
    #[arg(long, value_name = "N", conflicts_with = "limit")]
    pub(crate) turns: Option<u64>,
    /// With `all`, let the workloads share --seeds and --turns equally, as they always share --for
    #[arg(long)]
    pub(crate) shared: bool,
    /// The first of them
    #[arg(long, value_name = "S", default_value = "0", value_parser = seed)]
    pub(crate) from: u64,
    /// The store to imitate: ideal, zk, etcd, etcd-3.4; one after the other by default
    #[arg(long, value_name = "NAME")]
    pub(crate) personality: Option<Personality>,
    /// Switch a fault off, like F2
    #[arg(long, value_name = "FAULT", value_parser = fault)]
    pub(crate) without: Vec<Fault>,
    /// Make a known mistake; `synod sim mutants` lists them
    #[arg(long, value_name = "NAME")]
    pub(crate) mutant: Option<String>,
    /// On this many threads
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
}

/// The form in which a history is shown.
#[derive(Clone, Debug, Args)]
pub(crate) struct Shown {
    /// Also write it to an HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// The other commands.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Show a history again, by its seed or from a file
    Replay {
        /// The workload, or a file that was kept
        what: String,
        /// Which history
        #[arg(long, value_parser = seed)]
        seed: Option<u64>,
        /// The store to imitate
        #[arg(long, value_name = "NAME", default_value = "ideal")]
        personality: Personality,
        /// The known mistake to make
        #[arg(long, value_name = "NAME")]
        mutant: Option<String>,
        /// Switch a fault off, like F2
        #[arg(long, value_name = "FAULT", value_parser = fault)]
        without: Vec<Fault>,
        /// Show the whole history, without reducing it
        #[arg(long)]
        whole: bool,
        /// Write the reduced history to a file in this directory
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
        #[command(flatten)]
        shown: Shown,
    },
    /// Crash at each call, and drop each call at each of its awaits, in small simulated worlds
    Sweep {
        /// Only workloads with this in their name
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
        /// From this many seeds
        #[arg(long, value_name = "N", default_value_t = 4)]
        seeds: u64,
        /// Instead, try every combination of up to this many faults, of ten kinds
        #[arg(long, value_name = "N")]
        faults: Option<usize>,
        /// Stop after this many histories in each world
        #[arg(long, value_name = "N", requires = "faults")]
        most: Option<u64>,
    },
    /// Make known mistakes, and report how soon each is found
    Mutants {
        /// Only mistakes with this in their name or in that of their workload
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
        /// Number of histories for each
        #[arg(long, value_name = "N", default_value_t = 2_000)]
        seeds: u64,
        /// Stop at the first history that finds the mistake
        #[arg(long)]
        first: bool,
        /// For each fault, list the mistakes that are not found without it
        #[arg(long)]
        faults: bool,
        /// Run every mistake under every workload, and report the laws that it breaks
        #[arg(long, conflicts_with = "faults")]
        all: bool,
        /// Write the first history that finds each mistake to a file in this directory
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
    },
}

/// A seed, decimal or hexadecimal.
fn seed(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    number.ok_or_else(|| "a seed is a number, like 47 or 0x2f".to_owned())
}

/// A fault by its name.
fn fault(text: &str) -> Result<Fault, String> {
    let text = text.to_uppercase();
    Fault::all()
        .find(|fault| fault.to_string() == text)
        .ok_or_else(|| "the faults are F1 to F29, and the defects of etcd-3.4 D1 to D4".to_owned())
}
