//! Times of a session, shared by its client and its task: [`Granted`] and [`Certain`].

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The time to live of a session, as the server of its last connection granted it.
#[derive(Clone, Debug)]
pub(super) struct Granted(Arc<AtomicU64>);

impl Granted {
    pub(super) fn new(timeout: Duration) -> Self {
        let granted = Self(Arc::default());
        granted.set(timeout);
        granted
    }

    pub(super) fn set(&self, timeout: Duration) {
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.0.store(millis, Ordering::Release);
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Acquire))
    }
}

/// The remaining time for which the session is certain to live, as the owner of the client computes
/// it.
#[derive(Clone, Default)]
pub(super) struct Certain(Arc<OnceLock<Box<Left>>>);

type Left = dyn Fn() -> Option<Duration> + Send + Sync;

impl Certain {
    /// Sets the computation. It is set once.
    pub(super) fn set(&self, left: impl Fn() -> Option<Duration> + Send + Sync + 'static) {
        let _is_first = self.0.set(Box::new(left)).is_ok();
    }

    /// `None` if no time is left, or if it is unknown.
    pub(super) fn left(&self) -> Option<Duration> {
        self.0.get().and_then(|left| left()).filter(|left| !left.is_zero())
    }
}

impl fmt::Debug for Certain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Certain").field(&self.left()).finish()
    }
}
