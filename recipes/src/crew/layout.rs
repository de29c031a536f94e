//! [`CrewPaths`]: the paths of the nodes of a crew. [`CrewSwitch`]: the content of its switch.
//!
//! # Decisions that are easy to undo by mistake
//!
//! - **A worker can get a task again that it gave up.** The assignment then has the same path and,
//!   on some stores, the same version. So a report expects the version of the task's node, each end
//!   of an attempt writes that node, and an assignment is dropped only in a transaction that checks
//!   that the task is over.
//! - **A finished task never waits.** Cancelling removes the node by which a task waits, or checks
//!   that there is none, and a master that takes a task back checks that it is not over. Otherwise
//!   a later task of the same name would be confused with it.
//! - **The master's own steps count before its local copies show them**, and may never be shown: an
//!   assignment that is created and removed between two reads. Then the node shows it that says
//!   that the task is over, or waits again.
//! - **The number of failed attempts is in the task's node alone.** A repeated assignment has old
//!   terms.
//! - **Assignments are stopped by versions that each of them checks**: of the worker's node, which
//!   draining writes, and of the node `switch`, which pausing writes. The first master creates
//!   `switch`, since a check for absence costs two writes on ZooKeeper. Both nodes are written once
//!   after their creation: `backend-zk` reads a node first if version 0 is expected, as a container
//!   has that version too. A worker that has not written its node does not count yet.
//! - **Draining waits until the worker confirms.** The worker remembers it for its next session,
//!   and confirms by writing its node. A record in the store would outlive the worker, and a worker
//!   that was cut off does not read its former node in its next session. A master whose step is
//!   rejected by one of these versions waits a little and keeps the task in its place: the change
//!   is on its way.
//! - **The history of a task is a node beside it**, written by the transaction that takes the task
//!   from a worker: its report, a master that takes it back, or the worker that drops a finished
//!   task. So every attempt that ended is recorded, and no step reads the data of a task. A task
//!   that expires or is cancelled while assigned is only marked as over, and its attempt is
//!   recorded when the assignment is removed. A writer assumes no earlier attempts until the store
//!   rejects that.
//! - **Progress is written to that node, too**, as an attempt in progress. The first report writes
//!   the assignment, and the later ones check the version of that write. A report that only created
//!   a node would be undone when the work ends meanwhile.
//! - **Time is the master's, and that of dates that outlive it.** A master counts from when it sees
//!   the end of a task or of an attempt. Masters with short terms would never finish counting, so
//!   the end of a task, the end of a failed attempt, and a deadline are dates too. The earlier of
//!   the two ends a retention or a pause.
//! - **A task that is about to expire is not removed.** The step expects the version of the task's
//!   node, which on some stores a later task of the same name has, too.

use serde::{Deserialize, Serialize};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::SEQUENCE_SUFFIX_LEN;

use crate::layout::crew as layout;

/// The longest name of a worker, that of a ticket, without the number that the store may append.
const WORKER: &str = "_c_01234567-89ab-4def-a123-456789abcdef-lock-";

/// The directories of a crew: see the [module](crate::crew).
#[derive(Clone, Debug)]
pub(super) struct CrewPaths {
    master: Path,
    workers: Path,
    tasks: Path,
    todo: Path,
    assigned: Path,
    done: Path,
    attempts: Path,
    switch: Path,
}

impl CrewPaths {
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the path is too long for
    /// any assignment.
    pub(super) fn of(crew: &Path) -> Result<Self> {
        let paths = Self {
            master: crew.join(layout::MASTER)?,
            workers: crew.join(layout::WORKERS)?,
            tasks: crew.join(layout::TASKS)?,
            todo: crew.join(layout::UNASSIGNED)?,
            assigned: crew.join(layout::ASSIGNED)?,
            done: crew.join(layout::DONE)?,
            attempts: crew.join(layout::ATTEMPTS)?,
            switch: crew.join(layout::SWITCH)?,
        };
        paths.longest_assigned("-")?;
        Ok(paths)
    }

    /// The election of the master.
    pub(super) fn master(&self) -> &Path {
        &self.master
    }

    /// The directory of the workers.
    pub(super) fn workers(&self) -> &Path {
        &self.workers
    }

    /// The directory of the waiting tasks.
    pub(super) fn all_todo(&self) -> &Path {
        &self.todo
    }

    /// The directory of the directories of assigned tasks.
    pub(super) fn all_assigned(&self) -> &Path {
        &self.assigned
    }

    /// The directory of the finished tasks.
    pub(super) fn all_done(&self) -> &Path {
        &self.done
    }

    /// The node of the switch, which pauses the crew.
    pub(super) fn switch(&self) -> &Path {
        &self.switch
    }

    /// The node of a worker.
    pub(super) fn worker(&self, worker: &str) -> Result<Path> {
        Ok(self.workers.join(worker)?)
    }

    /// The node of a task. A task has the name of its node.
    pub(super) fn task(&self, task: &str) -> Result<Path> {
        Ok(self.tasks.join(task)?)
    }

    /// The node of a waiting task.
    pub(super) fn todo(&self, task: &str) -> Result<Path> {
        Ok(self.todo.join(task)?)
    }

    /// The directory of the tasks of a worker.
    pub(super) fn assigned_to(&self, worker: &str) -> Result<Path> {
        Ok(self.assigned.join(worker)?)
    }

    /// The node of an assignment.
    pub(super) fn assigned(&self, worker: &str, task: &str) -> Result<Path> {
        Ok(self.assigned_to(worker)?.join(task)?)
    }

    /// The node of the assignment with the longest path.
    pub(super) fn longest_assigned(&self, task: &str) -> Result<Path> {
        let number = "0".repeat(SEQUENCE_SUFFIX_LEN);
        self.assigned(&format!("{WORKER}{number}"), task)
    }

    /// The node of the worker or of the master with the longest name.
    pub(super) fn longest_ticket(&self) -> Result<Path> {
        let number = "0".repeat(SEQUENCE_SUFFIX_LEN);
        self.worker(&format!("{WORKER}{number}"))
    }

    /// The node of a finished task.
    pub(super) fn done(&self, task: &str) -> Result<Path> {
        Ok(self.done.join(task)?)
    }

    /// The node of the attempts at a task.
    pub(super) fn attempts(&self, task: &str) -> Result<Path> {
        Ok(self.attempts.join(task)?)
    }
}

/// The content of the switch, which every assignment checks. It exists since the first term of a
/// master, because a check that a node is absent would cost more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CrewSwitch {
    /// True if nothing is assigned.
    pub(super) paused: bool,
}
