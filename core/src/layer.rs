//! Stores that wrap stores.
//!
//! Each layer is a [`Store`](crate::store::Store) over another one, and a
//! [`Backend`](crate::store::Backend) over another one that opens such stores. A layer keeps the
//! contract of the floor wherever what it wraps does, so layers stack in any order; only
//! [`fault`] breaks what a store may break.
//!
//! | layer | what it does |
//! |---|---|
//! | [`namespace`] | moves everything below one path |
//! | [`trace`] | logs and counts every call |
//! | [`fault`] | loses, delays, refuses and holds calls, by a seed or by a script |
//! | [`hesitant`] | pauses around every call, so that a call can be dropped at each of them |

pub mod fault;
pub mod hesitant;
pub mod namespace;
pub mod trace;

// Parts of `fault`.
mod plan;
mod script;
mod site;

// Parts of `trace`.
mod call;
#[cfg(feature = "metrics")]
mod meter;
#[cfg(not(feature = "metrics"))]
mod unmetered;

#[cfg(test)]
mod fake;

#[cfg(not(feature = "metrics"))]
use unmetered as meter;
