//! [`Reports`]: the reports of a worker about a task. Each report checks that the worker has the
//! task.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Op, Outcome, Query, Rejected, Txn, Version};
use tokio::sync::watch;

use crate::crew::assignment::AssignedTask;
use crate::crew::attempt_record::{AttemptEnd, AttemptLog, CrewAttempt};
use crate::crew::failures::concerns_a_task;
use crate::crew::finished::ended_at;
use crate::crew::layout::CrewPaths;
use crate::crew::task_record::{TaskRecord, TaskState};
use crate::crew::task_result::TaskResult;
use crate::crew::task_terms::paused_at;
use crate::line::hold::Hold;
use crate::mutant::mistake;
use crate::support::metrics::record_retry;
use crate::support::names::beginning;
use crate::support::retry::{commit_with, insist};
use crate::support::time::date;

/// The minimum time between two reports of progress.
const PAUSE: Duration = Duration::from_millis(100);

/// The maximum number of bytes of the last error message that are kept.
const MAX_FAILURE: usize = 65_536;

/// The outcome of the report that a task is done.
enum DoneReport {
    /// The report was applied, or this worker no longer has the task.
    Sent,
    TooLarge,
    /// The writes of the application were rejected, for this reason.
    Rejected(String),
}

/// Returns true if the writes of a result are the cause of an error.
fn is_of_writes(error: &Error, result: &TaskResult) -> bool {
    let kinds = [ErrorKind::Invalid, ErrorKind::Unsupported, ErrorKind::Denied, ErrorKind::Refused];
    !result.writes.ops.is_empty() && !error.has_unknown_effect() && kinds.contains(&error.kind())
}

/// The reports of one attempt.
pub(super) struct Reports<'a> {
    claim: &'a Hold,
    paths: &'a CrewPaths,
    task: &'a AssignedTask,
    log: AttemptLog,
    /// The progress that the work reported last.
    progress: Option<String>,
    /// The version of the assignment, once a report of progress has written it.
    assigned: Option<Version>,
}

impl<'a> Reports<'a> {
    pub(super) fn new(
        claim: &'a Hold,
        paths: &'a CrewPaths,
        task: &'a AssignedTask,
    ) -> Result<Self> {
        let log = AttemptLog::new(paths.attempts(&task.name)?);
        Ok(Self { claim, paths, task, log, progress: None, assigned: None })
    }

    /// Reports the progress of the work, as long as this worker has the task.
    pub(super) async fn follow(
        &mut self,
        mut progress: watch::Receiver<Option<String>>,
    ) -> Result<Infallible> {
        while progress.changed().await.is_ok() {
            self.progress.clone_from(&progress.borrow_and_update());
            if !self.report_progress().await? {
                break;
            }
            sleep(PAUSE).await;
        }
        // The work continues.
        pending().await
    }

    /// Records the last progress, which is reported with the end of the attempt.
    pub(super) fn set_progress(&mut self, progress: &watch::Receiver<Option<String>>) {
        self.progress.clone_from(&progress.borrow());
    }

    /// Reports the progress. Returns false if this worker no longer has the task.
    async fn report_progress(&mut self) -> Result<bool> {
        let session = self.claim.node.session();
        let attempt = self.attempt();
        loop {
            let held = self.held_txn();
            mistake!(ProgressUnguarded: let held = Txn::new());
            let txn = self.log.add_to(held, &attempt)?;
            match insist(session, || session.commit(txn.clone())).await? {
                Outcome::Committed(commit) => {
                    let assigned = commit.results.iter().find(|it| it.path == self.task.node);
                    let written = assigned.and_then(|done| done.stat);
                    self.assigned = written.map(|stat| stat.version).or(self.assigned);
                    self.log.read(session).await?;
                    return Ok(true);
                }
                Outcome::Rejected(no) => {
                    if !self.log.reload_if_changed(session, Some(&no)).await? {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Reports the result of an attempt.
    pub(super) async fn report_result(
        &mut self,
        record: &TaskRecord,
        failed: u32,
        result: Result<TaskResult, String>,
    ) -> Result<()> {
        let failure = match result {
            Ok(result) => match self.report_done(record.version, &result).await? {
                DoneReport::Sent => return Ok(()),
                DoneReport::TooLarge => {
                    let failure = "the result is too large for the store";
                    return self.report_failure(record.version, failure).await;
                }
                DoneReport::Rejected(failure) => failure,
            },
            Err(failure) => failure,
        };
        if failed < self.task.terms.retries {
            tracing::debug!(task = %self.task.name, %failure, "an attempt failed; the task will be retried");
            record_retry("crew");
            return self.report_retry(record, failed, failure).await;
        }
        self.report_failure(record.version, &failure).await
    }

    /// Reports that the task has failed for good.
    async fn report_failure(&mut self, version: Version, failure: &str) -> Result<()> {
        let failure = beginning(failure, MAX_FAILURE);
        let end = AttemptEnd::Failed(failure.clone());
        self.report_end(version, end, failure.as_bytes(), &[]).await.map(drop)
    }

    /// Ends the task as failed, because neither this nor another worker can do it or report its
    /// result: the stored data, or the data to be stored, is at fault. If that end cannot be stored
    /// either, the worker keeps the task, and does nothing for it.
    pub(super) async fn report_impossible(&mut self, error: Error) -> Result<()> {
        let (session, task) = (self.claim.node.session(), self.paths.task(&self.task.name)?);
        tracing::warn!(%task, %error, "a task of a crew cannot be done");
        let ended = async {
            let view = insist(session, || session.read(Query::node(&task))).await?;
            let is_over = |node| TaskRecord::of(node).is_ok_and(|record| record.end().is_some());
            match view.node().filter(|node| !is_over(node)).and_then(|node| node.stat) {
                Some(stat) => self.report_failure(stat.version, &error.to_string()).await,
                None => self.report_revoked().await.map(drop),
            }
        };
        match ended.await {
            Err(error) if concerns_a_task(&error) => {
                tracing::error!(%task, %error, "a task of a crew cannot be ended");
                Ok(())
            }
            ended => ended,
        }
    }

    /// Reports that the task is done, together with the writes of its result.
    async fn report_done(&mut self, version: Version, result: &TaskResult) -> Result<DoneReport> {
        let ended = self.report_end(version, AttemptEnd::Done, &result.bytes, &result.writes.ops);
        match ended.await {
            Ok(None) => Ok(DoneReport::Sent),
            Ok(Some(no)) => Ok(DoneReport::Rejected(format!(
                "the store rejected what the result writes at {}: {}",
                no.path, no.reason
            ))),
            Err(error) if error.kind() == ErrorKind::TooLarge => Ok(DoneReport::TooLarge),
            // Without the writes of the application, the store has accepted the task until here.
            Err(error) if is_of_writes(&error, result) => {
                Ok(DoneReport::Rejected(format!("what the result writes is refused: {error}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Reports the end of the task, together with the operations of the application. Returns the
    /// rejection of one of these.
    async fn report_end(
        &mut self,
        version: Version,
        end: AttemptEnd,
        bytes: &[u8],
        more: &[Op],
    ) -> Result<Option<Rejected>> {
        let (task, done) = (self.paths.task(&self.task.name)?, self.paths.done(&self.task.name)?);
        let state = if end == AttemptEnd::Done { TaskState::Done } else { TaskState::Failed };
        let data = state.with(&task, bytes)?;
        let (ended, unchanged) = (ended_at(date()), Expect::Version(version));
        let own = self.end_txn().set(task.clone(), data.clone(), unchanged);
        mistake!(ResultUnguarded: {
            let txn = Txn::new().set(task, data, Expect::Any);
            return commit_with(self.claim.node.session(), txn, &done, ended).await.map(|_| None);
        });
        // An operation of the application is the first one that fails only if this worker has the
        // task.
        let of_application = own.ops.len()..own.ops.len() + more.len();
        let txn = more.iter().cloned().fold(own, Txn::op);
        let rejected = self.send(txn, end, (&done, ended)).await?;
        Ok(rejected.filter(|no| of_application.contains(&no.index)))
    }

    /// Reports that the task is to be retried after a pause. The node of the task is written, so
    /// that no other request of this attempt is applied.
    async fn report_retry(
        &mut self,
        record: &TaskRecord,
        failed: u32,
        failure: String,
    ) -> Result<()> {
        let (task, todo) = (self.paths.task(&self.task.name)?, self.paths.todo(&self.task.name)?);
        let data =
            TaskState::Open { failed: failed.saturating_add(1) }.with(&task, &record.bytes)?;
        let txn = self.end_txn().set(task, data, Expect::Version(record.version));
        let pause = self.task.terms.backoff.pause(failed);
        let terms = paused_at(&self.task.stored, pause, date());
        self.send(txn, AttemptEnd::Failed(failure), (&todo, terms)).await.map(drop)
    }

    /// Sends a report, with the create of a node. If another client has written the task, this
    /// worker no longer has it. Returns the rejection of the report.
    async fn send(
        &mut self,
        txn: Txn,
        end: AttemptEnd,
        (path, data): (&Path, Bytes),
    ) -> Result<Option<Rejected>> {
        let (session, attempt) = (self.claim.node.session(), self.attempt().ending(end));
        let outcome = loop {
            let whole = self.log.add_to(txn.clone(), &attempt)?;
            let outcome = commit_with(session, whole, path, data.clone()).await?;
            if !self.log.reload_if_changed(session, outcome.rejected()).await? {
                break outcome;
            }
        };
        let task = self.paths.task(&self.task.name)?;
        if outcome.rejected().is_some_and(|no| no.path == task) {
            self.report_revoked().await?;
        }
        // Otherwise an earlier request was applied and its answer was lost, the task was taken from
        // this worker, or an operation of the application was rejected.
        Ok(outcome.rejected().cloned())
    }

    /// Gives up the task if it is finished or gone. Returns false if it is open: then the
    /// assignment is gone already, or is a later one, as this worker may receive a task again.
    pub(super) async fn report_revoked(&mut self) -> Result<bool> {
        let (session, task) = (self.claim.node.session(), self.paths.task(&self.task.name)?);
        let attempt = self.attempt().ending(AttemptEnd::Revoked);
        loop {
            let view = insist(session, || session.read(Query::node(&task))).await?;
            let record = view.node().map(TaskRecord::of).transpose()?;
            let is_open = record.as_ref().is_some_and(|record| record.end().is_none());
            if is_open {
                return Ok(false);
            }
            let txn = self.end_txn();
            let txn = match record {
                Some(record) => {
                    let txn = txn.check(task.clone(), Expect::Version(record.version));
                    self.log.add_to(txn, &attempt)?
                }
                None => txn.check(task.clone(), Expect::Absent),
            };
            let outcome = insist(session, || session.commit(txn.clone())).await?;
            let is_reloaded = self.log.reload_if_changed(session, outcome.rejected()).await?;
            if !is_reloaded && outcome.rejected().is_none_or(|no| no.path != task) {
                return Ok(true);
            }
        }
    }

    /// Returns this attempt in its current state.
    fn attempt(&self) -> CrewAttempt {
        let (worker, begun) = (self.claim.path().name(), self.task.terms.assigned());
        CrewAttempt::new(worker, begun, self.progress.clone())
    }

    /// Builds a transaction that is applied only while this worker has the task, and that ends the
    /// assignment.
    fn end_txn(&self) -> Txn {
        self.claim.txn().delete(self.task.node.clone(), Expect::Any)
    }

    /// Builds a transaction that is applied only while this worker has the task. The first one
    /// writes the assignment, so that the next ones can check its version: a check of any version
    /// may cost a read.
    fn held_txn(&self) -> Txn {
        let assigned = self.task.node.clone();
        match self.assigned {
            None => self.claim.txn().set(assigned, self.task.stored.clone(), Expect::Any),
            Some(version) => self.claim.txn().check(assigned, Expect::Version(version)),
        }
    }
}
