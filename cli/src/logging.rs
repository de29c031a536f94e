//! [`start`]: the log on standard error, with `-v` or `RUST_LOG`.

use std::io;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::failure::Failure;

/// Starts to log, if requested, at the level in `RUST_LOG` or else by the number of `-v`.
pub(crate) fn start(verbose: u8) -> Result<(), Failure> {
    let wanted = std::env::var("RUST_LOG").ok().filter(|it| !it.is_empty());
    let targets = match wanted {
        Some(wanted) => wanted.parse().map_err(|error| {
            Failure::plain(format!("RUST_LOG: {error}; say for example synod=debug"))
        })?,
        None if verbose == 0 => return Ok(()),
        None => Targets::new().with_target("synod", level(verbose)),
    };
    let log = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    // A program that calls this command may have its own log.
    let _started = tracing_subscriber::registry().with(log).with(targets).try_init().is_ok();
    Ok(())
}

fn level(verbose: u8) -> LevelFilter {
    match verbose {
        0 | 1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}
