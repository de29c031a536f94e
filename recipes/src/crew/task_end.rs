//! [`TaskStatus`] and [`TaskEnd`]: what becomes of a task.

use std::fmt;

use bytes::Bytes;

/// Where a task is.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskStatus {
    /// It waits until it is assigned.
    Waiting,
    /// A worker has it, or had it and was lost.
    Assigned,
    /// It is over.
    Over(TaskEnd),
}

/// How a task ended.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a submitter must distinguish them")]
pub enum TaskEnd {
    /// It was done, with this result.
    Done(Bytes),
    /// Its last attempt failed, with this text of its error.
    Failed(String),
    /// It was cancelled: no result was accepted, nor will be.
    Cancelled,
    /// It was not over by its [deadline](crate::NewTask::deadline): no result was accepted, nor will be.
    Expired,
}

/// Shows no result: it is the application's.
impl fmt::Debug for TaskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("Waiting"),
            Self::Assigned => f.write_str("Assigned"),
            Self::Over(end) => f.debug_tuple("Over").field(end).finish(),
        }
    }
}

/// Shows no result: it is the application's.
impl fmt::Debug for TaskEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(result) => write!(f, "Done({} bytes)", result.len()),
            Self::Failed(_) => f.write_str("Failed(..)"),
            Self::Cancelled => f.write_str("Cancelled"),
            Self::Expired => f.write_str("Expired"),
        }
    }
}
