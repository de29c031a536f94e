//! [`Assignment`]: a task as its worker receives it. [`Attempts`]: all tasks of a worker.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_util::future::{AbortHandle, Either, select};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::held::{Held, Token};
use synod_core::path::Path;
use synod_core::store::{Expect, Node, Revision, Txn, Version};
use synod_core::value::decode;
use tokio::sync::watch;

use crate::crew::task_terms::TaskTerms;
use crate::line::hold::Hold;
use crate::mirror::snapshot::Snapshot;

/// A task that is assigned to this worker.
///
/// It is a guard: see the trait [`Held`]. It is held until the attempt ends, the worker loses its
/// session, or the task is cancelled or expires. Its token increases with each assignment of the
/// task. Writes together with the result belong into the [`TaskResult`](crate::crew::TaskResult).
#[derive(Clone)]
#[non_exhaustive]
pub struct Assignment {
    /// The id of the task.
    pub id: String,
    /// The data of the task.
    pub data: Bytes,
    /// The number of failed attempts. Attempts whose worker was lost are not counted.
    pub failed: u32,
    /// The name of this worker, as in a [`CrewSnapshot`](crate::crew::CrewSnapshot). It is another
    /// one in each session.
    pub worker: String,
    pub(super) guard: AssignmentGuard,
    pub(super) progress: Arc<watch::Sender<Option<String>>>,
}

impl Assignment {
    /// Reports the progress of the work to all clients that [follow the
    /// task](crate::crew::CrewTask::follow). The first 1,000 bytes of the text are kept. This does
    /// not wait: the last reported text is stored soon afterwards, if this worker still has the
    /// task. Otherwise the store rejects the report. Of texts that follow each other within a tenth
    /// of a second some are skipped.
    pub fn report(&self, progress: impl Into<String>) {
        self.progress.send_replace(Some(progress.into()));
    }
}

/// The nodes that show that a worker has a task.
#[derive(Clone)]
pub(super) struct AssignmentGuard {
    /// The claim of the worker.
    pub(super) claim: Arc<Hold>,
    /// The node of the assignment.
    pub(super) node: Path,
    /// The revision of the assignment.
    pub(super) created: Revision,
    /// The node of the task.
    pub(super) task: Path,
    /// The version of the task. Each end of an attempt changes it.
    pub(super) version: Version,
    /// Closed when the attempt ends.
    pub(super) attempt: watch::Receiver<()>,
}

impl Held for Assignment {
    fn token(&self) -> Token {
        Token::new(self.guard.created)
    }

    fn path(&self) -> &Path {
        &self.guard.node
    }

    fn is_held(&self) -> bool {
        self.guard.attempt.has_changed().is_ok() && self.guard.claim.is_held()
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        let mut attempt = self.guard.attempt.clone();
        Box::pin(async move {
            let ends = async { while attempt.changed().await.is_ok() {} };
            let _either = select(pin!(ends), pin!(self.guard.claim.lost())).await;
        })
    }

    fn txn(&self) -> Txn {
        let AssignmentGuard { claim, node, task, version, .. } = &self.guard;
        let txn = claim.txn().check(node, Expect::Any);
        txn.check(task, Expect::Version(*version))
    }

    async fn run<T: Send>(&self, work: impl Future<Output = T> + Send) -> Result<T> {
        match select(pin!(work), pin!(self.lost())).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(Error::new(ErrorKind::SessionLost, "working on a task")
                .at(&self.guard.node)
                .because("the task was lost; the work under it was stopped")),
        }
    }
}

/// Omits the data, which is the application's.
impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assignment")
            .field("id", &self.id)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// A task that is assigned to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AssignedTask {
    pub(super) name: String,
    /// The node of the assignment.
    pub(super) node: Path,
    /// The revision of the assignment. No two assignments have the same revision.
    pub(super) created: Revision,
    pub(super) terms: TaskTerms,
    /// The terms as they are stored, perhaps with some of a later version.
    pub(super) stored: Bytes,
}

/// The assignments of a worker, by their revisions.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    waiting: BTreeMap<Revision, AssignedTask>,
    /// The running attempts, each with the handle that stops it.
    running: BTreeMap<Revision, AbortHandle>,
    /// The attempts that have ended, as long as their nodes are shown.
    ended: Vec<Revision>,
}

impl AssignedTask {
    fn of(node: &Node) -> Option<Self> {
        let terms = decode(&node.path, &node.data).ok()?;
        let (name, created) = (node.path.name().to_owned(), node.stat?.created);
        Some(Self { name, node: node.path.clone(), created, terms, stored: node.data.clone() })
    }
}

impl Attempts {
    /// Updates the assignments. Attempts at tasks that are no longer assigned are stopped.
    pub(super) fn update(&mut self, shown: &Snapshot) {
        let tasks = shown.iter().filter_map(AssignedTask::of);
        let mut tasks: BTreeMap<_, _> = tasks.map(|task| (task.created, task)).collect();
        self.running.retain(|created, handle| {
            let is_assigned = tasks.contains_key(created);
            if !is_assigned {
                handle.abort();
            }
            is_assigned
        });
        self.ended.retain(|created| tasks.contains_key(created));
        tasks.retain(|at, _| !self.running.contains_key(at) && !self.ended.contains(at));
        self.waiting = tasks;
    }

    /// Returns true if the attempts at all these assignments have ended.
    pub(super) fn have_ended(&self, created: &[Revision]) -> bool {
        created.iter().all(|created| self.ended.contains(created))
    }

    /// The number of running attempts.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// Starts the next task, in the order of the assignments.
    pub(super) fn start(&mut self, handle: AbortHandle) -> Option<AssignedTask> {
        let (created, task) = self.waiting.pop_first()?;
        self.running.insert(created, handle);
        Some(task)
    }

    /// Records that an attempt has ended and its end was reported.
    pub(super) fn end(&mut self, task: &AssignedTask) {
        if self.running.remove(&task.created).is_some() {
            self.ended.push(task.created);
        }
    }
}
