//! The clock and the executor of a simulation, [`Runtime`], which replace tokio's on its thread.
//!
//! Without one, [`clock`](crate::clock) is tokio's clock and [`task`](crate::task) spawns on
//! tokio's runtime, and the only cost is the check of a flag of the thread.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

#[cfg(test)]
pub(crate) mod laptop;

/// The work of a task.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A simulated environment: each process in it has its own clock, and runs when it is scheduled.
pub trait Runtime {
    /// Returns the time of the clock of the current process.
    fn now(&self) -> Instant;

    /// Returns the true time at which the clock of the current process will show `shown`.
    fn true_time(&self, shown: Instant) -> Instant;

    /// Returns the total time for which the machine of the current process was suspended. It never
    /// decreases. The [`clock`](crate::clock) of the process shows `now() + slept()`, and its
    /// timers do not count it.
    fn slept(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the date of the wall clock of the current process. It may be set to another date at
    /// any time.
    fn date(&self) -> SystemTime;

    /// Spawns work for the current process.
    fn spawn(&self, work: Work) -> Arc<dyn RuntimeTask>;
}

/// A task on a runtime, as its owner sees it.
pub trait RuntimeTask: std::fmt::Debug + Send + Sync {
    /// Returns `true` if the task has ended.
    fn is_finished(&self) -> bool;

    /// Waits until the task has ended.
    fn poll_finished(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Aborts the task. It is dropped before it is scheduled again.
    fn abort(&self);
}

thread_local! {
    static IS_SET: Cell<bool> = const { Cell::new(false) };
    static CURRENT: RefCell<Option<Rc<dyn Runtime>>> = const { RefCell::new(None) };
}

/// A guard that keeps a runtime set for this thread.
#[derive(Debug)]
#[must_use = "the runtime goes when this is dropped"]
pub struct RuntimeGuard {
    last: bool,
}

/// Sets the runtime of this thread.
///
/// # Panics
///
/// If the thread already has a runtime.
pub fn set(runtime: Rc<dyn Runtime>) -> RuntimeGuard {
    assert!(!IS_SET.get(), "a thread runs one simulation at a time");
    CURRENT.with_borrow_mut(|here| *here = Some(runtime));
    RuntimeGuard { last: IS_SET.replace(true) }
}

impl Drop for RuntimeGuard {
    fn drop(&mut self) {
        IS_SET.set(self.last);
        CURRENT.with_borrow_mut(|here| *here = None);
    }
}

/// Returns the runtime of this thread, if it has one.
#[inline]
pub fn here() -> Option<Rc<dyn Runtime>> {
    if !IS_SET.get() {
        return None;
    }
    CURRENT.with_borrow(Clone::clone)
}
