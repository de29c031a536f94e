//! [`NewTask`]: a task as it is submitted.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::crew::task_terms::{TaskBackoff, TaskTerms};

/// A task to be submitted: its data, and how it is assigned. Data alone is a task, too.
#[derive(Clone, PartialEq, Eq)]
pub struct NewTask {
    pub(super) data: Bytes,
    pub(super) terms: TaskTerms,
    /// The time that it has from its submission on.
    pub(super) time: Option<Duration>,
}

impl NewTask {
    /// A task with this data: priority zero, no other attempt after one that failed, for any worker.
    pub fn new(data: impl Into<Bytes>) -> Self {
        Self { data: data.into(), terms: TaskTerms::default(), time: None }
    }

    /// Sets the priority. Of the tasks that wait, those of the highest priority are assigned first, and of these those that
    /// have waited the longest.
    pub fn priority(mut self, priority: i32) -> Self {
        self.terms.priority = priority;
        self
    }

    /// Lets the task end as [expired](crate::TaskEnd::Expired) if it is not over when so much time has passed since its
    /// submission, by the wall clocks of the submitter and of the master. Once it has expired no result is accepted.
    pub fn deadline(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// Sets how often the task is tried again after an attempt that failed, in place of never. An attempt whose worker was lost
    /// does not count: its task is always assigned again, and at once.
    pub fn retries(mut self, retries: u32) -> Self {
        self.terms.retries = retries;
        self
    }

    /// Sets the pause after an attempt that failed, in place of one second that doubles up to five minutes: the first pause, and
    /// the longest. The task waits meanwhile, and other tasks are assigned. The master counts the pause from when it sees the
    /// failure. A later master takes what is left of it from the date that the worker wrote.
    ///
    /// With [`Duration::ZERO`] a failed task is assigned again at once.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.terms.backoff = TaskBackoff::new(first, longest);
        self
    }

    /// Lets only workers have it that have [this property](crate::CrewWorker::property).
    pub fn needs(mut self, property: impl Into<String>, value: impl Into<String>) -> Self {
        self.terms.needs.insert(property.into(), value.into());
        self
    }

    /// Names a worker with [this property](crate::CrewWorker::property) as the better one. It counts if the policy of the master
    /// is [this property](crate::CrewPolicy::Property) or a function.
    pub fn prefers(mut self, property: impl Into<String>, value: impl Into<String>) -> Self {
        self.terms.prefers.insert(property.into(), value.into());
        self
    }
}

impl<T: Into<Bytes>> From<T> for NewTask {
    fn from(data: T) -> Self {
        Self::new(data)
    }
}

/// Shows no data: it is the application's.
impl fmt::Debug for NewTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTask")
            .field("terms", &self.terms)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}
