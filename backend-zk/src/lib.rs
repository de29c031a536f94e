//! The ZooKeeper backend of synod, on the crate `zookeeper-client`.
//!
//! Every part of the [floor](synod_core::store) is here; nothing of the crate underneath is public.
//! What the crate or the servers get wrong is made good: watches that fall silent after a reconnect
//! are made again and followed by a [`Resync`](synod_core::store::Event::Resync), everything but a
//! definite answer leaves a write's effect unknown, and a session's life is counted from its own
//! heartbeats.
//!
//! Containers are ZooKeeper's own, with a mark in their data by which this backend tells them from
//! nodes: see `container.rs`.
//!
//! Read `options.rs`, `backend.rs`, `session.rs`; then `lone.rs`, `commit.rs` with
//! `plan.rs` and `mend.rs`, `alone.rs`, and `hub.rs`.

mod alone;
mod backend;
mod commit;
mod contained;
mod container;
mod error;
mod guard;
mod hub;
mod keep;
mod lone;
mod look;
mod mend;
mod news;
mod nodelay;
mod options;
mod plan;
mod probe;
mod pulse;
mod read;
mod sent;
mod session;
mod sift;
mod snapshot;
mod tls;
mod wire;

pub use backend::ZkBackend;
pub use options::{Access, Heartbeat, Login, ZkOptions};
pub use tls::Tls;
