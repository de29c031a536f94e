//! The command behind `dev/bench --machine`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it talks to a person")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use synod_bench::machine::{Contest, Job, Rival, serve, table};
use synod_bench::racer::Failure;

/// Measures several processes of this machine: the store in a directory, file locks, SQLite; with
/// the feature `servers` also ZooKeeper and etcd.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Take all measurements, and print a table
    Run {
        /// The directory for the store, the files and the tables; it must not exist
        directory: PathBuf,
        /// Only work with this in its name
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
    /// Be one of the processes
    Process {
        /// The way to do the work
        rival: Rival,
        /// The work
        job: Job,
        /// The directory, or the address of the server
        place: String,
        /// The file with the number of laps under the lock
        sum: PathBuf,
        /// The number of the process
        index: usize,
    },
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Run { directory, only } => run(&directory, only),
        Command::Process { rival, job, place, sum, index } => {
            serve(rival, job, &place, &sum, index)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(directory: &Path, only: Option<String>) -> Result<(), Failure> {
    std::fs::create_dir(directory)?;
    let rows = Contest { directory: directory.to_owned(), only }.run(|row| eprintln!("{row}"));
    std::fs::remove_dir_all(directory)?;
    print!("{}", table(&rows?));
    Ok(())
}
