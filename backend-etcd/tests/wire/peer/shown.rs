//! [`Shown`]: a value that tasks wait for changes of, and that wakes them in the order in which
//! they wait: a run is repeated by its seed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value that is set from outside.
#[derive(Clone, Default)]
pub(crate) struct Shown<T>(Arc<Inner<T>>);

#[derive(Default)]
struct Inner<T> {
    /// The value, and how often it was set.
    value: Mutex<(T, u64)>,
    set: Notify,
}

/// A task's view of it.
pub(crate) struct Viewer<T> {
    shown: Shown<T>,
    seen: u64,
}

impl<T: Copy> Shown<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Inner { value: Mutex::new((value, 0)), set: Notify::new() }))
    }

    pub(crate) fn set(&self, value: T) {
        {
            let mut held = self.held();
            *held = (value, held.1 + 1);
        }
        self.0.set.notify_waiters();
    }

    pub(crate) fn get(&self) -> T {
        self.held().0
    }

    pub(crate) fn subscribe(&self) -> Viewer<T> {
        Viewer { shown: self.clone(), seen: self.held().1 }
    }

    fn held(&self) -> MutexGuard<'_, (T, u64)> {
        self.0.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Copy> Viewer<T> {
    pub(crate) fn get(&self) -> T {
        self.shown.get()
    }

    /// Waits until the value is set again.
    pub(crate) async fn changed(&mut self) {
        loop {
            let set = self.shown.0.set.notified();
            let count = self.shown.held().1;
            if count != self.seen {
                self.seen = count;
                return;
            }
            set.await;
        }
    }

    /// Waits for a value.
    pub(crate) async fn wait_for(&mut self, fits: impl Fn(T) -> bool) {
        while !fits(self.get()) {
            self.changed().await;
        }
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shown").field(&self.get()).finish()
    }
}
