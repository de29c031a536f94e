//! [`now`]: a clock that all processes of the machine read alike.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Counts the time in which the machine is suspended.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
/// Counts the time in which the machine is suspended on Apple's systems.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The time since the start of the machine.
pub(super) fn now() -> Duration {
    let time = clock_gettime(CLOCK);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    // Neither is negative.
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}
