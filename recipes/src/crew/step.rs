//! [`MasterStep`]: a step of a master. [`StepOutcome`]: what came of it.

use std::time::Duration;

use bytes::Bytes;
use synod_core::store::{Revision, Version};

use crate::crew::task_terms::TaskTerms;

/// The time for which a task is set aside that the store does not take.
pub(super) const ASIDE: Duration = Duration::from_secs(60);

/// The time for which a task is set aside for which the policy panicked.
pub(super) const AFTER_PANIC: Duration = Duration::from_secs(1);

/// A step of a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MasterStep {
    /// The worker gets the task.
    Assign { task: String, worker: String, queued: Queued, basis: StepBasis },
    /// The worker is gone, and the task waits again.
    TakeBack { task: String, worker: String, terms: Bytes },
    /// The task is not over by its deadline.
    Expire { task: String, waits: bool },
    /// The task is over, and has been for long enough.
    Remove { task: String },
}

impl MasterStep {
    /// The name of its task.
    pub(super) fn task(&self) -> &str {
        match self {
            Self::Assign { task, .. }
            | Self::TakeBack { task, .. }
            | Self::Expire { task, .. }
            | Self::Remove { task } => task,
        }
    }
}

/// A task that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queued {
    pub(super) version: Version,
    /// Since when.
    pub(super) since: Revision,
    pub(super) terms: TaskTerms,
    /// The terms as they are stored.
    pub(super) stored: Bytes,
}

/// The versions of the nodes by which a master has decided on an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepBasis {
    /// Of the worker: it changes when the worker is drained.
    pub(super) worker: Version,
    /// Of the switch: it changes when the crew is paused.
    pub(super) switch: Version,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// It was made.
    Applied,
    /// This master was replaced.
    Deposed,
    /// The worker is gone, or it is there after all.
    OtherWorker,
    /// The worker still has an earlier task of this name or is drained, or the crew is paused: the task waits.
    NotNow,
    /// The task is elsewhere, or is over.
    Elsewhere,
    /// A step that was made or was not: its answer is lost, and it is not repeated.
    Unknown,
    /// The store cannot take it, because of this task alone.
    SetAside,
}
