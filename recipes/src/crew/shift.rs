//! [`Shift`]: a worker in one session.

use std::future::pending;
use std::pin::pin;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, Abortable, Either, select};
use futures_util::stream::FuturesUnordered;
use synod_core::client::Client;
use synod_core::error::{ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Event, Query, Watch};
use synod_core::value::encode;

use crate::cell::patience::Patience;
use crate::crew::assignment::Assignment;
use crate::crew::attempts::{Attempts, Given};
use crate::crew::crew_task::id_of;
use crate::crew::crew_worker::CrewWorker;
use crate::crew::insist::{closed, insist};
use crate::crew::layout::CrewPaths;
use crate::crew::report::Reports;
use crate::crew::task_record::{TaskRecord, TaskState};
use crate::crew::worker_record::WorkerRecord;
use crate::line::Line;
use crate::line::form::Form;
use crate::line::hold::Hold;
use crate::mirror::Mirror;
use crate::mirror::extent::Extent;

/// A worker in one session. Its node has a name that no other worker ever has.
pub(super) struct Shift {
    client: Client,
    paths: CrewPaths,
    worker: CrewWorker,
    claim: Hold,
}

impl Shift {
    /// Registers, however long the store does not answer.
    pub(super) async fn begin(
        client: &Client,
        paths: CrewPaths,
        worker: &CrewWorker,
    ) -> Result<Self> {
        let record = WorkerRecord { offers: worker.clone(), drained: false };
        let record = encode(paths.workers(), &record)?;
        // No worker waits for its turn: a line has what a claim needs, and tickets of any number may be held.
        let line = Line::new(client, paths.workers().clone(), Form::alone("crew", "lock-"));
        let line = line.labelled(record);
        let mut patience = Patience::new(client);
        loop {
            match line.enqueue().await {
                Ok(ticket) => {
                    let (client, worker, claim) = (client.clone(), worker.clone(), ticket.hold(()));
                    return Ok(Self { client, paths, worker, claim });
                }
                Err(error) => patience.rest(error).await?,
            }
        }
    }

    /// Works until the claim is lost, or the store refuses.
    pub(super) async fn work<R, F>(&self, run: &R) -> Result<()>
    where
        R: Fn(Assignment) -> F,
        F: Future<Output = Result<Bytes, String>>,
    {
        match select(pin!(self.claim.lost()), pin!(self.serve(run))).await {
            Either::Left(_) => Ok(()),
            Either::Right((Err(error), _)) if error.kind() == ErrorKind::SessionLost => {
                // That of the session is noticed by the next registration, which fails if the client is closed.
                Ok(())
            }
            Either::Right((ended, _)) => ended,
        }
    }

    /// Does what is assigned.
    async fn serve<R, F>(&self, run: &R) -> Result<()>
    where
        R: Fn(Assignment) -> F,
        F: Future<Output = Result<Bytes, String>>,
    {
        let dir = self.paths.assigned_to(self.claim.path().name())?;
        let mirror = Mirror::start(&self.client, Extent::children(&dir), "crew");
        let mut reader = mirror.reader();
        let (mut attempts, mut running) = (Attempts::default(), FuturesUnordered::new());
        let capacity = usize::try_from(self.worker.capacity.get()).unwrap_or(usize::MAX);
        loop {
            attempts.learn(&mirror.snapshot());
            while attempts.running() < capacity {
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
            let ended = match select(pin!(reader.next()), pin!(ended)).await {
                Either::Left((Some(_look_again), _)) => continue,
                Either::Left((None, _)) => return Err(closed(&dir)),
                Either::Right((ended, _)) => ended,
            };
            if let Ok((result, given)) = ended {
                attempts.ended(&given);
                result?;
            }
        }
    }

    /// One attempt at a task: from its data to the report.
    async fn attempt<R, F>(&self, given: &Given, run: &R) -> Result<()>
    where
        R: Fn(Assignment) -> F,
        F: Future<Output = Result<Bytes, String>>,
    {
        let session = self.claim.node.session();
        let task = self.paths.task(&given.task)?;
        let reports = Reports::new(&self.claim, &self.paths, given);
        // It was there before the assignment, and the session was notified of that.
        let query = Query::node(&task).local();
        let (record, failed, watch) = loop {
            let (view, watch) = insist(session, || session.observe(query.clone())).await?;
            let record = view.node().map(TaskRecord::of).transpose()?;
            if let Some(record) = record
                && let TaskState::Open { failed } = record.state
            {
                break (record, failed, watch);
            }
            if reports.drops().await? {
                return Ok(());
            }
        };
        let (id, data) = (id_of(&given.task), record.bytes.clone());
        let work = run(Assignment { id, data, failed });
        match select(pin!(work), pin!(self.revoked(&task, &record, watch))).await {
            Either::Left((result, _)) => reports.result(&record, failed, result).await,
            Either::Right((revoked, _)) => {
                revoked?;
                reports.drops().await.map(drop)
            }
        }
    }

    /// Waits until the task is not as it was, such as cancelled.
    async fn revoked(&self, task: &Path, record: &TaskRecord, mut watch: Watch) -> Result<()> {
        let session = self.claim.node.session();
        loop {
            let event = watch.next().await;
            let query = Query::node(task).local();
            let view = if let Some(Event::Changed(_) | Event::Resync) = event {
                insist(session, || session.read(query.clone())).await?
            } else {
                let (view, next) = insist(session, || session.observe(query.clone())).await?;
                watch = next;
                view
            };
            let stat = view.node().and_then(|node| node.stat);
            if stat.is_none_or(|stat| stat.version != record.version) {
                return Ok(());
            }
        }
    }
}
