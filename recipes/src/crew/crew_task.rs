//! [`CrewTask`]: a task, for its submitters.

use std::fmt;
use std::sync::OnceLock;

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::name::Name;
use synod_core::store::{Expect, Lifetime, Outcome, Query, Txn, View};

use crate::cell::repeat::{Race, repeat_race};
use crate::cell::until::until;
use crate::crew::deadlines::date;
use crate::crew::finished::ended_at;
use crate::crew::insist::overtaken;
use crate::crew::layout::CrewPaths;
use crate::crew::task_end::{TaskEnd, TaskStatus};
use crate::crew::task_follower::TaskFollower;
use crate::crew::task_history::TaskHistory;
use crate::crew::task_nodes::{TaskNodes, status};
use crate::crew::task_record::{TaskRecord, TaskState};

/// A task of a [`Crew`](crate::Crew), by its id: for those that want its result, in any process.
#[derive(Clone)]
pub struct CrewTask {
    nodes: TaskNodes,
}

impl CrewTask {
    pub(super) fn new(client: &Client, paths: &CrewPaths, name: &Name) -> Result<Self> {
        Ok(Self { nodes: TaskNodes::new(client, paths, name.as_str())? })
    }

    /// The id of the task.
    pub fn id(&self) -> String {
        id_of(self.nodes.task.name())
    }

    /// Waits until it is over, and returns how it ended. `None` if there is no such task: it was never submitted, or was
    /// removed after the retention.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is closed,
    /// [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt) if its node holds no task, and what the store says if it
    /// refuses to be read. An outage is no error: the wait continues. [`within`](crate::within) gives it a limit.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn wait(&self) -> Result<Option<TaskEnd>> {
        let latest = Query::node(&self.nodes.task).once();
        // A task that this session sees is watched from there on. Only that there is none has to be asked of the whole store.
        let mut end = Box::pin(self.end_by(latest.clone().local())).await?;
        if end == Some(None) {
            end = Box::pin(self.end_by(latest)).await?;
        }
        Ok(end.flatten())
    }

    /// Waits until a view shows that it is over, or, as an end that is `None`, that there is no such task.
    async fn end_by(&self, query: Query) -> Result<Option<Option<TaskEnd>>> {
        let seen = OnceLock::new();
        let is_over = |view: &View| match ended(view) {
            Some(end) => {
                let _first = seen.set(end).is_ok();
                true
            }
            None => false,
        };
        until(&self.nodes.client, query, is_over).await?;
        seen.into_inner().transpose()
    }

    /// Where it is now. `None` if there is no such task.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt) if its node holds no task, and as every verb of a
    /// [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn status(&self) -> Result<Option<TaskStatus>> {
        let shown = self.nodes.look().await?;
        Ok(shown.map(|(record, waits)| status(&record, waits)))
    }

    /// Where it is now, and which attempts were made at it, with what its worker has reported of its progress. They are kept as
    /// long as the task is. `None` if there is no such task.
    ///
    /// # Errors
    ///
    /// As [`CrewTask::status`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn history(&self) -> Result<Option<TaskHistory>> {
        self.nodes.history().await
    }

    /// Follows it: what [`CrewTask::history`] returns, each time that it changes. This returns at once.
    pub fn follow(&self) -> TaskFollower {
        TaskFollower::new(self.nodes.clone())
    }

    /// Cancels it: when this returned [`TaskEnd::Cancelled`], no result was accepted, nor will be. If it was over before,
    /// this returns how it ended. `None` if there is no such task.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt) if its node holds no task, and as every verb of a
    /// [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has cancelled it or has not.
    pub async fn cancel(&self) -> Result<Option<TaskEnd>> {
        Box::pin(repeat_race(&self.nodes.client, || self.try_to_cancel())).await
    }

    /// How it ended, now that this has tried.
    async fn try_to_cancel(&self) -> Result<Race<Option<TaskEnd>>> {
        let Some((record, waits)) = self.nodes.look().await? else {
            return Ok(Race::Won(None));
        };
        if let Some(end) = record.end() {
            return Ok(Race::Won(Some(end)));
        }
        let cancelled = TaskState::Cancelled.with(&self.nodes.task, &[])?;
        let txn = Txn::new()
            .set(self.nodes.task.clone(), cancelled, Expect::Version(record.version))
            .create(self.nodes.done.clone(), ended_at(date()), Lifetime::Persistent);
        // A task that is over never waits.
        let txn = if waits {
            txn.delete(self.nodes.todo.clone(), Expect::Any)
        } else {
            txn.check(self.nodes.todo.clone(), Expect::Absent)
        };
        Ok(match self.nodes.client.commit(txn).await? {
            Outcome::Committed(_) => Race::Won(Some(TaskEnd::Cancelled)),
            Outcome::Rejected(_) => Race::Lost(overtaken("cancelling a task", &self.nodes.task)),
        })
    }
}

/// How the task in a view ended: `None` as long as it has not. If there is no task, that is its end.
fn ended(view: &View) -> Option<Result<Option<TaskEnd>>> {
    let Some(node) = view.node() else { return Some(Ok(None)) };
    TaskRecord::of(node).map(|record| record.end()).transpose().map(|end| end.map(Some))
}

/// The id of the task with this name.
pub(super) fn id_of(name: &str) -> String {
    let decoded = Name::new(name).ok().and_then(|name| name.decode());
    decoded.unwrap_or_else(|| name.to_owned())
}

impl fmt::Debug for CrewTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrewTask").field("path", &self.nodes.task).finish_non_exhaustive()
    }
}
