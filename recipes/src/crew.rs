//! [`Crew`]: a master that assigns tasks to workers, and results for the submitters.
//!
//! | node below the path | content | created by | removed by |
//! |---|---|---|---|
//! | `master/` | the election of the master | candidates | expiry of their sessions |
//! | `workers/W` | a worker, with its capacity and properties | the worker | expiry of its session |
//! | `tasks/ID` | a task: its data while it is open, then its result | the submitter | the master, after the retention |
//! | `todo/ID` | a task that waits, with its terms, such as its deadline | the submitter, a master, a worker | the master |
//! | `assigned/W/ID` | a task that a worker has, with its terms | the master | the worker, or a master after the worker is gone |
//! | `switch` | the state of the crew: paused or not | the first master, or the client that pauses the crew | nobody |
//! | `attempts/ID` | the last attempts at a task, and the progress that its worker reported | the worker, or the master when a worker is lost | the master, with the task |
//! | `done/ID` | the date of the end of a finished task | the worker, the client that cancels it, or the master when it expires | the master, after the retention |
//!
//! Each step is one transaction, so a task is in exactly one place at every revision. Each
//! transaction checks what makes its step safe:
//!
//! - **Every step of a master checks its leadership.** The store rejects the steps of a master that
//!   was replaced.
//! - **A worker has its name for one session.** A step that takes tasks from a worker checks that
//!   the worker is gone. A report of a worker checks that the worker is registered and has the
//!   task.
//! - **The version of `tasks/ID` changes with each end of an attempt.** An open task becomes a
//!   finished one once.
//! - **A step that takes a task from its worker records the attempt in `attempts/ID`,** in the same
//!   transaction, which expects the known version of this node.
//! - **A request of unknown effect is repeated until it is answered.** The first request that is
//!   applied makes all others fail. The removal of a finished task is not repeated: a later task of
//!   the same name may be finished, too.
//! - **No transaction is larger than one that was checked at the submission,** which has all nodes
//!   of the task at their maximum sizes.

pub use crate::crew::assignment::Assignment;
pub use crate::crew::attempt_record::{AttemptEnd, CrewAttempt};
pub use crate::crew::crew_task::{CrewTask, TaskFollower, TaskHistory};
pub use crate::crew::policy::{CrewPolicy, FreeWorker, WaitingTask};
pub use crate::crew::snapshot::{CrewSnapshot, ShownTask, ShownWorker};
pub use crate::crew::submitting::NewTask;
pub use crate::crew::task_record::{TaskEnd, TaskStatus};
pub use crate::crew::task_result::TaskResult;
pub use crate::crew::worker::CrewWorker;

use std::convert::Infallible;
use std::fmt;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, pending, select, try_join};
use synod_core::client::Client;
use synod_core::error::{Error, Result};
use synod_core::name::Name;
use synod_core::path::Path;
use synod_core::store::{Expect, Outcome, Query, View};
use synod_core::value::{decode, encode};
use tokio::sync::{oneshot, watch};

use crate::crew::layout::{CrewPaths, CrewSwitch};
use crate::crew::master::MasterTerm;
use crate::crew::submitting::submit;
use crate::crew::worker::WorkerRecord;
use crate::crew::worker_session::WorkerSession;
use crate::leader_selector::LeaderSelector;
use crate::mutant::mistake;
use crate::support::retry::{Race, overtaken, repeat, repeat_race};
use crate::support::wait::until;

pub(crate) mod assignment;
pub(crate) mod attempt_record;
pub(crate) mod crew_task;
mod deadlines;
mod failures;
mod finished;
mod layout;
mod master;
pub(crate) mod policy;
mod report;
pub(crate) mod snapshot;
mod state;
mod steps;
pub(crate) mod submitting;
pub(crate) mod task_record;
pub(crate) mod task_result;
mod task_terms;
mod task_waits;
pub(crate) mod worker;
mod worker_node;
mod worker_session;

/// The default time for which the master keeps a finished task.
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
    /// Creates a handle of the crew at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        let (path, policy) = (path.into(), CrewPolicy::default());
        Self { client: client.clone(), path, retention: RETENTION, policy }
    }

    /// Sets the time for which a task is kept after its end while this client is the master. The
    /// default is one hour. It should be longer than the time to live of the sessions of the crew.
    /// [`Duration::MAX`] keeps all tasks.
    pub fn retention(self, retention: Duration) -> Self {
        Self { retention, ..self }
    }

    /// Sets the policy that chooses the worker of a task while this client is the master. The
    /// default is [`CrewPolicy::LeastLoaded`].
    pub fn policy(self, policy: CrewPolicy) -> Self {
        Self { policy, ..self }
    }

    /// Submits a task under an id that the caller chooses. If a task with this id exists, it stays
    /// unchanged and is returned. So a submission whose outcome is unknown can be repeated.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the id is empty or too
    /// long, alone or together with the path of the crew,
    /// [`ErrorKind::TooLarge`](synod_core::error::ErrorKind::TooLarge) if the data or the terms,
    /// with all that is added to them until the end of the task, are larger than the store accepts,
    /// and the common errors of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: the task is submitted, or is not.
    pub async fn submit(&self, id: &str, task: impl Into<NewTask>) -> Result<CrewTask> {
        let submitted = self.task(id)?;
        let (paths, name) = (CrewPaths::of(&self.path)?, Name::encode(id)?);
        Box::pin(submit(&self.client, paths, name, task.into())).await?;
        Ok(submitted)
    }

    /// Returns a handle of the task with this id, whether or not it was submitted. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the id is empty or too
    /// long.
    pub fn task(&self, id: &str) -> Result<CrewTask> {
        let paths = CrewPaths::of(&self.path)?;
        CrewTask::new(&self.client, &paths, &Name::encode(id)?)
    }

    /// Works: calls `run` for each task that is assigned to this worker, concurrently for at most
    /// as many tasks as its capacity. The value that `run` returns is the result of the task, alone
    /// or with [writes](TaskResult::with). An error or a panic ends the attempt; the task is then
    /// retried after a pause, up to the number of retries of its submitter. The work continues
    /// across sessions, until the call is dropped. [`Crew::work_until`] can be stopped without
    /// dropping the tasks.
    ///
    /// The futures run within this call. A future is dropped when this worker has lost its task,
    /// with its session or because the task was cancelled.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the path of the crew is too
    /// long, the error with which the store rejects a request for good, and
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is
    /// closed. An error that concerns one task is not returned: that task fails.
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
        T: Into<TaskResult>,
        E: fmt::Display,
    {
        self.work_until(worker, pending(), run).await?;
        // The work is never stopped.
        pending().await
    }

    /// Works as [`Crew::work`] does, until `stop` completes. Then this worker is
    /// [drained](Crew::drain): it gets no more tasks. This returns when the attempts at the tasks
    /// that it has are done and reported. If its session is lost meanwhile, other workers get these
    /// tasks.
    ///
    /// # Errors
    ///
    /// As [`Crew::work`].
    ///
    /// # Cancel safety
    ///
    /// As [`Crew::work`].
    pub async fn work_until<F, T, E>(
        &self,
        worker: CrewWorker,
        stop: impl Future<Output = ()>,
        run: impl Fn(Assignment) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<T, E>>,
        T: Into<TaskResult>,
        E: fmt::Display,
    {
        let run = |assignment| {
            let work = run(assignment);
            async { work.await.map(Into::into).map_err(|error| error.to_string()) }
        };
        // A drained worker stays drained in its next session.
        let (drained, stop) = (AtomicBool::new(false), stop.shared());
        loop {
            let paths = CrewPaths::of(&self.path)?;
            let begin = pin!(WorkerSession::begin(&self.client, paths, &worker, &drained));
            let session = match select(stop.clone(), begin).await {
                Either::Left(_) => return Ok(()),
                Either::Right((session, _)) => session?,
            };
            Box::pin(session.work(&run, stop.clone())).await?;
            if stop.peek().is_some() {
                session.end().await;
                return Ok(());
            }
        }
    }

    /// Works as [`Crew::work_until`] does, and [leads](Crew::lead) whenever this client is elected.
    /// When `stop` completes, the worker finishes its tasks while this client still leads.
    /// Then it steps down, and this returns: another client leads at once.
    ///
    /// # Errors
    ///
    /// As [`Crew::work`] and [`Crew::lead`].
    ///
    /// # Cancel safety
    ///
    /// As [`Crew::work`]; a dropped call also leaves the election.
    pub async fn run_until<F, T, E>(
        &self,
        worker: CrewWorker,
        stop: impl Future<Output = ()>,
        run: impl Fn(Assignment) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<T, E>>,
        T: Into<TaskResult>,
        E: fmt::Display,
    {
        let (end, ended) = oneshot::channel();
        let works = async {
            self.work_until(worker, stop, run).await?;
            let _is_received = end.send(()).is_ok();
            Ok(())
        };
        let leads = self.lead_until(ended.map(drop));
        try_join(Box::pin(works), Box::pin(leads)).await.map(drop)
    }

    /// Takes part in the election of the master, and leads whenever it is elected: assigns waiting
    /// tasks, reassigns the tasks of lost workers, expires tasks at their deadlines, and removes
    /// finished tasks after the retention. This continues across sessions, until the call is
    /// dropped.
    ///
    /// # Errors
    ///
    /// As [`Crew::work`]. A task that the store rejects is set aside for a minute.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves the election. Each step is made completely, or not at
    /// all.
    pub async fn lead(&self) -> Result<Infallible> {
        self.lead_until(pending()).await?;
        // It is never stopped.
        pending().await
    }

    /// Leads until `stop` completes. A master then steps down before this returns.
    async fn lead_until(&self, stop: impl Future<Output = ()>) -> Result<()> {
        let (paths, stop) = (CrewPaths::of(&self.path)?, stop.shared());
        let election = LeaderSelector::new(&self.client, paths.master());
        // It has a receiver while this client leads.
        let leading = watch::Sender::new(());
        let terms = election.keep_leading(|lead| async {
            let leads = leading.subscribe();
            let term = MasterTerm::new(&paths, self.retention, self.policy.clone());
            let term = Box::pin(term.lead(&self.client, lead));
            // The last term has ended once the receiver is returned.
            match select(stop.clone(), term).await {
                Either::Left(_) => ControlFlow::Break((leads, Ok(()))),
                Either::Right((Err(error), _)) if !self.client.is_transient(&error) => {
                    ControlFlow::Break((leads, Err(error)))
                }
                Either::Right(_) => ControlFlow::Continue(()),
            }
        });
        // A candidate that does not lead waits no longer, and leaves in the background.
        let waits = async {
            stop.clone().await;
            leading.closed().await;
        };
        match select(Box::pin(terms), pin!(waits)).await {
            Either::Left((ended, _)) => ended?.1,
            Either::Right(_) => Ok(()),
        }
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Crew {
    /// Pauses the crew: after this has returned nothing is assigned, whichever client leads, until
    /// [`Crew::resume`]. Tasks are still submitted and cancelled, and workers finish the tasks that
    /// they have.
    ///
    /// # Errors
    ///
    /// The common errors of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has paused the crew, or has not.
    pub async fn pause(&self) -> Result<()> {
        self.switch(CrewSwitch { paused: true }).await
    }

    /// Ends the pause of a crew.
    ///
    /// # Errors
    ///
    /// The common errors of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has ended the pause, or has not.
    pub async fn resume(&self) -> Result<()> {
        self.switch(CrewSwitch { paused: false }).await
    }

    async fn switch(&self, switch: CrewSwitch) -> Result<()> {
        let paths = CrewPaths::of(&self.path)?;
        let data = encode(paths.switch(), &switch)?;
        repeat(&self.client, || self.client.put(paths.switch(), data.clone())).await?;
        Ok(())
    }

    /// Drains a worker, named as in a [`CrewSnapshot`], or each worker with this
    /// [label](CrewWorker::labelled): after this has returned `true` the worker receives no new
    /// task, and finishes the tasks that it has. It stays drained until [`Crew::undrain`], or until
    /// its call of [`Crew::work`] ends, even if it loses its session and registers again under
    /// another name. To ensure that, this waits until the worker has confirmed the change. Returns
    /// `false` if there is no such worker, or if its session ends before the confirmation.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if `worker` is not a valid
    /// name, [`ErrorKind::Corrupt`](synod_core::error::ErrorKind::Corrupt) if its node holds no
    /// worker, and the common errors of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has drained the worker or has not; if it has, perhaps for its current session
    /// alone.
    pub async fn drain(&self, worker: &str) -> Result<bool> {
        self.set_drained(worker, true).await
    }

    /// Lets a drained worker receive tasks again, and waits for its confirmation. Returns the same
    /// as [`Crew::drain`].
    ///
    /// # Errors
    ///
    /// As [`Crew::drain`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has undrained the worker or has not; if it has, perhaps for its current
    /// session alone.
    pub async fn undrain(&self, worker: &str) -> Result<bool> {
        self.set_drained(worker, false).await
    }

    async fn set_drained(&self, worker: &str, drained: bool) -> Result<bool> {
        let paths = CrewPaths::of(&self.path)?;
        let node = paths.worker(worker)?;
        if self.client.exists(&node).await? {
            return self.set_one_drained(&node, drained).await;
        }
        let workers = self.client.read(Query::children(paths.workers())).await?.nodes;
        let mut is_any = false;
        for node in workers {
            let record = decode::<WorkerRecord>(&node.path, &node.data).ok();
            if record.is_some_and(|record| record.offers.label() == Some(worker)) {
                is_any |= self.set_one_drained(&node.path, drained).await?;
            }
        }
        Ok(is_any)
    }

    async fn set_one_drained(&self, node: &Path, drained: bool) -> Result<bool> {
        if !repeat_race(&self.client, || self.try_to_set_drained(node, drained)).await? {
            return Ok(false);
        }
        self.confirmed(node).await.map_err(Error::with_unknown_effect)
    }

    /// Writes the node of the worker. Returns false if there is no such worker.
    async fn try_to_set_drained(&self, node: &Path, drained: bool) -> Result<Race<bool>> {
        let Some(current) = self.client.get(node).await? else { return Ok(Race::Won(false)) };
        let record: WorkerRecord = decode(node, &current.data)?;
        let Some(stat) = current.stat.filter(|_| record.drained != drained) else {
            return Ok(Race::Won(true));
        };
        let data = encode(node, &record.with_drained(drained))?;
        Ok(match self.client.set(node, data, Expect::Version(stat.version)).await? {
            Outcome::Committed(_) => Race::Won(true),
            Outcome::Rejected(_) => Race::Lost(overtaken("draining a worker", node)),
        })
    }

    /// Waits until a worker has confirmed that it is drained, or is not. Returns false if the
    /// worker is gone before.
    async fn confirmed(&self, node: &Path) -> Result<bool> {
        let is_registered = AtomicBool::new(false);
        let is_settled = |view: &View| {
            let record = view.node().map(|node| decode::<WorkerRecord>(&node.path, &node.data));
            is_registered.store(record.is_some(), Ordering::Relaxed);
            // A node without a worker confirms nothing.
            record.is_none_or(|record| record.is_ok_and(|it| it.is_confirmed()))
        };
        Box::pin(until(&self.client, Query::node(node).once(), is_settled)).await?;
        Ok(is_registered.into_inner())
    }

    /// Reads the workers and the tasks of this crew, as a consistent snapshot. This reads all nodes
    /// of the crew, with the data and the results of its tasks.
    ///
    /// # Errors
    ///
    /// The common errors of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn snapshot(&self) -> Result<CrewSnapshot> {
        let view = self.client.read(Query::subtree(&self.path)).await?;
        mistake!(SnapshotMixesMoments: let view = {
            synod_core::clock::sleep(Duration::from_millis(1)).await;
            let (assigned, mut view) = (CrewPaths::of(&self.path)?.all_assigned().clone(), view);
            view.nodes.retain(|node| !node.path.is_below(&assigned));
            view.nodes.extend(self.client.read(Query::subtree(assigned)).await?.nodes);
            view
        });
        Ok(CrewSnapshot::of(&self.path, &view))
    }
}
