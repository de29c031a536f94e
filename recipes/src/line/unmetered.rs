//! The metrics of waiters and holders, without the feature: nothing is counted.

use std::time::Duration;

pub(crate) const fn granted(_recipe: &'static str, _waited: Duration, _asked: u32) {}

pub(super) const fn held(_recipe: &'static str, _held: Duration) {}
