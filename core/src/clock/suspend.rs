//! The time for which the machine was suspended, which the clock of the timers does not count.
//!
//! A server counts the time during which the machine of a client is suspended, so the client has to
//! count it as well. On Linux and Android `CLOCK_BOOTTIME` advances during a suspension and
//! `CLOCK_MONOTONIC`, which is tokio's clock, does not; on Apple's systems it is `CLOCK_MONOTONIC`
//! against the clock of the standard library. On other systems nothing is measured here, and the
//! clock is that of the standard library.
//!
//! A virtual machine that its host pauses, or restores from a snapshot, does not see that time on
//! any of its clocks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Two clocks read around each other, in nanoseconds since a start of their own.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    awake_before: i128,
    always: i128,
    awake_after: i128,
}

/// The difference between the clock that advances during a suspension and the one that does not.
///
/// A thread may be interrupted between two readings. So each reading gives only bounds: the first
/// ones an upper bound of the start, every later one a lower bound. The result never decreases and
/// is never too large.
#[derive(Debug)]
struct SuspendedTime {
    start: OnceLock<i128>,
    max: AtomicU64,
}

static SUSPENDED: SuspendedTime = SuspendedTime::new();

/// Returns the time for which the machine was suspended since the first call in this process.
pub(super) fn slept() -> Duration {
    system::read().map_or(Duration::ZERO, |reading| SUSPENDED.update(reading, system::read))
}

impl SuspendedTime {
    const fn new() -> Self {
        Self { start: OnceLock::new(), max: AtomicU64::new(0) }
    }

    fn update(&self, reading: ClockReading, read: impl Fn() -> Option<ClockReading>) -> Duration {
        /// The number of readings: it is unlikely that each of them is interrupted.
        const READINGS: usize = 8;

        let start = *self.start.get_or_init(|| {
            let more = (1..READINGS).filter_map(|_| read());
            let bound = |reading: ClockReading| reading.always - reading.awake_before;
            more.fold(bound(reading), |least, reading| least.min(bound(reading)))
        });
        let least = u64::try_from(reading.always - reading.awake_after - start).unwrap_or(0);
        Duration::from_nanos(self.max.fetch_max(least, Ordering::Relaxed).max(least))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use rustix::time::{ClockId, Timespec, clock_gettime};

    use super::ClockReading;

    #[expect(clippy::unnecessary_wraps, reason = "other systems may have one clock only")]
    pub(super) fn read() -> Option<ClockReading> {
        let awake_before = nanos(clock_gettime(ClockId::Monotonic));
        let always = nanos(clock_gettime(ClockId::Boottime));
        let awake_after = nanos(clock_gettime(ClockId::Monotonic));
        Some(ClockReading { awake_before, always, awake_after })
    }

    fn nanos(time: Timespec) -> i128 {
        i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
    }
}

#[cfg(target_vendor = "apple")]
mod system {
    #![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "to compare it")]

    use std::sync::OnceLock;
    use std::time::Instant;

    use rustix::time::{ClockId, clock_gettime};

    use super::ClockReading;

    pub(super) fn read() -> Option<ClockReading> {
        static START: OnceLock<Instant> = OnceLock::new();

        let start = *START.get_or_init(Instant::now);
        let awake = || i128::try_from(start.elapsed().as_nanos()).ok();
        let awake_before = awake()?;
        let always = clock_gettime(ClockId::Monotonic);
        let always = i128::from(always.tv_sec) * 1_000_000_000 + i128::from(always.tv_nsec);
        Some(ClockReading { awake_before, always, awake_after: awake()? })
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
mod system {
    use super::ClockReading;

    pub(super) fn read() -> Option<ClockReading> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(awake_before: i128, always: i128, awake_after: i128) -> ClockReading {
        ClockReading { awake_before, always, awake_after }
    }

    #[test]
    fn an_interrupted_reading_is_no_suspension() {
        let ahead = SuspendedTime::new();
        // Interrupted between the first two clocks; the second reading is not.
        let quick = || Some(reading(10_000, 110_001, 10_002));
        assert_eq!(ahead.update(reading(0, 109_000, 9_000), quick), Duration::ZERO);
        assert_eq!(ahead.update(reading(20_000, 120_000, 20_001), || None), Duration::ZERO);
        assert_eq!(ahead.update(reading(30_000, 130_000, 95_000), || None), Duration::ZERO);
        assert_eq!(ahead.update(reading(96_000, 230_000, 130_000), || None), Duration::ZERO);
    }

    #[test]
    fn a_suspension_is_counted_once_and_for_good() {
        let ahead = SuspendedTime::new();
        assert_eq!(ahead.update(reading(0, 100, 0), || None), Duration::ZERO);
        assert_eq!(ahead.update(reading(10, 5_110, 10), || None), Duration::from_micros(5));
        // An interrupted reading gives a lower bound that changes nothing.
        assert_eq!(ahead.update(reading(20, 5_120, 90), || None), Duration::from_micros(5));
        assert_eq!(ahead.update(reading(100, 6_200, 100), || None), Duration::from_micros(6));
    }

    #[test]
    fn this_machine_can_be_asked() {
        let (first, second) = (slept(), slept());
        assert!(second >= first);
    }
}
