//! [`Granted`]: the time to live of a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
