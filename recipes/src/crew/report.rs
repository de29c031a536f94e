//! [`Reports`]: what a worker reports of a task. Each report checks that the worker has the task.

use bytes::Bytes;
use synod_core::error::{ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Query, Txn};

use crate::crew::attempts::Given;
use crate::crew::insist::{commit_with, insist};
use crate::crew::layout::CrewPaths;
use crate::crew::task_record::{TaskRecord, TaskState};
use crate::line::hold::Hold;
use crate::mutant::mistake;

/// The reports of one attempt.
pub(super) struct Reports<'a> {
    claim: &'a Hold,
    paths: &'a CrewPaths,
    given: &'a Given,
}

impl<'a> Reports<'a> {
    pub(super) fn new(claim: &'a Hold, paths: &'a CrewPaths, given: &'a Given) -> Self {
        Self { claim, paths, given }
    }

    /// Reports the result of an attempt.
    pub(super) async fn result(
        &self,
        record: &TaskRecord,
        failed: u32,
        result: Result<Bytes, String>,
    ) -> Result<()> {
        let failure = match result {
            Ok(bytes) => match self.over(record, TaskState::Done, &bytes).await {
                Err(error) if error.kind() == ErrorKind::TooLarge => {
                    "the result is too large for the store".to_owned()
                }
                reported => return reported,
            },
            Err(failure) if failed < self.given.terms.retries => {
                tracing::debug!(task = %self.given.task, %failure, "the task waits again");
                return self.waits_again(record, failed + 1).await;
            }
            Err(failure) => failure,
        };
        self.over(record, TaskState::Failed, failure.as_bytes()).await
    }

    /// Reports that the task is over.
    async fn over(&self, record: &TaskRecord, state: TaskState, bytes: &[u8]) -> Result<()> {
        let task = self.paths.task(&self.given.task)?;
        let data = state.with(&task, bytes)?;
        let txn = self.given_up().set(task.clone(), data.clone(), Expect::Version(record.version));
        mistake!(ResultUnguarded: let txn = Txn::new().set(task, data, Expect::Any));
        self.report(txn, &self.paths.done(&self.given.task)?, Bytes::new()).await
    }

    /// Reports that the task is to be tried again. The node of the task is written, so that no other request of
    /// this attempt is applied.
    async fn waits_again(&self, record: &TaskRecord, failed: u32) -> Result<()> {
        let (task, todo) = (self.paths.task(&self.given.task)?, self.paths.todo(&self.given.task)?);
        let data = TaskState::Open { failed }.with(&task, &record.bytes)?;
        let txn = self.given_up().set(task, data, Expect::Version(record.version));
        self.report(txn, &todo, self.given.stored.clone()).await
    }

    /// Sends a report. If another client has written to the task, this worker does not have it any more.
    async fn report(&self, txn: Txn, path: &Path, data: Bytes) -> Result<()> {
        let outcome = commit_with(self.claim.node.session(), txn, path, data).await?;
        let task = self.paths.task(&self.given.task)?;
        if outcome.rejected().is_some_and(|no| no.path == task) {
            self.drops().await?;
        }
        // Otherwise the first request was applied, and its answer was lost; or the task was taken from this worker.
        Ok(())
    }

    /// Reports that this worker does not have the task any more, if it is over. Returns false if it is not: then
    /// the assignment is gone already, or is a later one, as this worker may get a task again.
    pub(super) async fn drops(&self) -> Result<bool> {
        let (session, task) = (self.claim.node.session(), self.paths.task(&self.given.task)?);
        loop {
            let view = insist(session, || session.read(Query::node(&task))).await?;
            let record = view.node().map(TaskRecord::of).transpose()?;
            let is_open = record.as_ref().is_some_and(|record| record.end().is_none());
            if is_open {
                return Ok(false);
            }
            let expect = record.map_or(Expect::Absent, |record| Expect::Version(record.version));
            let txn = self.claim.txn().check(task.clone(), expect);
            let txn = txn.delete(self.given.assigned.clone(), Expect::Any);
            let outcome = insist(session, || session.commit(txn.clone())).await?;
            if outcome.rejected().is_none_or(|no| no.path != task) {
                return Ok(true);
            }
        }
    }

    /// A transaction that is applied only while this worker has the task, and takes it from it.
    fn given_up(&self) -> Txn {
        self.claim.txn().delete(self.given.assigned.clone(), Expect::Any)
    }
}
