//! The contract of synod and everything that is built on it. Knows no backend and no network.
//!
//! From the ground up it has [`path`](mod@path) and [`error`]; then the floor, [`store`];
//! then the door, [`session`] and [`client`]. The recipes are in `synod-recipes`, on what is public here.

pub mod client;
pub mod clock;
pub mod error;
pub mod held;
mod invalid_path;
pub mod layer;
pub mod mutant;
pub mod name;
pub mod path;
pub mod random;
pub mod retry;
pub mod runtime;
pub mod session;
pub mod store;
pub mod task;
pub mod value;
