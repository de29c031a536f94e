//! The ZooKeeper backend of synod, on the crate `zookeeper-client`.
//!
//! It implements the whole [`Store`](synod_core::store) contract; no type of the client crate is
//! public. Defects of the crate and of the servers are compensated: watches that end with a
//! reconnect are set again and followed by a [`Resync`](synod_core::store::Event::Resync), every
//! answer that is not definite leaves a write's effect unknown, and a session's life is counted
//! from its own heartbeats.
//!
//! Containers are ZooKeeper's own, with a mark in their data by which this backend distinguishes
//! them from nodes: see `container.rs`.
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
mod stat;
mod tls;
mod wire;

pub use backend::ZkBackend;
pub use options::{Access, Heartbeat, Login, ZkOptions};
pub use tls::Tls;
