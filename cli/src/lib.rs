//! The `synod` command, as a library: for programs that add their own store.
//!
//! A program that registers a store and calls [`main`] is the `synod` command for that store, too:
//! all commands accept its URLs, including `conformance` and `bench`, which are features of this
//! crate.
//!
//! ```no_run
//! # // It would run the command that the arguments of the test name.
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use synod::mem::MemBackend;
//!
//! fn main() -> ExitCode {
//!     // In place of a backend of your own.
//!     synod::register("shelf", |_opening| Ok(Arc::new(MemBackend::named("shelf"))))
//!         .expect("no other store has this scheme");
//!     synod_cli::main()
//! }
//! ```

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::args::{Cli, Command, Common};
use crate::failure::Failure;

mod absent;
mod access;
mod args;
#[cfg(feature = "bench")]
mod bench;
mod command;
#[cfg(feature = "conformance")]
mod conformance;
mod demo;
mod export_format;
mod failure;
#[cfg(unix)]
mod files;
mod logging;
mod output;
#[cfg(unix)]
mod process;
mod progress;
mod server_report;
mod settings;
#[cfg(feature = "sim")]
mod sim;
mod time;
mod usage;
mod walk;

/// Runs the command that the arguments of this process name, to its end.
///
/// It may be called more than once in a process, but not within a tokio runtime.
pub fn main() -> ExitCode {
    run_with(std::env::args_os())
}

/// [`main`] with other arguments; the first is the name of the program.
pub fn run_with(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let matches = match absent::listed(Cli::command()).try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        // For clap the help is an error, but here it is not a failure.
        Err(error) => return usage::report(&error, &arguments),
    };
    if let Some(failure) = absent::called(&matches) {
        return failure.report();
    }
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error, &arguments),
    };
    #[cfg(unix)]
    if let Command::Guard { grace } = cli.command {
        return process::guard::stand(std::time::Duration::from_millis(grace));
    }
    let logs = logging::start(cli.common.verbose);
    let done = logs.and_then(|()| on_runtime(run(cli.command, &cli.common)));
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
        Command::Status { timeout } => command::status::run(common, timeout).await,
        Command::Backup { to } => command::directory::backup(common, &to).await,
        Command::Doctor => command::directory::doctor(common).await,
        Command::Demo => Box::pin(demo::run(common)).await,
        Command::Get { paths, raw } => command::node::get(common, &paths, raw).await,
        Command::Set { path, data, version } => {
            command::node::set(common, &path, &data, version).await
        }
        Command::Put { path, data } => command::node::put(common, &path, &data).await,
        Command::Create(create) => command::create::run(common, create).await,
        Command::Delete { path, version, recursive: false } => {
            command::node::delete(common, &path, version).await
        }
        Command::Delete { path, .. } => command::delete::tree(common, &path).await,
        Command::Ls { paths, long, data } => {
            command::list::children(common, &paths, long, data).await
        }
        Command::Tree { paths, data } => command::tree::run(common, &paths, data).await,
        Command::Watch(watch) => command::watch::run(common, watch).await,
        Command::Acl { action } => command::acl::run(common, &action).await,
        Command::Export(export) => command::export::run(common, &export).await,
        Command::Cp(cp) => command::cp::run(common, &cp).await,
        Command::Import(import) => command::import::run(common, &import).await,
        Command::Diff(diff) => command::diff::run(common, &diff).await.map_err(Failure::of_diff),
        Command::Completions { shell } => command::pages::completions(shell),
        Command::Man { into } => command::pages::manual(into.as_deref()),
        Command::Inspect { path, recursive: false, .. } => {
            command::inspect::run(common, &path).await
        }
        Command::Inspect { path, limit, .. } => command::inspect::below(common, &path, limit).await,
        Command::Top { path, once, every, limit } => {
            let every = (!once).then_some(every);
            command::top::run(common, &path, every, limit).await
        }
        Command::Semaphore { path, action } => {
            command::value::semaphore(common, &path, action).await
        }
        Command::RequestRelease { path } => command::request::run(common, &path).await,
        Command::Txn { file } => command::txn::run(common, &file).await,
        Command::Counter { path, action } => command::value::counter(common, &path, action).await,
        Command::Barrier { path, action } => command::value::barrier(common, &path, action).await,
        Command::Queue { path, action } => command::queue::run(common, &path, action).await,
        Command::Members { path } => command::group::members(common, &path).await,
        Command::Discover { base, service } => {
            command::discover::run(common, &base, service.as_deref()).await
        }
        Command::Crew { path, action } => command::crew::run(common, &path, action).await,
        Command::Schedule { path, action } => command::schedule::run(common, &path, action).await,
        #[cfg(unix)]
        Command::Mirror(mirror) => command::mirror::run(common, mirror).await,
        #[cfg(unix)]
        Command::Join(join) => command::group::join(common, join).await,
        #[cfg(unix)]
        Command::Lock(lock) => command::hold::lock(common, lock).await,
        #[cfg(unix)]
        Command::Elect(elect) => command::hold::elect(common, elect).await,
        #[cfg(unix)]
        Command::Guard { .. } => Ok(()),
        #[cfg(feature = "bench")]
        Command::Bench(chosen) => bench::run(common, &chosen).await,
        #[cfg(feature = "conformance")]
        Command::Conformance(chosen) => conformance::run(common, chosen.only.as_deref()),
        #[cfg(feature = "sim")]
        Command::Sim(asked) => sim::run(common, &asked),
    }
}
