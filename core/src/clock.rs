//! The one place where time is read and waited for: tokio's clock, or on a
//! [`Stage`](crate::stage::Stage) that of whoever runs there.

#![expect(clippy::disallowed_methods, reason = "the one place where time is read")]

use std::fmt;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use futures_util::future::{Either, select};
use tokio::time::Sleep;

pub use tokio::time::Instant;

use crate::stage;

/// A limit that was reached before what it limits came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Elapsed;

/// What the clock shows.
#[inline]
pub fn now() -> Instant {
    stage::here().map_or_else(Instant::now, |stage| stage.now())
}

/// What no process can see: the time by a clock that is right. On a stage, the stage's own.
#[inline]
pub fn true_now() -> Instant {
    Instant::now()
}

/// The date, for people who look. Nothing may depend on it; and on a stage, where each run is to be like the last,
/// there is none.
pub(crate) fn date() -> Option<SystemTime> {
    stage::here().is_none().then(SystemTime::now)
}

/// How long ago the clock showed `since`.
pub fn elapsed(since: Instant) -> Duration {
    now().saturating_duration_since(since)
}

/// Waits for so long.
pub fn sleep(duration: Duration) -> Sleep {
    let Some(stage) = stage::here() else { return tokio::time::sleep(duration) };
    match stage.now().checked_add(duration) {
        Some(at) => tokio::time::sleep_until(stage.true_time(at)),
        None => tokio::time::sleep(duration),
    }
}

/// Waits until the clock shows `at`.
pub fn sleep_until(at: Instant) -> Sleep {
    tokio::time::sleep_until(stage::here().map_or(at, |stage| stage.true_time(at)))
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

    use super::*;

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
