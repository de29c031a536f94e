//! A complete store inside one process: the default of everything that runs, the reference for
//! every other store, and the ground that the deterministic simulation stands on.
//!
//! It keeps the contract of [`synod_core::store`] and no more than that. Where the contract is weak
//! it is weak too, on purpose: `Local` reads lag, empty containers stay a while, sequences have gaps
//! and start again with their directory. What runs well here leans on no store's strength.
//!
//! Its clock is tokio's, so it follows paused time.

mod apply;
mod backend;
pub mod cluster;
mod link;
mod look;
mod post;
mod replica;
mod session;
mod tree;
mod watches;
mod world;

pub use backend::{Census, MemBackend};
pub use link::Weather;
