//! The ZooKeeper backend of synod, with its own client for ZooKeeper's protocol (`client.rs`).
//!
//! It implements the whole [`Store`](synod_core::store) contract; no type of the client is public.
//! Guarantees that the servers do not give are added: watches that end with a reconnect are set
//! again and followed by a [`Resync`](synod_core::store::Event::Resync), every answer that is not
//! definite leaves a write's effect unknown, and a session's life is counted from its own
//! heartbeats.
//!
//! Containers are ZooKeeper's own, with a fixed text as their data by which this backend
//! distinguishes them from nodes: see `containers.rs`.
//!
//! Read `options.rs`, `backend.rs`, `session.rs`; then `commit.rs` with `commit/single.rs`,
//! `commit/plan.rs` and `commit/resolve.rs`; then `listing_cache.rs`, `watch_registry.rs`, and
//! `client.rs` with `client/session.rs`.

mod access_lists;
mod acl;
mod acl_calls;
mod acl_client;
mod backend;
mod client;
mod commit;
mod connection;
mod containers;
mod diagnosis;
mod ensemble;
mod error;
mod heartbeat;
mod listing_cache;
mod notification;
mod options;
mod read;
mod recent_rejections;
mod selection;
mod server_stats;
mod session;
mod snapshot;
mod tls;
mod watch_registry;

pub use acl::{Acl, AclEntry, Permissions};
pub use acl_calls::NodeAcl;
pub use acl_client::AclClient;
pub use backend::ZkBackend;
pub use options::{Access, Heartbeat, Login, ZkOptions};
pub use server_stats::ServerStats;
pub use tls::Tls;
