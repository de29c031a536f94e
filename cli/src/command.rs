//! One module per command, and the connection to the store that they share.

use std::io::Read as _;
use std::pin::pin;

use futures_util::future::{Either, select};
use synod::Client;
use synod::Scheme;
use synod::{Expect, Version};

use crate::args::Common;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::settings::Settings;

pub(crate) mod acl;
#[cfg(unix)]
mod changes;
#[cfg(unix)]
pub(crate) mod consume;
mod contenders_shown;
pub(crate) mod cp;
pub(crate) mod create;
pub(crate) mod crew;
mod crew_shown;
#[cfg(unix)]
pub(crate) mod crew_work;
pub(crate) mod delete;
pub(crate) mod diff;
#[cfg(all(feature = "file", target_os = "linux"))]
pub(crate) mod directory;
#[cfg(not(all(feature = "file", target_os = "linux")))]
#[path = "command/no_directory.rs"]
pub(crate) mod directory;
pub(crate) mod discover;
pub(crate) mod export;
pub(crate) mod group;
#[cfg(unix)]
pub(crate) mod hold;
pub(crate) mod import;
pub(crate) mod inspect;
mod item_shown;
pub(crate) mod list;
#[cfg(unix)]
pub(crate) mod mirror;
pub(crate) mod node;
pub(crate) mod pages;
pub(crate) mod queue;
pub(crate) mod request;
pub(crate) mod schedule;
#[cfg(unix)]
mod schedule_run;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod tree;
pub(crate) mod txn;
pub(crate) mod value;
pub(crate) mod watch;
#[cfg(unix)]
mod watch_command;

#[cfg(test)]
mod tests;

/// The URL of the store that was named.
#[cfg(any(feature = "bench", feature = "conformance"))]
pub(crate) fn store(common: &Common) -> Result<String, Failure> {
    Ok(Settings::of(common)?.url_alone()?.to_owned())
}

/// A store in memory belongs to this process alone.
fn refuse_memory(common: &Common, so: &str) -> Result<(), Failure> {
    if Settings::of(common)?.config()?.url.scheme() != Scheme::Mem {
        return Ok(());
    }
    Err(Failure::plain(format!(
        "a store in memory ends with this command and no other process sees it, so {so}; name a server or a directory, \
         for example --store zk://localhost:2181 or etcd://localhost:2379, or say --here for this machine",
    )))
}

async fn connect(common: &Common) -> Result<Client, Failure> {
    let config = Settings::of(common)?.config()?;
    Ok(Progress::waiting("connecting", config.connect()).await?)
}

/// The data from the argument, or standard input for `-`.
fn given(data: &str) -> Result<Vec<u8>, Failure> {
    if data != "-" {
        return Ok(data.as_bytes().to_vec());
    }
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input)?;
    Ok(input)
}

/// The version from the argument, or any.
fn expected(version: Option<u64>) -> Expect {
    version.map_or(Expect::Any, |version| Expect::Version(Version::new(version)))
}

/// Waits for `work`, or until this process is interrupted.
pub(crate) async fn until_interrupted<T>(work: impl Future<Output = T>) -> Option<T> {
    Interrupts::listen().until(work).await
}

/// The signals that ask this process to end, from now on: before it ends, the command removes what
/// it has written.
#[cfg(unix)]
pub(crate) struct Interrupts(std::io::Result<crate::process::signals::Signals>);

/// Ctrl-C.
#[cfg(not(unix))]
pub(crate) struct Interrupts;

#[cfg(unix)]
impl Interrupts {
    /// SIGINT, SIGTERM, SIGHUP and SIGQUIT.
    pub(crate) fn listen() -> Self {
        Self(crate::process::signals::Signals::fatal_only())
    }

    async fn next(&mut self) {
        match &mut self.0 {
            Ok(signals) => drop(signals.fatal().await),
            // The default handling of the system ends this process.
            Err(_refused) => std::future::pending().await,
        }
    }
}

#[cfg(not(unix))]
impl Interrupts {
    pub(crate) fn listen() -> Self {
        Self
    }

    async fn next(&mut self) {
        let _interrupted = tokio::signal::ctrl_c().await.is_ok();
    }
}

impl Interrupts {
    /// Waits for `work`, or until this process is interrupted.
    pub(crate) async fn until<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        match select(pin!(work), pin!(self.next())).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }
}
