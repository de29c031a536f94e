#![doc = include_str!("../README.md")]

mod address;
mod backend;
mod config;
#[cfg(all(doctest, feature = "mem"))]
mod examples;
mod plan;
mod registry;
mod scheme;
mod target;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod tls_file;

pub use address::Address;
pub use config::Config;
pub use registry::{Opening, register};
pub use scheme::Scheme;
pub use synod_core::client::{Client, ClientOptions, ClientWatch, ConnectionState, ValueWatch};
pub use synod_core::error::{Effect, Error, ErrorKind, Result};
pub use synod_core::name::Name;
pub use synod_core::path::{InvalidPath, Path};
pub use synod_core::retry::Retry;
pub use synod_core::session::Session;
pub use synod_core::store::{
    Commit, End, Event, Expect, Lifetime, Node, OpResult, Outcome, Query, RejectReason, Rejected,
    Revision, SessionEnd, Stat, Status, Txn, Version,
};
pub use synod_core::value::Value;
pub use synod_core::{
    client, clock, error, layer, name, path, random, retry, session, store, value,
};
#[cfg(feature = "mem")]
pub use synod_mem as mem;
pub use synod_recipes as recipe;
#[cfg(feature = "sim")]
pub use synod_sim as sim;
pub use target::{Credentials, Tls};

/// Connects to the store at `url`: [`Config::new`] and [`Config::connect`] in one.
///
/// # Errors
///
/// As [`Config::connect`].
///
/// # Cancel safety
///
/// As [`Config::connect`].
pub async fn connect(url: &str) -> Result<Client> {
    Config::new(url)?.connect().await
}
