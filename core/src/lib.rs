//! The contract of synod and the client on top of it. This crate contains no backend and no network
//! code.
//!
//! From the bottom up: [`path`](mod@path) and [`error`]; the contract of a backend, [`store`]; the
//! client, [`session`] and [`client`]. The recipes are in `synod-recipes` and use only the public
//! items of this crate.

pub mod client;
pub mod clock;
pub mod error;
pub mod held;
mod invalid_path;
pub mod layer;
mod local;
#[doc(hidden)]
pub mod mutant;
pub mod name;
pub mod path;
pub mod random;
pub mod retry;
#[doc(hidden)]
pub mod runtime;
pub mod session;
pub mod store;
pub mod task;
pub mod value;
