//! A runtime for tests: one machine, which can be suspended.

#![expect(clippy::disallowed_methods, reason = "it is a clock")]

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::runtime::{Runtime, RuntimeTask, Work};

/// A machine that can be suspended. Tokio's paused clock stops meanwhile.
#[derive(Default)]
pub(crate) struct Laptop {
    pub(crate) slept: Cell<Duration>,
}

impl Runtime for Laptop {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn true_time(&self, shown: Instant) -> Instant {
        shown
    }

    fn slept(&self) -> Duration {
        self.slept.get()
    }

    fn date(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.slept.get()
    }

    fn spawn(&self, _work: Work) -> Arc<dyn RuntimeTask> {
        unreachable!("nothing is spawned here")
    }
}
