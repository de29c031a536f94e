//! [`Runtime`]: what a simulation puts in the place of tokio's clock and tokio's runtime, on its thread.
//!
//! Without one, [`clock`](crate::clock) is tokio's clock and [`task`](crate::task) spawns on tokio's
//! runtime, and all that this costs is a look at a flag of the thread.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

#[cfg(test)]
pub(crate) mod laptop;

/// Something that runs until it comes to its end.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A simulated machine room: each process on it has a clock of its own, and runs when it is its turn.
pub trait Runtime {
    /// What the clock of the process that runs now shows.
    fn now(&self) -> Instant;

    /// The true time at which the clock of the process that runs now will show `shown`.
    fn true_time(&self, shown: Instant) -> Instant;

    /// How long the machine of the process that runs now was suspended so far. It never falls. The process's
    /// [`clock`](crate::clock) shows `now() + slept()`, and its timers do not count it.
    fn slept(&self) -> Duration {
        Duration::ZERO
    }

    /// The date that the wall clock of the process that runs now shows. It may be set to another date at any
    /// time.
    fn date(&self) -> SystemTime;

    /// Takes on work for the process that runs now.
    fn spawn(&self, work: Work) -> Arc<dyn RuntimeTask>;
}

/// A task on a runtime, as its owner sees it.
pub trait RuntimeTask: std::fmt::Debug + Send + Sync {
    /// Whether it came to its end.
    fn is_finished(&self) -> bool;

    /// Waits for its end.
    fn poll_finished(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ends it. It is dropped before its turn comes again.
    fn abort(&self);
}

thread_local! {
    static IS_SET: Cell<bool> = const { Cell::new(false) };
    static CURRENT: RefCell<Option<Rc<dyn Runtime>>> = const { RefCell::new(None) };
}

/// The runtime is this thread's while this lives.
#[derive(Debug)]
#[must_use = "the runtime goes when this is dropped"]
pub struct Entered {
    last: bool,
}

/// Makes a runtime this thread's.
///
/// # Panics
///
/// If the thread has one already.
pub fn set(runtime: Rc<dyn Runtime>) -> Entered {
    assert!(!IS_SET.get(), "a thread runs one simulation at a time");
    CURRENT.with_borrow_mut(|here| *here = Some(runtime));
    Entered { last: IS_SET.replace(true) }
}

impl Drop for Entered {
    fn drop(&mut self) {
        IS_SET.set(self.last);
        CURRENT.with_borrow_mut(|here| *here = None);
    }
}

/// The runtime of this thread, if it has one.
#[inline]
pub fn here() -> Option<Rc<dyn Runtime>> {
    if !IS_SET.get() {
        return None;
    }
    CURRENT.with_borrow(Clone::clone)
}
