//! Modules that several recipes use and that are not recipes: retries, waits, time, detached tasks,
//! names, metrics, nodes that are created once, and exactly-once writes.

pub(crate) mod barrier_change;
pub(crate) mod detached;
pub(crate) mod exactly_once;
pub(crate) mod metrics;
pub(crate) mod names;
pub(crate) mod retry;
pub(crate) mod time;
pub(crate) mod wait;
