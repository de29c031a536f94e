//! [`CrewPaths`]: the paths of the nodes of a crew. [`CrewSwitch`]: the content of its switch.

use serde::{Deserialize, Serialize};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::SEQUENCE_SUFFIX_LEN;

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
            master: crew.join("master")?,
            workers: crew.join("workers")?,
            tasks: crew.join("tasks")?,
            todo: crew.join("todo")?,
            assigned: crew.join("assigned")?,
            done: crew.join("done")?,
            attempts: crew.join("attempts")?,
            switch: crew.join("switch")?,
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
