//! The ZooKeeper backend of synod, with a client of its own for ZooKeeper's protocol (`client.rs`).
//!
//! It implements the whole [`Store`](synod_core::store) contract; no type of the client is
//! public. What the servers do not promise is compensated: watches that end with a
//! reconnect are set again and followed by a [`Resync`](synod_core::store::Event::Resync), every
//! answer that is not definite leaves a write's effect unknown, and a session's life is counted
//! from its own heartbeats.
//!
//! Containers are ZooKeeper's own, with a fixed text as their data by which this backend distinguishes
//! them from nodes: see `container.rs`.
//!
//! Read `options.rs`, `backend.rs`, `session.rs`; then `single_operation.rs`, `commit.rs` with
//! `plan.rs` and `refusal.rs`, `sole_contender.rs`, `hub.rs`, and `client.rs` with `client/session.rs`.

mod backend;
mod client;
mod commit;
mod connection;
mod container;
mod diagnosis;
mod error;
mod guard;
mod heartbeat;
mod hub;
mod look;
mod notification;
mod options;
mod plan;
mod races;
mod read;
mod refusal;
mod selection;
mod session;
mod single_operation;
mod snapshot;
mod sole_contender;
mod stat;
mod tls;

pub use backend::ZkBackend;
pub use options::{Access, Heartbeat, Login, ZkOptions};
pub use tls::Tls;
