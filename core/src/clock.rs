//! The only access to time: tokio's clock, or the clock of the simulated process that is running.
//!
//! The clock includes the time during which the machine was suspended, as far as the system reports
//! it: tokio's own clock stops meanwhile, and servers do not. So compare an [`Instant`] of this
//! clock with [`now`], and wait for it with [`sleep_until`], not with the functions of tokio.

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

/// A limit that passed before the work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Elapsed;

/// Returns the current instant.
#[inline]
pub fn now() -> Instant {
    match runtime::here() {
        Some(runtime) => runtime.now() + counted(&*runtime),
        None => Instant::now() + suspend::slept(),
    }
}

/// Returns the time for which the machine was suspended since the first call in this process. The
/// clock includes it.
pub fn slept() -> Duration {
    runtime::here().map_or_else(suspend::slept, |runtime| counted(&*runtime))
}

/// Returns the part of a simulated suspension that the clock counts: all of it.
fn counted(runtime: &dyn Runtime) -> Duration {
    mistake!(SleepUncounted: return Duration::ZERO);
    runtime.slept()
}

/// Returns the time of a correct clock, which no process can read. In a simulation, the clock of
/// the simulator.
#[inline]
pub fn true_now() -> Instant {
    Instant::now()
}

/// Returns the date of the wall clock, which may be set to another date at any time. Use it for
/// names, logs, and dates that outlive a session. A guarantee that depends on it is documented as
/// such.
pub fn date() -> SystemTime {
    runtime::here().map_or_else(SystemTime::now, |runtime| runtime.date())
}

/// Returns the time since `since`.
pub fn elapsed(since: Instant) -> Duration {
    now().saturating_duration_since(since)
}

/// Waits for `duration`.
pub fn sleep(duration: Duration) -> Sleep {
    let Some(runtime) = runtime::here() else { return tokio::time::sleep(duration) };
    match runtime.now().checked_add(duration) {
        Some(at) => tokio::time::sleep_until(runtime.true_time(at)),
        None => tokio::time::sleep(duration),
    }
}

/// Waits until `at`. A suspension that begins later delays the end by its length: where that
/// matters, use [`Vigil`].
pub fn sleep_until(at: Instant) -> Sleep {
    let timer = at.checked_sub(slept()).unwrap_or(at);
    tokio::time::sleep_until(runtime::here().map_or(timer, |runtime| runtime.true_time(timer)))
}

/// A wait that ends soon after a suspension of the machine: a timer stops during a suspension, and
/// then waits for the rest of its time.
#[derive(Debug)]
pub struct Vigil {
    slept: Duration,
}

impl Vigil {
    /// The interval at which a wait checks whether the machine was suspended.
    pub const LOOK: Duration = Duration::from_secs(1);

    /// Shorter suspensions only advance the clock.
    const LEAST: Duration = Duration::from_millis(50);

    /// Creates a wait that counts suspensions from now.
    pub fn new() -> Self {
        Self { slept: slept() }
    }

    /// Returns `true` if the machine was suspended since the last call.
    pub fn resumed(&mut self) -> bool {
        let slept = slept();
        let resumed = self.is_behind(slept);
        if resumed {
            self.slept = slept;
        }
        resumed
    }

    /// Waits until `at`, or until the machine was suspended since the last call of
    /// [`resumed`](Self::resumed).
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

/// Waits for `work`, but no longer than `limit`.
///
/// # Errors
///
/// [`Elapsed`] if the limit passed first.
///
/// # Cancel safety
///
/// As cancel safe as `work`.
pub async fn timeout<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, Elapsed> {
    let rest = pin!(sleep(limit));
    match select(pin!(work), rest).await {
        Either::Left((done, _)) => Ok(done),
        Either::Right(_) => Err(Elapsed),
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time limit passed")
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

        // A timer that starts now fires at the right time of this clock.
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
