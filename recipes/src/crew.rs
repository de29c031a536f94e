//! [`Crew`]: a master that assigns tasks to workers, and results for the submitters.
//!
//! | node below the path | what | made by | removed by |
//! |---|---|---|---|
//! | `master/` | the election of the master | candidates | with its session |
//! | `workers/W` | a worker, with its capacity and properties | the worker | with its session |
//! | `tasks/ID` | a task: its data while it is open, then how it ended | the submitter | the master, after the retention |
//! | `todo/ID` | that a task waits, with its terms, such as its deadline | the submitter, a master, a worker | the master |
//! | `assigned/W/ID` | that a worker has a task, with its terms | the master | the worker, or a master after it |
//! | `switch` | whether the crew is paused | the first master, or the client that pauses it | stays |
//! | `attempts/ID` | the last attempts at a task, and what its worker says of its progress | the worker, or the master when a worker is lost | the master, with the task |
//! | `done/ID` | that a task is over, and since when | the worker, the client that cancels it, or the master when it expires | the master, after the retention |
//!
//! Each step is one transaction, so a task is in one place at every moment. What makes a step safe is checked in it:
//!
//! - **Every step of a master checks its lead.** The store refuses a master that was replaced.
//! - **A worker has its name for one session.** What takes its tasks from it checks that it is gone, and what it reports
//!   checks that it is there and that it has the task.
//! - **The version of `tasks/ID` changes with each end of an attempt.** An open task becomes a finished one once.
//! - **What takes a task from its worker enters the attempt in `attempts/ID`,** in the same transaction, which expects the version
//!   that this node has.
//! - **A request of unknown effect is repeated until it is answered.** The first one that is applied makes all others fail. The
//!   removal of a finished task is not repeated: a later task of the same name may be over, too.
//! - **No transaction is larger than one that was checked at the submission,** which has all nodes of the task at their largest.

use std::convert::Infallible;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::name::Name;
use synod_core::path::Path;

use crate::crew::assignment::Assignment;
use crate::crew::crew_policy::CrewPolicy;
use crate::crew::crew_task::CrewTask;
use crate::crew::crew_worker::CrewWorker;
use crate::crew::layout::CrewPaths;
use crate::crew::master::MasterTerm;
use crate::crew::new_task::NewTask;
use crate::crew::shift::Shift;
use crate::leader_selector::LeaderSelector;

mod administer;
pub(crate) mod assignment;
mod attempt_log;
mod attempts;
mod attempts_record;
pub(crate) mod crew_attempt;
pub(crate) mod crew_policy;
pub(crate) mod crew_snapshot;
mod crew_switch;
pub(crate) mod crew_task;
pub(crate) mod crew_worker;
mod deadlines;
mod feeds;
mod finished;
mod followed_node;
pub(crate) mod free_worker;
mod insist;
mod layout;
mod master;
pub(crate) mod new_task;
mod report;
mod roster;
mod shift;
mod step;
mod steps;
mod submitting;
pub(crate) mod task_end;
pub(crate) mod task_follower;
pub(crate) mod task_history;
mod task_nodes;
mod task_record;
mod task_terms;
mod todo_queue;
pub(crate) mod waiting_task;
mod worker_node;
mod worker_record;

/// How long a finished task is kept, unless the master says otherwise.
const RETENTION: Duration = Duration::from_secs(60 * 60);

#[cfg_attr(not(doctest), doc = include_str!("../docs/crew.md"))]
#[derive(Clone)]
pub struct Crew {
    client: Client,
    path: Path,
    retention: Duration,
    policy: CrewPolicy,
}

impl Crew {
    /// The crew at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        let (path, policy) = (path.into(), CrewPolicy::default());
        Self { client: client.clone(), path, retention: RETENTION, policy }
    }

    /// Sets how long a task is kept after its end while this client is the master, in place of one hour. It should be longer than
    /// the time to live of the sessions of the crew. [`Duration::MAX`] keeps all tasks.
    pub fn retention(self, retention: Duration) -> Self {
        Self { retention, ..self }
    }

    /// Sets which worker gets a task while this client is the master, in place of [`CrewPolicy::LeastLoaded`].
    pub fn policy(self, policy: CrewPolicy) -> Self {
        Self { policy, ..self }
    }

    /// Submits a task under an id of the caller's choosing. If there is a task of that id, it stays as it is, and is the one
    /// that is returned: so a submission whose result is not known can be made again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the id is empty or too long, alone or together with the path of the crew,
    /// [`ErrorKind::TooLarge`](synod_core::error::ErrorKind::TooLarge) if the data or the terms are, with what is added to them until the end of the
    /// task, and as every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: the task is submitted, or is not.
    pub async fn submit(&self, id: &str, task: impl Into<NewTask>) -> Result<CrewTask> {
        let submitted = self.task(id)?;
        let (paths, name) = (CrewPaths::of(&self.path)?, Name::encode(id)?);
        Box::pin(submitting::submit(&self.client, paths, name, task.into())).await?;
        Ok(submitted)
    }

    /// The task of this id, whether or not it was submitted. Asks no server.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the id is empty or too long.
    pub fn task(&self, id: &str) -> Result<CrewTask> {
        let paths = CrewPaths::of(&self.path)?;
        CrewTask::new(&self.client, &paths, &Name::encode(id)?)
    }

    /// Works: `run` is called for each task that is assigned to this worker, for as many at the same time as its capacity
    /// says. What it returns is the result of the task. An error or a panic ends the attempt, and the task is tried again as often as
    /// its submitter allows, after a pause. This goes on across sessions, until the call is dropped.
    ///
    /// The futures run within this call. One is dropped when this worker has lost its task: with its session, or because
    /// the task was cancelled.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the path of the crew is too long, the error with which the store refuses,
    /// and [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is closed. No error that concerns one task is
    /// returned: that task fails.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call drops all work, and its tasks are assigned to other workers.
    pub async fn work<F, T, E>(
        &self,
        worker: CrewWorker,
        run: impl Fn(Assignment) -> F,
    ) -> Result<Infallible>
    where
        F: Future<Output = Result<T, E>>,
        T: Into<Bytes>,
        E: fmt::Display,
    {
        let run = |assignment| {
            let work = run(assignment);
            async { work.await.map(Into::into).map_err(|error| error.to_string()) }
        };
        // A drained worker stays so in its next session.
        let drained = AtomicBool::new(false);
        loop {
            let paths = CrewPaths::of(&self.path)?;
            let shift = Shift::begin(&self.client, paths, &worker, &drained).await?;
            Box::pin(shift.work(&run)).await?;
        }
    }

    /// Stands for master, and leads whenever it is elected: assigns the tasks that wait, assigns those of lost workers
    /// anew, lets tasks expire at their deadlines, and removes finished tasks after the retention. This goes on across
    /// sessions, until the call is dropped.
    ///
    /// # Errors
    ///
    /// As [`Crew::work`]. A task that the store does not take is set aside for a minute.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves the election. Each task is in its place: a step is made, or is not.
    pub async fn lead(&self) -> Result<Infallible> {
        let paths = CrewPaths::of(&self.path)?;
        let election = LeaderSelector::new(&self.client, paths.master());
        let failure = election.keep_leading(|lead| async {
            let term = MasterTerm::new(&paths, self.retention, self.policy.clone());
            match Box::pin(term.lead(&self.client, lead)).await {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) if self.client.is_transient(&error) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            }
        });
        Err(Box::pin(failure).await?)
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("path", &self.path).finish_non_exhaustive()
    }
}
