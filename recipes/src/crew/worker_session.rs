//! [`WorkerSession`]: a worker in one session.

use std::any::Any;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use synod_core::client::Client;
use synod_core::clock::timeout;
use synod_core::error::{ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Query, Revision};
use tokio::sync::{Notify, watch};

use crate::crew::assignment::{AssignedTask, Assignment, AssignmentGuard, Attempts};
use crate::crew::failures::{closed, concerns_a_task};
use crate::crew::layout::CrewPaths;
use crate::crew::report::Reports;
use crate::crew::task_record::{TaskRecord, TaskState};
use crate::crew::task_result::TaskResult;
use crate::crew::worker::CrewWorker;
use crate::crew::worker_node::{FollowedNode, WorkerNode};
use crate::line::hold::Hold;
use crate::mirror::Mirror;
use crate::mirror::extent::Extent;
use crate::support::names::decoded_name;
use crate::support::retry::insist;

/// A worker in one session.
pub(super) struct WorkerSession<'a> {
    client: Client,
    paths: CrewPaths,
    node: WorkerNode<'a>,
    capacity: usize,
}

impl<'a> WorkerSession<'a> {
    /// Registers the worker. Waits without a limit for the answer of the store.
    pub(super) async fn begin(
        client: &Client,
        paths: CrewPaths,
        worker: &CrewWorker,
        drained: &'a AtomicBool,
    ) -> Result<Self> {
        let node = WorkerNode::begin(client, &paths, worker, drained).await?;
        let capacity = usize::try_from(worker.capacity.get()).unwrap_or(usize::MAX);
        Ok(Self { client: client.clone(), paths, node, capacity })
    }

    /// Works until `stop` has completed and the current attempts have ended, until the claim is
    /// lost, or until the store rejects a request for good.
    pub(super) async fn work<R, F>(
        &self,
        run: &R,
        stop: impl Future<Output = ()> + Clone,
    ) -> Result<()>
    where
        R: Fn(Assignment) -> F,
        F: Future<Output = Result<TaskResult, String>>,
    {
        let (serves, confirms) = (pin!(self.serve(run, stop)), pin!(self.node.confirm()));
        let ended = match select(pin!(self.claim().lost()), select(serves, confirms)).await {
            Either::Left(_) => return Ok(()),
            Either::Right((Either::Left((ended, _)), _)) => ended,
            Either::Right((Either::Right((ended, _)), _)) => ended.map(|never| match never {}),
        };
        match ended {
            // The next registration notices the end of the session. It fails if the client is
            // closed.
            Err(error) if error.kind() == ErrorKind::SessionLost => Ok(()),
            ended => ended,
        }
    }

    fn claim(&self) -> &Hold {
        &self.node.claim
    }

    /// Ends the registration.
    pub(super) async fn end(&self) {
        // The node is removed in the background, or with its session.
        let _is_removed = self.claim().give_back().await.is_ok();
    }

    /// Returns the revisions of the assignments.
    async fn assigned(&self, dir: &Path) -> Result<Vec<Revision>> {
        let session = self.claim().node.session();
        let view = insist(session, || session.read(Query::children(dir))).await?;
        Ok(view.nodes.into_iter().filter_map(|node| Some(node.stat?.created)).collect())
    }

    /// Does the tasks that are assigned, until `stop` has completed and the attempts at them have
    /// ended.
    async fn serve<R, F>(&self, run: &R, stop: impl Future<Output = ()> + Clone) -> Result<()>
    where
        R: Fn(Assignment) -> F,
        F: Future<Output = Result<TaskResult, String>>,
    {
        let dir = self.paths.assigned_to(self.claim().path().name())?;
        // The deletion of an earlier assignment may stop the attempt of a later one, which is then
        // started again.
        let assigned = Extent::children(&dir).deletions_as_reported();
        let mirror = Mirror::start(&self.client, assigned, "crew");
        let mut reader = mirror.reader();
        let (mut attempts, mut running) = (Attempts::default(), FuturesUnordered::new());
        // Once this worker is drained, each assignment that is left is listed. A permit remains if
        // an attempt ends while the assignments are listed.
        let changed = Notify::new();
        let listing = |is_first: bool| {
            let (stop, dir, changed) = (stop.clone(), &dir, &changed);
            async move {
                if is_first {
                    stop.await;
                    self.node.drain().await?;
                } else {
                    changed.notified().await;
                }
                self.assigned(dir).await
            }
        };
        let mut stopping = FuturesUnordered::new();
        stopping.push(listing(true));
        loop {
            attempts.update(&mirror.snapshot());
            while attempts.running() < self.capacity {
                let (handle, registration) = AbortHandle::new_pair();
                let Some(task) = attempts.start(handle) else { break };
                let attempt = async move { (self.attempt(&task, run).await, task) };
                running.push(Abortable::new(attempt, registration));
            }
            let ended = pin!(async {
                match running.next().await {
                    Some(ended) => ended,
                    None => pending().await,
                }
            });
            let (event, refused) = (pin!(reader.next()), pin!(mirror.failure()));
            let ends = select(ended, stopping.next());
            let ended = match select(select(event, refused), ends).await {
                Either::Left((Either::Left((Some(_event), _)), _)) => {
                    changed.notify_one();
                    continue;
                }
                Either::Left((Either::Left((None, _)), _)) => return Err(closed(&dir)),
                Either::Left((Either::Right((refused, _)), _)) => return Err(refused),
                Either::Right((Either::Left((ended, _)), _)) => ended,
                Either::Right((Either::Right((listed, _)), _)) => {
                    if let Some(listed) = listed
                        && attempts.have_ended(&listed?)
                    {
                        return Ok(());
                    }
                    stopping.push(listing(false));
                    continue;
                }
            };
            changed.notify_one();
            if let Ok((result, task)) = ended {
                attempts.end(&task);
                result?;
            }
        }
    }

    /// Makes one attempt at a task. An error that concerns this task alone does not end the worker.
    async fn attempt<R, F>(&self, task: &AssignedTask, run: &R) -> Result<()>
    where
        R: Fn(Assignment) -> F,
        F: Future<Output = Result<TaskResult, String>>,
    {
        let mut reports = Reports::new(self.claim(), &self.paths, task)?;
        match self.try_attempt(task, run, &mut reports).await {
            Err(error) if concerns_a_task(&error) => reports.report_impossible(error).await,
            ended => ended,
        }
    }

    /// Makes one attempt at a task, from the read of its data to the report.
    async fn try_attempt<R, F>(
        &self,
        task: &AssignedTask,
        run: &R,
        reports: &mut Reports<'_>,
    ) -> Result<()>
    where
        R: Fn(Assignment) -> F,
        F: Future<Output = Result<TaskResult, String>>,
    {
        let session = self.claim().node.session();
        let path = self.paths.task(&task.name)?;
        // The task was created before the assignment, of which this session was notified: a local
        // read sees it.
        let mut node = FollowedNode::new(session, &path);
        let (record, failed) = loop {
            let record = node.next().await?.node().map(TaskRecord::of).transpose()?;
            if let Some(record) = record
                && let TaskState::Open { failed } = record.state
            {
                break (record, failed);
            }
            if reports.report_revoked().await? {
                return Ok(());
            }
        };
        let (sender, progress) = watch::channel(None);
        let (id, data) = (decoded_name(&task.name), record.bytes.clone());
        let (_ends_with_this, attempt) = watch::channel(());
        let guard = AssignmentGuard {
            claim: self.node.claim.clone(),
            node: task.node.clone(),
            created: task.created,
            task: path.clone(),
            version: record.version,
            attempt,
        };
        let (worker, progress_of) = (self.claim().path().name().to_owned(), Arc::new(sender));
        let assignment = Assignment { id, data, failed, worker, guard, progress: progress_of };
        let limit = task.terms.attempt_timeout();
        let work = within(limit, async { run(assignment).await });
        let work = AssertUnwindSafe(work).catch_unwind();
        let work = work.map(|result| result.unwrap_or_else(|panic| Err(panicked(&*panic))));
        let ended = {
            let (revoked, progress) = (pin!(changed(&mut node, &record)), progress.clone());
            let follows = pin!(reports.follow(progress));
            match select(pin!(work), select(revoked, follows)).await {
                Either::Left((result, _)) => Some(result),
                Either::Right((Either::Left((revoked, _)), _)) => revoked.map(|()| None)?,
                Either::Right((Either::Right((failed, _)), _)) => match failed? {},
            }
        };
        reports.set_progress(&progress);
        match ended {
            Some(result) => reports.report_result(&record, failed, result).await,
            None => reports.report_revoked().await.map(drop),
        }
    }
}

/// Runs an attempt within its time limit. At the limit the future of the work is dropped.
async fn within<T>(
    limit: Option<Duration>,
    work: impl Future<Output = std::result::Result<T, String>>,
) -> std::result::Result<T, String> {
    let Some(limit) = limit else { return work.await };
    let overdue = |_elapsed| Err(format!("the attempt took longer than its limit of {limit:?}"));
    timeout(limit, work).await.unwrap_or_else(overdue)
}

/// Returns the error message of work that panicked.
fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the work panicked: {}", text.unwrap_or("with no text"))
}

/// Waits until the task has changed, for example was cancelled.
async fn changed(node: &mut FollowedNode<'_>, record: &TaskRecord) -> Result<()> {
    loop {
        let stat = node.next().await?.node().and_then(|node| node.stat);
        if stat.is_none_or(|stat| stat.version != record.version) {
            return Ok(());
        }
    }
}
