//! [`Assignment`]: a task, as its worker gets it.

use std::fmt;

use bytes::Bytes;

/// A task that is assigned to this worker.
#[derive(Clone)]
#[non_exhaustive]
pub struct Assignment {
    /// The id of the task.
    pub id: String,
    /// Its data.
    pub data: Bytes,
    /// How many attempts have failed before. Attempts whose worker was lost are not counted.
    pub failed: u32,
}

/// Shows no data: it is the application's.
impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assignment")
            .field("id", &self.id)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
