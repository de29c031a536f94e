//! [`TaskFollower`]: where a task is, each time that it changes.

use std::fmt;

use futures_util::future::select_all;
use synod_core::error::Result;

use crate::cell::patience::Patience;
use crate::crew::insist::closed;
use crate::crew::task_end::TaskStatus;
use crate::crew::task_history::TaskHistory;
use crate::crew::task_nodes::TaskNodes;
use crate::mirror::Mirror;
use crate::mirror::extent::Extent;
use crate::mirror::reader::EventReader;

/// A task that is followed: [`CrewTask::follow`](crate::CrewTask::follow).
pub struct TaskFollower {
    nodes: TaskNodes,
    /// What changes with the task. Only a look at all of it at one moment says how it is.
    readers: Vec<EventReader>,
    last: Option<TaskHistory>,
    _mirrors: Vec<Mirror>,
}

impl TaskFollower {
    pub(super) fn new(nodes: TaskNodes) -> Self {
        let paths = [&nodes.task, &nodes.todo, &nodes.attempts];
        let extents = paths.map(|path| Extent::node(path).names_only());
        let mirrors: Vec<_> =
            extents.map(|extent| Mirror::start(&nodes.client, extent, "crew")).into();
        let readers = mirrors.iter().map(Mirror::reader).collect();
        Self { nodes, readers, last: None, _mirrors: mirrors }
    }

    /// Where the task is and which attempts were made at it: at first as it is, and then when that has changed. Of changes that
    /// follow each other quickly some are skipped, and the last one is not. Returns `None` after the end of the task, or if there
    /// is no such task.
    ///
    /// # Errors
    ///
    /// As [`CrewTask::wait`](crate::CrewTask::wait).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call takes no change.
    pub async fn next(&mut self) -> Result<Option<TaskHistory>> {
        if let Some(TaskHistory { status: TaskStatus::Over(_), .. }) = self.last {
            return Ok(None);
        }
        let mut patience = Patience::new(&self.nodes.client);
        loop {
            match self.nodes.history().await {
                Ok(None) => return Ok(None),
                Ok(Some(now)) if self.last.as_ref() != Some(&now) => {
                    self.last = Some(now.clone());
                    return Ok(Some(now));
                }
                Ok(Some(_)) => self.changed().await?,
                Err(error) => patience.rest(error).await?,
            }
        }
    }

    /// Waits for a reason to look again.
    async fn changed(&mut self) -> Result<()> {
        let events = self.readers.iter_mut().map(|reader| Box::pin(reader.next()));
        let (event, _, _) = select_all(events).await;
        event.map(drop).ok_or_else(|| closed(&self.nodes.task))
    }
}

impl fmt::Debug for TaskFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskFollower").field("path", &self.nodes.task).finish_non_exhaustive()
    }
}
