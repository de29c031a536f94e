//! [`TaskHistory`]: where a task is, and the attempts at it.

use crate::crew::crew_attempt::CrewAttempt;
use crate::crew::task_end::TaskStatus;

/// Where a task is, and which attempts were made at it, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskHistory {
    /// Where it is.
    pub status: TaskStatus,
    /// The attempts that have ended, in their order, and the one that goes on if its worker has reported progress. Of more than
    /// sixteen these are the last ones.
    pub attempts: Vec<CrewAttempt>,
    /// How many attempts there were before these.
    pub earlier: u32,
}
