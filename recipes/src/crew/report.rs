//! [`Reports`]: what a worker reports of a task. Each report checks that the worker has the task.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use synod_core::clock::sleep;
use synod_core::error::{ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Outcome, Query, Txn, Version};
use tokio::sync::watch;

use crate::crew::attempt_log::AttemptLog;
use crate::crew::attempts::Given;
use crate::crew::crew_attempt::{AttemptEnd, CrewAttempt};
use crate::crew::insist::{commit_with, insist};
use crate::crew::layout::CrewPaths;
use crate::crew::task_record::{TaskRecord, TaskState};
use crate::line::hold::Hold;
use crate::mutant::mistake;

/// How long a report of progress waits after the one before.
const PAUSE: Duration = Duration::from_millis(100);

/// The reports of one attempt.
pub(super) struct Reports<'a> {
    claim: &'a Hold,
    paths: &'a CrewPaths,
    given: &'a Given,
    log: AttemptLog,
    /// What the work said last of its progress.
    progress: Option<String>,
    /// The version of the assignment since a report of progress has written it.
    assigned: Option<Version>,
}

impl<'a> Reports<'a> {
    pub(super) fn new(claim: &'a Hold, paths: &'a CrewPaths, given: &'a Given) -> Result<Self> {
        let log = AttemptLog::new(paths.attempts(&given.task)?);
        Ok(Self { claim, paths, given, log, progress: None, assigned: None })
    }

    /// Reports what the work says of its progress, as long as this worker has the task.
    pub(super) async fn follow(
        &mut self,
        mut said: watch::Receiver<Option<String>>,
    ) -> Result<Infallible> {
        while said.changed().await.is_ok() {
            self.progress.clone_from(&said.borrow_and_update());
            if !self.goes_on().await? {
                break;
            }
            sleep(PAUSE).await;
        }
        // The work goes on.
        pending().await
    }

    /// Takes note of what the work has said last: it is reported with the end of the attempt.
    pub(super) fn learn(&mut self, said: &watch::Receiver<Option<String>>) {
        self.progress.clone_from(&said.borrow());
    }

    /// Reports the progress. Returns false if this worker does not have the task any more.
    async fn goes_on(&mut self) -> Result<bool> {
        let session = self.claim.node.session();
        let attempt = self.attempt();
        loop {
            let has = self.still_has();
            mistake!(ProgressUnguarded: let has = Txn::new());
            let txn = self.log.enter(has, &attempt)?;
            match insist(session, || session.commit(txn.clone())).await? {
                Outcome::Committed(commit) => {
                    let assigned = commit.done.iter().find(|it| it.path == self.given.assigned);
                    let written = assigned.and_then(|done| done.stat);
                    self.assigned = written.map(|stat| stat.version).or(self.assigned);
                    self.log.look(session).await?;
                    return Ok(true);
                }
                Outcome::Rejected(no) => {
                    if !self.log.has_changed(session, Some(&no)).await? {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Reports the result of an attempt.
    pub(super) async fn result(
        &mut self,
        record: &TaskRecord,
        failed: u32,
        result: Result<Bytes, String>,
    ) -> Result<()> {
        let failure = match result {
            Ok(bytes) => match self.over(record, AttemptEnd::Done, &bytes).await {
                Err(error) if error.kind() == ErrorKind::TooLarge => {
                    "the result is too large for the store".to_owned()
                }
                reported => return reported,
            },
            Err(failure) if failed < self.given.terms.retries => {
                tracing::debug!(task = %self.given.task, %failure, "the task waits again");
                return self.waits_again(record, failed + 1, failure).await;
            }
            Err(failure) => failure,
        };
        self.over(record, AttemptEnd::Failed(failure.clone()), failure.as_bytes()).await
    }

    /// Reports that the task is over.
    async fn over(&mut self, record: &TaskRecord, end: AttemptEnd, bytes: &[u8]) -> Result<()> {
        let (task, done) = (self.paths.task(&self.given.task)?, self.paths.done(&self.given.task)?);
        let state = if end == AttemptEnd::Done { TaskState::Done } else { TaskState::Failed };
        let data = state.with(&task, bytes)?;
        let txn = self.given_up().set(task.clone(), data.clone(), Expect::Version(record.version));
        mistake!(ResultUnguarded: {
            let txn = Txn::new().set(task, data, Expect::Any);
            return commit_with(self.claim.node.session(), txn, &done, Bytes::new()).await.map(drop);
        });
        self.report(txn, end, (&done, Bytes::new())).await
    }

    /// Reports that the task is to be tried again. The node of the task is written, so that no other request of
    /// this attempt is applied.
    async fn waits_again(
        &mut self,
        record: &TaskRecord,
        failed: u32,
        failure: String,
    ) -> Result<()> {
        let (task, todo) = (self.paths.task(&self.given.task)?, self.paths.todo(&self.given.task)?);
        let data = TaskState::Open { failed }.with(&task, &record.bytes)?;
        let txn = self.given_up().set(task, data, Expect::Version(record.version));
        self.report(txn, AttemptEnd::Failed(failure), (&todo, self.given.stored.clone())).await
    }

    /// Sends a report, with the create of a node. If another client has written to the task, this worker does not have it any
    /// more.
    async fn report(
        &mut self,
        txn: Txn,
        end: AttemptEnd,
        (path, data): (&Path, Bytes),
    ) -> Result<()> {
        let (session, attempt) = (self.claim.node.session(), self.attempt().ending(end));
        let outcome = loop {
            let whole = self.log.enter(txn.clone(), &attempt)?;
            let outcome = commit_with(session, whole, path, data.clone()).await?;
            if !self.log.has_changed(session, outcome.rejected()).await? {
                break outcome;
            }
        };
        let task = self.paths.task(&self.given.task)?;
        if outcome.rejected().is_some_and(|no| no.path == task) {
            self.drops().await?;
        }
        // Otherwise the first request was applied, and its answer was lost; or the task was taken from this worker.
        Ok(())
    }

    /// Reports that this worker does not have the task any more, if it is over. Returns false if it is not: then
    /// the assignment is gone already, or is a later one, as this worker may get a task again.
    pub(super) async fn drops(&mut self) -> Result<bool> {
        let (session, task) = (self.claim.node.session(), self.paths.task(&self.given.task)?);
        let attempt = self.attempt().ending(AttemptEnd::Revoked);
        loop {
            let view = insist(session, || session.read(Query::node(&task))).await?;
            let record = view.node().map(TaskRecord::of).transpose()?;
            let is_open = record.as_ref().is_some_and(|record| record.end().is_none());
            if is_open {
                return Ok(false);
            }
            let txn = self.given_up();
            let txn = match record {
                Some(record) => {
                    let txn = txn.check(task.clone(), Expect::Version(record.version));
                    self.log.enter(txn, &attempt)?
                }
                None => txn.check(task.clone(), Expect::Absent),
            };
            let outcome = insist(session, || session.commit(txn.clone())).await?;
            let has_changed = self.log.has_changed(session, outcome.rejected()).await?;
            if !has_changed && outcome.rejected().is_none_or(|no| no.path != task) {
                return Ok(true);
            }
        }
    }

    /// This attempt, as it is now.
    fn attempt(&self) -> CrewAttempt {
        let (worker, begun) = (self.claim.path().name(), self.given.terms.assigned());
        CrewAttempt::new(worker, begun, self.progress.clone())
    }

    /// A transaction that is applied only while this worker has the task, and takes it from it.
    fn given_up(&self) -> Txn {
        self.claim.txn().delete(self.given.assigned.clone(), Expect::Any)
    }

    /// A transaction that is applied only while this worker has the task. The first one writes the assignment, so that the next
    /// ones can check its version: a check of any version may cost a read.
    fn still_has(&self) -> Txn {
        let assigned = self.given.assigned.clone();
        match self.assigned {
            None => self.claim.txn().set(assigned, self.given.stored.clone(), Expect::Any),
            Some(version) => self.claim.txn().check(assigned, Expect::Version(version)),
        }
    }
}
