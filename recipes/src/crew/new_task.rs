//! [`NewTask`]: a task as it is submitted. [`TaskTerms`]: how it is assigned, as its nodes hold it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A task to be submitted: its data, and how it is assigned. Data alone is a task, too.
#[derive(Clone, PartialEq, Eq)]
pub struct NewTask {
    pub(super) data: Bytes,
    pub(super) terms: TaskTerms,
}

/// How a task is assigned. It goes with the task from place to place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TaskTerms {
    /// Tasks of a higher one are assigned first.
    pub(super) priority: i32,
    /// How many attempts may fail before the last one.
    pub(super) retries: u32,
    /// The properties that a worker must have.
    pub(super) needs: BTreeMap<String, String>,
}

impl NewTask {
    /// A task with this data: priority zero, no other attempt after one that failed, for any worker.
    pub fn new(data: impl Into<Bytes>) -> Self {
        Self { data: data.into(), terms: TaskTerms::default() }
    }

    /// Sets the priority. Of the tasks that wait, those of the highest priority are assigned first, and of these those that
    /// have waited the longest.
    pub fn priority(mut self, priority: i32) -> Self {
        self.terms.priority = priority;
        self
    }

    /// Sets how often the task is tried again after an attempt that failed. An attempt whose worker was lost does not count:
    /// its task is always assigned again.
    pub fn retries(mut self, retries: u32) -> Self {
        self.terms.retries = retries;
        self
    }

    /// Lets only workers have it that have [this property](crate::CrewWorker::property).
    pub fn needs(mut self, property: impl Into<String>, value: impl Into<String>) -> Self {
        self.terms.needs.insert(property.into(), value.into());
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
        f.debug_struct("NewTask").field("terms", &self.terms).finish_non_exhaustive()
    }
}
