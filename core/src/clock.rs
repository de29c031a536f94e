//! The one place where time is read and waited for: tokio's clock, or on a [`Runtime`] the clock
//! of the process that runs there.
//!
//! What it shows includes the time during which the machine was suspended, as far as the system reports it: tokio's
//! own clock stands still meanwhile, and servers do not. So an [`Instant`] of this clock is compared with [`now`] and waited
//! for with [`sleep_until`], not with tokio's functions of these names.

#![expect(clippy::disallowed_methods, reason = "the one place where time is read")]

use std::fmt;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use futures_util::future::{Either, select};
use tokio::time::Sleep;

pub use tokio::time::Instant;

use crate::mutant::mistake;
use crate::runtime::{self, Runtime};

mod suspend;

/// A limit that was reached before what it limits came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Elapsed;

/// What the clock shows.
#[inline]
pub fn now() -> Instant {
    match runtime::here() {
        Some(runtime) => runtime.now() + counted(&*runtime),
        None => Instant::now() + suspend::slept(),
    }
}

/// How long the machine was suspended since this process first looked. It is part of what the clock shows.
pub fn slept() -> Duration {
    runtime::here().map_or_else(suspend::slept, |runtime| counted(&*runtime))
}

/// How much of the time in which the machine of a runtime slept is counted: all of it.
fn counted(runtime: &dyn Runtime) -> Duration {
    mistake!(SleepUncounted: return Duration::ZERO);
    runtime.slept()
}

/// What no process can see: the time by a clock that is right. On a runtime, the runtime's own.
#[inline]
pub fn true_now() -> Instant {
    Instant::now()
}

/// The date that the wall clock shows, which may be set to another date at any time. It is for names and logs:
/// no promise depends on it.
pub fn date() -> SystemTime {
    runtime::here().map_or_else(SystemTime::now, |runtime| runtime.date())
}

/// How long ago the clock showed `since`.
pub fn elapsed(since: Instant) -> Duration {
    now().saturating_duration_since(since)
}

/// Waits for so long.
pub fn sleep(duration: Duration) -> Sleep {
    let Some(runtime) = runtime::here() else { return tokio::time::sleep(duration) };
    match runtime.now().checked_add(duration) {
        Some(at) => tokio::time::sleep_until(runtime.true_time(at)),
        None => tokio::time::sleep(duration),
    }
}

/// Waits until the clock shows `at`. A suspension that begins later delays the end by its length: where that matters,
/// use [`Vigil`].
pub fn sleep_until(at: Instant) -> Sleep {
    let timer = at.checked_sub(slept()).unwrap_or(at);
    tokio::time::sleep_until(runtime::here().map_or(timer, |runtime| runtime.true_time(timer)))
}

/// Waits that end soon after the machine was suspended and goes on: a timer stands still meanwhile, and then waits for
/// its rest.
#[derive(Debug)]
pub struct Vigil {
    slept: Duration,
}

impl Vigil {
    /// How often it looks whether the machine was suspended.
    pub const LOOK: Duration = Duration::from_secs(1);

    /// Shorter suspensions are only added to what the clock shows.
    const LEAST: Duration = Duration::from_millis(50);

    /// Begins now.
    pub fn new() -> Self {
        Self { slept: slept() }
    }

    /// Whether the machine was suspended since this was last asked.
    pub fn resumed(&mut self) -> bool {
        let slept = slept();
        let resumed = self.is_behind(slept);
        if resumed {
            self.slept = slept;
        }
        resumed
    }

    /// Waits until the clock shows `at`, or until the machine was suspended since [`resumed`](Self::resumed) was last
    /// asked.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn sleep_until(&self, at: Instant) {
        loop {
            let now = now();
            if now >= at || self.is_behind(slept()) {
                return;
            }
            sleep_until(at.min(now + Self::LOOK)).await;
        }
    }

    fn is_behind(&self, slept: Duration) -> bool {
        slept.saturating_sub(self.slept) >= Self::LEAST
    }
}

impl Default for Vigil {
    fn default() -> Self {
        Self::new()
    }
}

/// Waits for something, but no longer than so long.
///
/// # Errors
///
/// [`Elapsed`] if that was too short.
///
/// # Cancel safety
///
/// As cancel safe as what is waited for.
pub async fn timeout<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, Elapsed> {
    let rest = pin!(sleep(limit));
    match select(pin!(work), rest).await {
        Either::Left((done, _)) => Ok(done),
        Either::Right(_) => Err(Elapsed),
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was up")
    }
}

impl std::error::Error for Elapsed {}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::rc::Rc;

    use super::*;
    use crate::runtime::laptop::Laptop;

    #[tokio::test(start_paused = true)]
    async fn a_vigil_ends_soon_after_the_machine_slept() {
        let laptop = Rc::new(Laptop::default());
        let _here = runtime::set(laptop.clone());
        let mut vigil = Vigil::new();
        let hour = Duration::from_secs(3_600);
        let true_start = true_now();
        let at = now() + hour;
        laptop.slept.set(Vigil::LEAST / 2);
        assert!(!vigil.resumed(), "too short to matter");

        let suspended = async {
            sleep(Duration::from_millis(100)).await;
            laptop.slept.set(hour / 2);
            pending::<()>().await;
        };
        match select(pin!(vigil.sleep_until(at)), pin!(suspended)).await {
            Either::Left(((), _)) => {}
            Either::Right(_) => unreachable!("it is pending"),
        }
        assert!(true_now() - true_start <= Vigil::LOOK + Duration::from_millis(10));
        assert!(vigil.resumed() && !vigil.resumed());

        // A plain timer that is begun now ends when the clock shows its time.
        sleep_until(at).await;
        assert!(now() >= at && true_now() - true_start <= hour / 2 + Vigil::LOOK);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_done_in_time_is_done_and_what_is_not_is_dropped() {
        let second = Duration::from_secs(1);
        let started = now();
        assert_eq!(timeout(second, ready(7)).await, Ok(7));
        assert_eq!(elapsed(started), Duration::ZERO);
        assert_eq!(timeout(second, pending::<()>()).await, Err(Elapsed));
        assert!(elapsed(started) >= second);
        assert_eq!(timeout(Duration::MAX, sleep(second)).await, Ok(()));
        sleep_until(started).await;
    }
}
