//! The `synod` command.

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Cli, Command, Common};
use crate::failure::Failure;

mod args;
mod bench;
mod command;
mod conformance;
mod demo;
mod failure;
mod output;
#[cfg(unix)]
mod process;
mod progress;
mod sim;

fn main() -> ExitCode {
    let cli = Cli::parse();
    #[cfg(unix)]
    if let Command::Guard { grace } = cli.command {
        return process::guard::stand(std::time::Duration::from_millis(grace));
    }
    let done = on_runtime(run(cli.command, &cli.common));
    done.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

fn on_runtime(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(work)
}

async fn run(command: Command, common: &Common) -> Result<(), Failure> {
    match command {
        Command::Demo => demo::run(common).await,
        Command::Get { path, raw } => command::node::get(common, &path, raw).await,
        Command::Set { path, data, version } => {
            command::node::set(common, &path, &data, version).await
        }
        Command::Create(create) => command::create::run(common, create).await,
        Command::Delete { path, version, recursive: false } => {
            command::node::delete(common, &path, version).await
        }
        Command::Delete { path, .. } => command::delete::tree(common, &path).await,
        Command::Ls { path, long } => command::list::children(common, &path, long).await,
        Command::Tree { path } => command::tree::run(common, &path).await,
        Command::Watch { path, children, subtree, count } => {
            command::watch::run(common, &path, children, subtree, count).await
        }
        Command::Inspect { path } => command::inspect::run(common, &path).await,
        #[cfg(unix)]
        Command::Lock(lock) => command::hold::lock(common, lock).await,
        #[cfg(unix)]
        Command::Elect(elect) => command::hold::elect(common, elect).await,
        #[cfg(unix)]
        Command::Guard { .. } => Ok(()),
        Command::Bench(chosen) => bench::run(common, &chosen).await,
        Command::Conformance { only } => conformance::run(common, only.as_deref()),
        Command::Sim(asked) => sim::run(common, &asked),
    }
}
