//! [`date`]: the time of the wall clock, as names and data of nodes have it.

use std::time::{Duration, SystemTime};

use synod_core::clock;

/// The time since the beginning of 1970, by the clock of this machine.
pub(crate) fn date() -> Duration {
    clock::date().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
