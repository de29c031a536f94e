//! [`Lap`]: the work of one process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::racer::Failure;

/// The work of one process.
pub(super) trait Lap {
    /// Does the work once, and returns its duration.
    fn lap(&mut self) -> Result<Duration, Failure>;

    /// Takes the lock, and keeps it.
    fn hold(&mut self) -> Result<(), Failure>;
}

/// Measures work.
pub(super) fn timed(work: impl FnOnce() -> Result<(), Failure>) -> Result<Duration, Failure> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed())
}

/// The time of a clock that all processes share, in nanoseconds.
pub(super) fn clock() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0) * 1_000_000_000 + nanos.unwrap_or(0)
}
