//! [`CrewTask`]: a task, for its submitters.

use std::fmt;
use std::sync::OnceLock;

use futures_util::future::select_all;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::name::Name;
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Node, Outcome, Query, Txn, View};

use crate::crew::attempt_record::{AttemptsRecord, CrewAttempt, record_of};
use crate::crew::failures::closed;
use crate::crew::finished::ended_at;
use crate::crew::layout::CrewPaths;
use crate::crew::task_record::{TaskEnd, TaskRecord, TaskState, TaskStatus, ended};
use crate::crew::task_waits::{TaskWaitPlace, TaskWaits};
use crate::mirror::Mirror;
use crate::mirror::extent::Extent;
use crate::mirror::reader::EventReader;
use crate::support::names::decoded_name;
use crate::support::retry::{OutageBackoff, Race, overtaken, repeat_race};
use crate::support::time::date;
use crate::support::wait::until;

/// A handle of a task of a [`Crew`](crate::crew::Crew), for clients that want its result, in any
/// process.
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
        decoded_name(self.nodes.task.name())
    }

    /// Waits until the task is finished, and returns how it ended. Returns `None` if there is no
    /// such task: it was never submitted, or was removed after the retention. Of many waits of a
    /// client at the same time, all but eight share their requests.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is
    /// closed, [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt) if the node holds no
    /// task, and the error with which the store rejects the read for good. An outage is not an
    /// error: the wait continues. [`within`](crate::within) limits the wait.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn wait(&self) -> Result<Option<TaskEnd>> {
        let TaskNodes { client, task, done, .. } = &self.nodes;
        let _place = match TaskWaits::begin(client, task, done) {
            TaskWaitPlace::Alone(place) => Some(place),
            TaskWaitPlace::Shared(wait) => match wait.end().await {
                Some(end) => return Ok(end),
                None => None,
            },
        };
        let latest = Query::node(task).once();
        // If this session sees the task, a watch suffices. Only the absence of the task must be
        // confirmed by the whole store.
        let mut end = Box::pin(self.end_by(latest.clone().local())).await?;
        if end == Some(None) {
            end = Box::pin(self.end_by(latest)).await?;
        }
        Ok(end.flatten())
    }

    /// Waits until a view shows the end of the task or, as `Some(None)`, that there is no such
    /// task.
    async fn end_by(&self, query: Query) -> Result<Option<Option<TaskEnd>>> {
        let end = OnceLock::new();
        let is_over = |view: &View| match ended(view.node()) {
            Some(shown) => {
                let _is_first = end.set(shown).is_ok();
                true
            }
            None => false,
        };
        until(&self.nodes.client, query, is_over).await?;
        end.into_inner().transpose()
    }

    /// Reads the status of the task. Returns `None` if there is no such task.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt) if the node holds no task, and
    /// the common errors of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn status(&self) -> Result<Option<TaskStatus>> {
        let read = self.nodes.read().await?;
        Ok(read.map(|(record, waits)| status(&record, waits)))
    }

    /// Reads the status of the task and the attempts at it, with the progress that its worker has
    /// reported. The attempts are kept as long as the task. Returns `None` if there is no such
    /// task.
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

    /// Follows the task: yields the value of [`CrewTask::history`] after each change. Nothing is
    /// sent yet.
    pub fn follow(&self) -> TaskFollower {
        TaskFollower::new(self.nodes.clone())
    }

    /// Cancels the task. If this returns [`TaskEnd::Cancelled`], no result was accepted, nor will
    /// be. If the task was finished before, this returns how it ended. Returns `None` if there is
    /// no such task.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt) if the node holds no task, and
    /// the common errors of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has cancelled the task, or has not.
    pub async fn cancel(&self) -> Result<Option<TaskEnd>> {
        Box::pin(repeat_race(&self.nodes.client, || self.try_to_cancel())).await
    }

    /// Tries once to cancel the task. Returns how it ended.
    async fn try_to_cancel(&self) -> Result<Race<Option<TaskEnd>>> {
        let Some((record, waits)) = self.nodes.read().await? else {
            return Ok(Race::Won(None));
        };
        if let Some(end) = record.end() {
            return Ok(Race::Won(Some(end)));
        }
        let cancelled = TaskState::Cancelled.with(&self.nodes.task, &[])?;
        let txn = Txn::new()
            .set(self.nodes.task.clone(), cancelled, Expect::Version(record.version))
            .create(self.nodes.done.clone(), ended_at(date()), Lifetime::Persistent);
        // A finished task never waits.
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

impl fmt::Debug for CrewTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrewTask").field("path", &self.nodes.task).finish_non_exhaustive()
    }
}

/// The status of a task and the attempts at it, as a consistent snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskHistory {
    /// The status of the task.
    pub status: TaskStatus,
    /// The attempts that have ended, in their order, and the current one if its worker has reported
    /// progress. Only the last sixteen attempts are kept.
    pub attempts: Vec<CrewAttempt>,
    /// The number of earlier attempts, which are not kept.
    pub earlier: u32,
}

/// A task that is followed: see [`CrewTask::follow`](crate::crew::CrewTask::follow).
pub struct TaskFollower {
    nodes: TaskNodes,
    /// The changes of the nodes of the task. Only one read of all nodes shows a consistent state.
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

    /// Returns the status of the task and the attempts at it: first the current state, then each
    /// changed one. Of changes in quick succession some are skipped, but never the last one.
    /// Returns `None` after the end of the task, or if there is no such task.
    ///
    /// # Errors
    ///
    /// As [`CrewTask::wait`](crate::crew::CrewTask::wait).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call loses no change.
    pub async fn next(&mut self) -> Result<Option<TaskHistory>> {
        if let Some(TaskHistory { status: TaskStatus::Over(_), .. }) = self.last {
            return Ok(None);
        }
        let mut backoff = OutageBackoff::new(&self.nodes.client);
        loop {
            match self.nodes.history().await {
                Ok(None) => return Ok(None),
                Ok(Some(now)) if self.last.as_ref() != Some(&now) => {
                    self.last = Some(now.clone());
                    return Ok(Some(now));
                }
                Ok(Some(_)) => self.changed().await?,
                Err(error) => backoff.wait(error).await?,
            }
        }
    }

    /// Waits for a reason to read again.
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

/// The nodes of a task. Their names are its id.
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

    /// Reads the record of the task, and whether the task waits.
    pub(super) async fn read(&self) -> Result<Option<(TaskRecord, bool)>> {
        let query = Query::nodes(&self.task, [self.todo.clone()]);
        self.parse(&self.client.read(query).await?)
    }

    /// Reads the status of the task and the attempts at it.
    pub(super) async fn history(&self) -> Result<Option<TaskHistory>> {
        let query = Query::nodes(&self.task, [self.todo.clone(), self.attempts.clone()]);
        let view = self.client.read(query).await?;
        let Some((record, waits)) = self.parse(&view)? else { return Ok(None) };
        let record_of_attempts = node_at(&view, &self.attempts).map(record_of);
        let AttemptsRecord { attempts, earlier } = record_of_attempts.unwrap_or_default();
        Ok(Some(TaskHistory { status: status(&record, waits), attempts, earlier }))
    }

    fn parse(&self, view: &View) -> Result<Option<(TaskRecord, bool)>> {
        let Some(node) = node_at(view, &self.task) else { return Ok(None) };
        Ok(Some((TaskRecord::of(node)?, node_at(view, &self.todo).is_some())))
    }
}

/// Returns the status of a task from its record, and from whether it waits.
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
