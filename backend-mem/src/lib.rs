//! A complete store inside one process: the default store, the reference for all others, and the
//! base of the deterministic simulation.
//!
//! It keeps the contract of [`synod_core::store`] and no more than that. Where the contract is
//! weak, this store is deliberately weak, too: `Local` reads lag, empty containers stay for a
//! while, sequences have gaps and start again with their directory. So a program that runs well
//! here does not depend on the strengths of a particular store.
//!
//! Its clock is tokio's, so it follows paused time.

mod apply;
mod backend;
mod event_queue;
mod link;
mod query;
mod replica;
mod session;
mod shared;
pub mod state_machine;
mod tree;
mod watches;
mod world;

pub use backend::MemBackend;
pub use link::Weather;
pub use world::Census;
