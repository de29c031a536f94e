//! [`TaskNodes`]: the nodes of a task, and what they say as of one moment.

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Node, Query, View};

use crate::crew::attempt_log::record_of;
use crate::crew::layout::CrewPaths;
use crate::crew::task_end::TaskStatus;
use crate::crew::task_history::TaskHistory;
use crate::crew::task_record::TaskRecord;

/// The nodes of a task that have its id as their name.
#[derive(Clone)]
pub(super) struct TaskNodes {
    pub(super) client: Client,
    pub(super) task: Path,
    pub(super) todo: Path,
    pub(super) done: Path,
    pub(super) attempts: Path,
}

impl TaskNodes {
    pub(super) fn new(client: &Client, paths: &CrewPaths, name: &str) -> Result<Self> {
        let (task, todo, done) = (paths.task(name)?, paths.todo(name)?, paths.done(name)?);
        let (client, attempts) = (client.clone(), paths.attempts(name)?);
        Ok(Self { client, task, todo, done, attempts })
    }

    /// What its node holds, and whether it waits.
    pub(super) async fn look(&self) -> Result<Option<(TaskRecord, bool)>> {
        let query = Query::nodes(&self.task, [self.todo.clone()]);
        self.shown(&self.client.read(query).await?)
    }

    /// Where it is, and the attempts at it.
    pub(super) async fn history(&self) -> Result<Option<TaskHistory>> {
        let query = Query::nodes(&self.task, [self.todo.clone(), self.attempts.clone()]);
        let view = self.client.read(query).await?;
        let Some((record, waits)) = self.shown(&view)? else { return Ok(None) };
        let made = node_at(&view, &self.attempts).map(record_of).unwrap_or_default();
        let (attempts, earlier) = (made.attempts, made.earlier);
        Ok(Some(TaskHistory { status: status(&record, waits), attempts, earlier }))
    }

    fn shown(&self, view: &View) -> Result<Option<(TaskRecord, bool)>> {
        let Some(node) = node_at(view, &self.task) else { return Ok(None) };
        Ok(Some((TaskRecord::of(node)?, node_at(view, &self.todo).is_some())))
    }
}

/// Where a task is by what its node holds, and by whether it waits.
pub(super) fn status(record: &TaskRecord, waits: bool) -> TaskStatus {
    match record.end() {
        Some(end) => TaskStatus::Over(end),
        None if waits => TaskStatus::Waiting,
        None => TaskStatus::Assigned,
    }
}

fn node_at<'a>(view: &'a View, path: &Path) -> Option<&'a Node> {
    view.nodes.iter().find(|node| node.path == *path && node.stat.is_some())
}
