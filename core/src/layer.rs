//! Stores that wrap stores.
//!
//! Each layer is a [`Store`](crate::store::Store) over another one, and a
//! [`Backend`](crate::store::Backend) over another one that opens such stores. A layer keeps the
//! contract if the underlying store does, so layers stack in any order. Layers that inject faults
//! for tests are in `synod-testkit`.
//!
//! | layer | what it does |
//! |---|---|
//! | [`namespace`] | moves everything below one path |
//! | [`trace`] | logs and counts every call |

pub mod namespace;
pub mod trace;

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
