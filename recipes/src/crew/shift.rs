//! [`Shift`]: a worker in one session.

use std::any::Any;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable, Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use synod_core::client::Client;
use synod_core::error::{ErrorKind, Result};
use tokio::sync::watch;

use crate::crew::assignment::Assignment;
use crate::crew::attempts::{Attempts, Given};
use crate::crew::crew_task::id_of;
use crate::crew::crew_worker::CrewWorker;
use crate::crew::followed_node::FollowedNode;
use crate::crew::insist::{closed, concerns_a_task};
use crate::crew::layout::CrewPaths;
use crate::crew::report::Reports;
use crate::crew::task_record::{TaskRecord, TaskState};
use crate::crew::worker_node::WorkerNode;
use crate::line::hold::Hold;
use crate::mirror::Mirror;
use crate::mirror::extent::Extent;

/// A worker in one session.
pub(super) struct Shift<'a> {
    client: Client,
    paths: CrewPaths,
    node: WorkerNode<'a>,
    capacity: usize,
}

impl<'a> Shift<'a> {
    /// Registers, however long the store does not answer.
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

    /// Works until the claim is lost, or the store refuses.
    pub(super) async fn work<R, F>(&self, run: &R) -> Result<()>
    where
        R: Fn(Assignment) -> F,
        F: Future<Output = Result<Bytes, String>>,
    {
        let (serves, confirms) = (pin!(self.serve(run)), pin!(self.node.confirm()));
        let ended = match select(pin!(self.claim().lost()), select(serves, confirms)).await {
            Either::Left(_) => return Ok(()),
            Either::Right((Either::Left((ended, _)), _)) => ended,
            Either::Right((Either::Right((ended, _)), _)) => ended.map(|never| match never {}),
        };
        match ended {
            // That of the session is noticed by the next registration, which fails if the client is closed.
            Err(error) if error.kind() == ErrorKind::SessionLost => Ok(()),
            ended => ended,
        }
    }

    fn claim(&self) -> &Hold {
        &self.node.claim
    }

    /// Does what is assigned.
    async fn serve<R, F>(&self, run: &R) -> Result<()>
    where
        R: Fn(Assignment) -> F,
        F: Future<Output = Result<Bytes, String>>,
    {
        let dir = self.paths.assigned_to(self.claim().path().name())?;
        // An attempt that is stopped because of the deletion of an earlier assignment is begun again.
        let assigned = Extent::children(&dir).deletions_as_reported();
        let mirror = Mirror::start(&self.client, assigned, "crew");
        let mut reader = mirror.reader();
        let (mut attempts, mut running) = (Attempts::default(), FuturesUnordered::new());
        loop {
            attempts.learn(&mirror.snapshot());
            while attempts.running() < self.capacity {
                let (handle, registration) = AbortHandle::new_pair();
                let Some(given) = attempts.start(handle) else { break };
                let attempt = async move { (self.attempt(&given, run).await, given) };
                running.push(Abortable::new(attempt, registration));
            }
            let ended = async {
                match running.next().await {
                    Some(ended) => ended,
                    None => pending().await,
                }
            };
            let refused = pin!(mirror.failure());
            let ended = match select(select(pin!(reader.next()), refused), pin!(ended)).await {
                Either::Left((Either::Left((Some(_look_again), _)), _)) => continue,
                Either::Left((Either::Left((None, _)), _)) => return Err(closed(&dir)),
                Either::Left((Either::Right((refused, _)), _)) => return Err(refused),
                Either::Right((ended, _)) => ended,
            };
            if let Ok((result, given)) = ended {
                attempts.ended(&given);
                result?;
            }
        }
    }

    /// One attempt at a task. No error that concerns this task alone ends the worker.
    async fn attempt<R, F>(&self, given: &Given, run: &R) -> Result<()>
    where
        R: Fn(Assignment) -> F,
        F: Future<Output = Result<Bytes, String>>,
    {
        let mut reports = Reports::new(self.claim(), &self.paths, given)?;
        match self.try_attempt(given, run, &mut reports).await {
            Err(error) if concerns_a_task(&error) => reports.cannot_be_done(error).await,
            ended => ended,
        }
    }

    /// One attempt at a task: from its data to the report.
    async fn try_attempt<R, F>(
        &self,
        given: &Given,
        run: &R,
        reports: &mut Reports<'_>,
    ) -> Result<()>
    where
        R: Fn(Assignment) -> F,
        F: Future<Output = Result<Bytes, String>>,
    {
        let session = self.claim().node.session();
        let task = self.paths.task(&given.task)?;
        // It was there before the assignment, and the session was notified of that.
        let mut node = FollowedNode::new(session, &task);
        let (record, failed) = loop {
            let record = node.next().await?.node().map(TaskRecord::of).transpose()?;
            if let Some(record) = record
                && let TaskState::Open { failed } = record.state
            {
                break (record, failed);
            }
            if reports.drops().await? {
                return Ok(());
            }
        };
        let (tell, said) = watch::channel(None);
        let (id, data) = (id_of(&given.task), record.bytes.clone());
        let assignment = Assignment { id, data, failed, progress: Arc::new(tell) };
        let work = AssertUnwindSafe(async { run(assignment).await }).catch_unwind();
        let work = work.map(|done| done.unwrap_or_else(|panic| Err(panicked(&*panic))));
        let ended = {
            let (revoked, said) = (pin!(changed(&mut node, &record)), said.clone());
            let follows = pin!(reports.follow(said));
            match select(pin!(work), select(revoked, follows)).await {
                Either::Left((result, _)) => Some(result),
                Either::Right((Either::Left((revoked, _)), _)) => revoked.map(|()| None)?,
                Either::Right((Either::Right((failed, _)), _)) => match failed? {},
            }
        };
        reports.learn(&said);
        match ended {
            Some(result) => reports.result(&record, failed, result).await,
            None => reports.drops().await.map(drop),
        }
    }
}

/// The failure of work that panicked.
fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the work panicked: {}", text.unwrap_or("with no text"))
}

/// Waits until the task is not as it was, such as cancelled.
async fn changed(node: &mut FollowedNode<'_>, record: &TaskRecord) -> Result<()> {
    loop {
        let stat = node.next().await?.node().and_then(|node| node.stat);
        if stat.is_none_or(|stat| stat.version != record.version) {
            return Ok(());
        }
    }
}
