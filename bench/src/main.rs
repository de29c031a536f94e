//! The command that `dev/bench` runs.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it talks to a person")]

use std::io::{BufReader, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use synod_bench::bare;
use synod_bench::contest::{Contest, Wanted};
use synod_bench::ours::{Floor, Ours, Plain};
use synod_bench::plan::Extent;
use synod_bench::plot::plot;
use synod_bench::racer::{Failure, Racer, serve};
use synod_bench::record;
use synod_bench::stand::{Server, Stand};
use synod_bench::summary::summary;
use synod_bench::table::Table;
use tokio::runtime::Runtime;

/// Measures synod in comparison with other clients.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Race on servers that are started for it
    Run(Run),
    /// Print the table of results again
    Table {
        /// The file that `run` wrote
        results: PathBuf,
        /// Print everything that was measured, as a line of JSON for each row
        #[arg(long)]
        json: bool,
    },
    /// Draw results, one file per server
    Plot {
        /// The file that `run` wrote
        results: PathBuf,
        /// The directory for the pictures: benchmarks-SERVER.svg
        dir: PathBuf,
    },
    /// Start a server, print its address, and end it when the input ends
    Stand {
        /// The kind of server
        server: Server,
    },
    /// Do tasks, one per line of standard input, as one of the racers that are written in Rust
    Racer {
        /// The kind of racer
        kind: Kind,
        /// The kind of server
        server: Server,
        /// The address of the server
        address: String,
        /// The time to live of sessions, in milliseconds
        session: u64,
    },
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Measure less, within three minutes
    #[arg(long)]
    quick: bool,
    /// Only on this server
    #[arg(long)]
    server: Option<Server>,
    /// Only measurements with this in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The directory of the peers, and for their logs
    #[arg(long, value_name = "DIR")]
    tools: PathBuf,
    /// The file for the results
    #[arg(long, value_name = "FILE")]
    results: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// A client of synod
    Ours,
    /// The same, without optional features
    Plain,
    /// A session of synod, without a client
    Floor,
    /// A client crate: on etcd the one that the backend is built on
    Bare,
    /// The other crate, sending exactly the requests of synod
    Same,
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Run(run) => contest(run),
        Command::Table { results, json } => print(&results, json),
        Command::Plot { results, dir } => draw(&results, &dir),
        Command::Stand { server } => stand(server),
        Command::Racer { kind, server, address, session } => race(kind, server, &address, session),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn contest(run: Run) -> Result<(), Failure> {
    let extent = if run.quick { Extent::Quick } else { Extent::Full };
    let wanted = Wanted { extent, server: run.server, only: run.only };
    let contest = Contest::new(wanted, run.tools, run.results);
    let table = runtime()?.block_on(contest.run(|progress| eprintln!("{progress}")))?;
    print!("{table}");
    let failures: Vec<String> = table.failures().collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

fn print(results: &Path, json: bool) -> Result<(), Failure> {
    let table = table(results)?;
    if json {
        print!("{}", summary(&table)?);
    } else {
        print!("{table}");
    }
    Ok(())
}

fn draw(results: &Path, dir: &Path) -> Result<(), Failure> {
    let table = table(results)?;
    for server in [Server::Zookeeper, Server::Etcd] {
        let file = dir.join(format!("benchmarks-{}.svg", server.name()));
        std::fs::write(file, plot(&table, server.name()))?;
    }
    Ok(())
}

fn table(results: &Path) -> Result<Table, Failure> {
    Ok(Table::of(&record::read(&std::fs::read_to_string(results)?)?))
}

fn stand(server: Server) -> Result<(), Failure> {
    let stand = Stand::start(server, false)?;
    println!("{}", stand.address());
    let _ended = std::io::copy(&mut stdin().lock(), &mut std::io::sink())?;
    Ok(())
}

fn race(kind: Kind, server: Server, address: &str, session: u64) -> Result<(), Failure> {
    let runtime = runtime()?;
    let mut racer = runtime.block_on(open(kind, server, address, session))?;
    serve(&runtime, &mut *racer, BufReader::new(stdin()), stdout().lock())?;
    Ok(())
}

async fn open(
    kind: Kind,
    server: Server,
    address: &str,
    session: u64,
) -> Result<Box<dyn Racer>, Failure> {
    let url = server.url(address, session);
    Ok(match (kind, server) {
        (Kind::Ours, _) => Box::new(Ours::open(&url, "/ours-bench").await?),
        (Kind::Plain, _) => Box::new(Plain(Ours::open(&url, "/plain-bench").await?)),
        (Kind::Floor, _) => Box::new(Floor::open(&url, "/floor-bench").await?),
        (Kind::Bare, Server::Zookeeper) => Box::new(bare::zookeeper::Bare::connect(address).await?),
        (Kind::Bare, Server::Etcd) => Box::new(bare::etcd::Bare::connect(address).await?),
        (Kind::Same, Server::Etcd) => Box::new(bare::same::Same::connect(address).await?),
        (Kind::Same, Server::Zookeeper) => Box::new(bare::zookeeper::Same::connect(address).await?),
    })
}

/// On one thread: the CPU time of a client is then the time of that thread.
fn runtime() -> Result<Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
