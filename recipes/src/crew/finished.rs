//! [`Finished`]: when the finished tasks are to be removed.

use std::collections::VecDeque;
use std::time::Duration;

use synod_core::clock::{self, Instant};

/// How long a task is kept at least that a worker still has.
const LEAST: Duration = Duration::from_millis(100);

/// The finished tasks, in the order in which they are to be removed.
#[derive(Debug)]
pub(super) struct Finished {
    retention: Duration,
    tasks: VecDeque<(Instant, String)>,
}

impl Finished {
    pub(super) fn new(retention: Duration) -> Self {
        Self { retention, tasks: VecDeque::new() }
    }

    /// A task is over.
    pub(super) fn add(&mut self, task: &str) {
        self.tasks.push_back((clock::now() + self.retention, task.to_owned()));
    }

    /// A task is over, and a worker still has it.
    pub(super) fn add_later(&mut self, task: &str) {
        self.tasks.push_back((clock::now() + self.retention.max(LEAST), task.to_owned()));
    }

    /// Forgets all: they are reported anew.
    pub(super) fn forget(&mut self) {
        self.tasks.clear();
    }

    /// The next one that is to be removed by now.
    pub(super) fn due(&mut self) -> Option<String> {
        let (at, _) = self.tasks.front()?;
        if *at > clock::now() {
            return None;
        }
        self.tasks.pop_front().map(|(_, task)| task)
    }

    /// When the next one is to be removed.
    pub(super) fn next(&self) -> Option<Instant> {
        self.tasks.front().map(|(at, _)| *at)
    }
}
