//! [`Reports`]: what a worker reports of a task. Each report checks that the worker has the task.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Outcome, Query, Txn, Version};
use tokio::sync::watch;

use crate::crew::attempt_log::AttemptLog;
use crate::crew::attempts::Given;
use crate::crew::attempts_record::beginning;
use crate::crew::crew_attempt::{AttemptEnd, CrewAttempt};
use crate::crew::deadlines::date;
use crate::crew::finished::ended_at;
use crate::crew::insist::{commit_with, concerns_a_task, insist};
use crate::crew::layout::CrewPaths;
use crate::crew::task_record::{TaskRecord, TaskState};
use crate::crew::task_terms::paused_at;
use crate::line::hold::Hold;
use crate::mutant::mistake;

/// How long a report of progress waits after the one before.
const PAUSE: Duration = Duration::from_millis(100);

/// The number of bytes that are kept of the text of the last failure.
const MAX_FAILURE: usize = 65_536;

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
                    let assigned = commit.results.iter().find(|it| it.path == self.given.assigned);
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
            Ok(bytes) => match self.over(record.version, AttemptEnd::Done, &bytes).await {
                Err(error) if error.kind() == ErrorKind::TooLarge => {
                    "the result is too large for the store".to_owned()
                }
                reported => return reported,
            },
            Err(failure) if failed < self.given.terms.retries => {
                tracing::debug!(task = %self.given.task, %failure, "the task waits again");
                return self.waits_again(record, failed, failure).await;
            }
            Err(failure) => failure,
        };
        self.fails(record.version, &failure).await
    }

    /// Reports that the task has failed for good.
    async fn fails(&mut self, version: Version, failure: &str) -> Result<()> {
        let failure = beginning(failure, MAX_FAILURE);
        self.over(version, AttemptEnd::Failed(failure.clone()), failure.as_bytes()).await
    }

    /// Ends the task as failed, as this worker, and any other, can neither do it nor report that: what is stored or to be stored of it
    /// is at fault. If that cannot be stored either, the worker keeps the task, and does nothing for it.
    pub(super) async fn cannot_be_done(&mut self, error: Error) -> Result<()> {
        let (session, task) = (self.claim.node.session(), self.paths.task(&self.given.task)?);
        tracing::warn!(%task, %error, "a task of a crew cannot be done");
        let ended = async {
            let view = insist(session, || session.read(Query::node(&task))).await?;
            let is_over = |node| TaskRecord::of(node).is_ok_and(|record| record.end().is_some());
            match view.node().filter(|node| !is_over(node)).and_then(|node| node.stat) {
                Some(stat) => self.fails(stat.version, &error.to_string()).await,
                None => self.drops().await.map(drop),
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

    /// Reports that the task is over.
    async fn over(&mut self, version: Version, end: AttemptEnd, bytes: &[u8]) -> Result<()> {
        let (task, done) = (self.paths.task(&self.given.task)?, self.paths.done(&self.given.task)?);
        let state = if end == AttemptEnd::Done { TaskState::Done } else { TaskState::Failed };
        let data = state.with(&task, bytes)?;
        let (ended, unchanged) = (ended_at(date()), Expect::Version(version));
        let txn = self.given_up().set(task.clone(), data.clone(), unchanged);
        mistake!(ResultUnguarded: {
            let txn = Txn::new().set(task, data, Expect::Any);
            return commit_with(self.claim.node.session(), txn, &done, ended).await.map(drop);
        });
        self.report(txn, end, (&done, ended)).await
    }

    /// Reports that the task is to be tried again, after a pause. The node of the task is written, so that no other request of
    /// this attempt is applied.
    async fn waits_again(
        &mut self,
        record: &TaskRecord,
        failed: u32,
        failure: String,
    ) -> Result<()> {
        let (task, todo) = (self.paths.task(&self.given.task)?, self.paths.todo(&self.given.task)?);
        let data =
            TaskState::Open { failed: failed.saturating_add(1) }.with(&task, &record.bytes)?;
        let txn = self.given_up().set(task, data, Expect::Version(record.version));
        let pause = self.given.terms.backoff.pause(failed);
        let terms = paused_at(&self.given.stored, pause, date());
        self.report(txn, AttemptEnd::Failed(failure), (&todo, terms)).await
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
