#![doc = include_str!("crate.md")]

mod address;
mod backend;
mod config;
#[cfg(all(doctest, feature = "mem"))]
mod examples;
mod plan;
mod registry;
mod scheme;
mod servers;
mod target;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod tls_file;

pub use address::Address;
pub use config::Config;
pub use registry::{Opening, register};
pub use scheme::Scheme;
pub use servers::ServersFrom;
pub use synod_core::client::{
    Client, ClientOptions, ClientWatch, ConnectionState, Deletion, ExactlyOnceClient, ValueWatch,
};
pub use synod_core::error::{Effect, Error, ErrorKind, Result};
pub use synod_core::held::{Held, Release, Token};
pub use synod_core::name::Name;
pub use synod_core::path::{InvalidPath, Path};
pub use synod_core::retry::Retry;
pub use synod_core::session::Session;
pub use synod_core::store::{
    Change, Commit, End, Event, Expect, Kind, Lifetime, Node, OpResult, Outcome, Query,
    RejectReason, Rejected, Revision, ServerSource, ServersFile, SessionEnd, SessionHandover,
    SessionId, SessionOptions, Stat, Status, Txn, Version, View, Watch,
};
pub use synod_core::value::Value;
pub use synod_core::{clock, path};
#[cfg(all(feature = "file", target_os = "linux"))]
pub use synod_file as file;
#[cfg(feature = "mem")]
pub use synod_mem as mem;
#[doc(inline)]
pub use synod_recipes::{
    barrier, cache, crew, discovery, election, lock, partition, presence, queue, schedule,
    transaction, value, within,
};
#[cfg(feature = "sim")]
pub use synod_sim as sim;
pub use target::{Credentials, Tls};

/// The status of the members of a cluster, as only etcd has it: see [`Config::member_status`].
#[cfg(feature = "etcd")]
pub mod etcd {
    #[doc(inline)]
    pub use synod_etcd::{MemberAlarm, MemberStatus};
}

/// Access lists of nodes and the statistics of servers, as only ZooKeeper has them.
#[cfg(feature = "zookeeper")]
pub mod zookeeper {
    #[doc(inline)]
    pub use synod_zk::{Acl, AclClient, AclEntry, NodeAcl, Permissions, ServerStats};
}

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
