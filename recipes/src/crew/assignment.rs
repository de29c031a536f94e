//! [`Assignment`]: a task, as its worker gets it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

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
    pub(super) progress: Arc<watch::Sender<Option<String>>>,
}

impl Assignment {
    /// Reports how far the work is, for all clients that [follow the task](crate::CrewTask::follow). The first 1,000 bytes of
    /// the text are kept. This returns at once. The text that was reported last is stored soon afterwards, if this worker
    /// still has the task: the store refuses the reports of all others. Of texts that follow each other within a tenth of a
    /// second some are skipped.
    pub fn report(&self, progress: impl Into<String>) {
        self.progress.send_replace(Some(progress.into()));
    }
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
