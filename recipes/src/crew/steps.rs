//! [`MasterStep`]: a step of a master. [`Steps`]: the transactions that make the steps. Each checks
//! the leadership of the master.

use std::time::Duration;

use bytes::Bytes;
use synod_core::clock::sleep;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{
    Expect, Lifetime, Outcome, Query, RejectReason, Rejected, Revision, Version,
};
use synod_core::value::{decode, encode};

use crate::crew::attempt_record::{AttemptEnd, AttemptLog, CrewAttempt};
use crate::crew::failures::concerns_a_task;
use crate::crew::finished::ended_at;
use crate::crew::layout::{CrewPaths, CrewSwitch};
use crate::crew::task_record::TaskState;
use crate::crew::task_terms::{TaskTerms, assigned_at};
use crate::crew::worker::is_rewritten;
use crate::line::hold::Leadership;
use crate::mutant::mistake;
use crate::support::retry::{commit_once, commit_with, insist};
use crate::support::time::date;

/// The time for which a task is set aside that the store rejected for its content.
pub(super) const ASIDE: Duration = Duration::from_secs(60);

/// The time for which a task is set aside after the policy panicked for it.
pub(super) const AFTER_PANIC: Duration = Duration::from_secs(1);

/// A step of a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MasterStep {
    /// Assigns the task to the worker.
    Assign { task: String, worker: String, queued: Queued, basis: StepBasis },
    /// Returns the task of a worker that is gone to the waiting tasks.
    TakeBack { task: String, worker: String, terms: Bytes },
    /// Ends the task, whose deadline has passed.
    Expire { task: String, waits: bool },
    /// Removes the task, whose retention has passed, unless this worker still has it.
    Remove { task: String, possible_holder: Option<String> },
}

impl MasterStep {
    /// The name of the task.
    pub(super) fn task(&self) -> &str {
        match self {
            Self::Assign { task, .. }
            | Self::TakeBack { task, .. }
            | Self::Expire { task, .. }
            | Self::Remove { task, .. } => task,
        }
    }
}

/// A task that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queued {
    pub(super) version: Version,
    /// The revision at which the task began to wait.
    pub(super) since: Revision,
    pub(super) terms: TaskTerms,
    /// The terms as they are stored.
    pub(super) stored: Bytes,
}

/// The versions of the nodes on which a master has based an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepBasis {
    /// The version of the worker. It changes when the worker is drained.
    pub(super) worker: Version,
    /// The version of the switch. It changes when the crew is paused.
    pub(super) switch: Version,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// The step was made.
    Applied,
    /// This master was replaced.
    Deposed,
    /// The worker is gone, or is registered after all.
    OtherWorker,
    /// The worker still has an earlier task of this name or is drained, or the crew is paused: the
    /// task waits.
    NotNow,
    /// The task is elsewhere, or is finished.
    Elsewhere,
    /// The step was made or was not: its answer is lost, and it is not repeated.
    Unknown,
    /// The store rejected the step because of the content of this task.
    SetAside,
}

/// The pause after an assignment was rejected for a reason that passes by itself.
const PAUSE: Duration = Duration::from_millis(100);

/// The steps of one term.
pub(super) struct Steps<'a> {
    paths: &'a CrewPaths,
    lead: Leadership,
}

impl<'a> Steps<'a> {
    pub(super) fn new(paths: &'a CrewPaths, lead: Leadership) -> Self {
        Self { paths, lead }
    }

    /// Makes a step, and returns its outcome.
    pub(super) async fn make(&self, step: MasterStep) -> Result<(MasterStep, StepOutcome)> {
        let outcome = match self.try_to_make(&step).await {
            Err(error) if concerns_a_task(&error) => {
                tracing::warn!(task = step.task(), %error, "a task of a crew is set aside");
                StepOutcome::SetAside
            }
            outcome => outcome?,
        };
        tracing::debug!(?step, ?outcome, "a step of the master");
        Ok((step, outcome))
    }

    async fn try_to_make(&self, step: &MasterStep) -> Result<StepOutcome> {
        let outcome = match step {
            MasterStep::Expire { task, waits } => return self.expire(task, *waits).await,
            MasterStep::Assign { task, worker, queued, basis } => {
                self.assign((task, worker), queued, *basis).await?
            }
            MasterStep::TakeBack { task, worker, terms } => {
                self.take_back(task, worker, terms.clone()).await?
            }
            MasterStep::Remove { task, possible_holder } => {
                match self.remove(task, possible_holder.as_deref()).await? {
                    Some(outcome) => outcome,
                    None => return Ok(StepOutcome::Unknown),
                }
            }
        };
        Ok(match &outcome {
            Outcome::Committed(_) => StepOutcome::Applied,
            Outcome::Rejected(no) => self.outcome_of(no),
        })
    }

    /// Ensures that the switch exists and was written since its creation. Returns false if this
    /// master was replaced.
    pub(super) async fn begin(&self) -> Result<bool> {
        let (session, switch) = (self.lead.session(), self.paths.switch());
        let on = encode(switch, &CrewSwitch { paused: false })?;
        loop {
            let view = insist(session, || session.read(Query::node(switch))).await?;
            let txn = match view.node().and_then(|node| Some((node, node.stat?))) {
                None => self.lead.txn().create(switch.clone(), on.clone(), Lifetime::Persistent),
                Some((_, stat)) if is_rewritten(&stat) => return Ok(true),
                Some((node, stat)) => {
                    let unchanged = Expect::Version(stat.version);
                    self.lead.txn().set(switch.clone(), node.data.clone(), unchanged)
                }
            };
            let outcome = insist(session, || session.commit(txn.clone())).await?;
            if outcome.rejected().is_some_and(|no| no.path != *switch) {
                return Ok(false);
            }
        }
    }

    async fn assign(
        &self,
        (task, worker): (&str, &str),
        queued: &Queued,
        basis: StepBasis,
    ) -> Result<Outcome> {
        let (session, todo) = (self.lead.session(), self.paths.todo(task)?);
        let assigned = self.paths.assigned(worker, task)?;
        let txn = self
            .lead
            .txn()
            .check(self.paths.worker(worker)?, Expect::Version(basis.worker))
            .check(self.paths.switch().clone(), Expect::Version(basis.switch));
        let taken = txn.clone().delete(todo, Expect::Version(queued.version));
        mistake!(AssignsInTwoCalls: let taken = {
            let taken = insist(session, || session.commit(taken.clone())).await?;
            if taken.rejected().is_some() {
                return Ok(taken);
            }
            txn
        });
        let terms = assigned_at(&queued.stored, date());
        let whole = taken.create(assigned, terms, Lifetime::Persistent);
        let outcome = insist(session, || session.commit(whole.clone())).await?;
        if outcome.rejected().is_some_and(|no| self.is_passing(no)) {
            // The worker is about to remove its earlier task, or a change will be reported to this
            // master soon.
            sleep(PAUSE).await;
        }
        Ok(outcome)
    }

    async fn take_back(&self, task: &str, worker: &str, terms: Bytes) -> Result<Outcome> {
        let (session, todo) = (self.lead.session(), self.paths.todo(task)?);
        let (assigned, done) = (self.paths.assigned(worker, task)?, self.paths.done(task)?);
        let mut log = AttemptLog::new(self.paths.attempts(task)?);
        let begun = decode::<TaskTerms>(&todo, &terms).ok().and_then(|terms| terms.assigned());
        let lost = CrewAttempt::new(worker, begun, None).ending(AttemptEnd::Lost);
        let txn = self.lead.txn().check(self.paths.worker(worker)?, Expect::Absent);
        let txn = txn.delete(assigned, Expect::Any);
        loop {
            let open = txn.clone().check(done.clone(), Expect::Absent);
            let open = log.add_to(open, &lost)?;
            let mut outcome = commit_with(session, open, &todo, terms.clone()).await?;
            if outcome.rejected().is_some_and(|no| no.path == done) {
                // The task was cancelled or has expired. It is kept until this master knows that no
                // worker has it.
                let over = log.add_to(txn.clone(), &lost)?;
                outcome = insist(session, || session.commit(over.clone())).await?;
            }
            if !log.reload_if_changed(session, outcome.rejected()).await? {
                return Ok(outcome);
            }
        }
    }

    /// Ends a task whose deadline has passed, unless it is finished. The data of the task is not
    /// read.
    async fn expire(&self, task: &str, mut waits: bool) -> Result<StepOutcome> {
        let (session, todo) = (self.lead.session(), self.paths.todo(task)?);
        let (task, done) = (self.paths.task(task)?, self.paths.done(task)?);
        let (query, expired) = (Query::node(&task).names_only(), TaskState::Expired);
        let expired = expired.with(&task, &[])?;
        loop {
            let view = insist(session, || session.read(query.clone())).await?;
            let Some(stat) = view.node().and_then(|node| node.stat) else {
                return Ok(StepOutcome::Elsewhere);
            };
            let txn = self.lead.txn();
            mistake!(ExpiresWithoutLead: let txn = synod_core::store::Txn::new());
            let txn = txn.create(done.clone(), ended_at(date()), Lifetime::Persistent);
            let txn = txn.set(task.clone(), expired.clone(), Expect::Version(stat.version));
            // A finished task never waits.
            let txn = if waits {
                txn.delete(todo.clone(), Expect::Any)
            } else {
                txn.check(todo.clone(), Expect::Absent)
            };
            let outcome = insist(session, || session.commit(txn.clone())).await?;
            match outcome.rejected() {
                None => return Ok(StepOutcome::Applied),
                Some(no) if no.path == todo => waits = !waits,
                // An attempt has failed meanwhile.
                Some(no) if no.path == task => {}
                Some(no) => return Ok(self.outcome_of(no)),
            }
        }
    }

    /// Returns true if an assignment was rejected because of a task that the worker still has, or
    /// because a change was not reported to this master yet.
    fn is_passing(&self, no: &Rejected) -> bool {
        let is_occupied =
            no.reason == RejectReason::Exists && no.path.is_below(self.paths.all_assigned());
        let is_changed = no.reason == RejectReason::OtherVersion && self.is_worker(&no.path);
        is_occupied || is_changed || no.path == *self.paths.switch()
    }

    fn is_worker(&self, path: &Path) -> bool {
        path.parent_str() == Some(self.paths.workers().as_str())
    }

    /// Removes a finished task, unless this worker still has it. The request is not repeated if its
    /// effect is unknown: it might be applied to a later task of this name that is finished, too.
    async fn remove(&self, task: &str, possible_holder: Option<&str>) -> Result<Option<Outcome>> {
        let session = self.lead.session();
        let mut txn = self.lead.txn();
        if let Some(worker) = possible_holder {
            txn = txn.check(self.paths.assigned(worker, task)?, Expect::Absent);
        }
        let txn = txn.delete(self.paths.done(task)?, Expect::Any);
        let mut others = vec![self.paths.task(task)?, self.paths.attempts(task)?];
        loop {
            let nodes = others.iter().cloned();
            let whole = nodes.fold(txn.clone(), |txn, node| txn.delete(node, Expect::Any));
            let Some(outcome) = commit_once(session, &whole).await? else { return Ok(None) };
            let missing = outcome.rejected().filter(|no| no.reason == RejectReason::Missing);
            match missing.and_then(|no| others.iter().position(|it| *it == no.path)) {
                // No worker had the task, or its node is gone already.
                Some(place) => drop(others.remove(place)),
                None => return Ok(Some(outcome)),
            }
        }
    }

    fn outcome_of(&self, no: &Rejected) -> StepOutcome {
        if no.path == *self.lead.ticket() {
            StepOutcome::Deposed
        } else if self.is_passing(no) {
            StepOutcome::NotNow
        } else if self.is_worker(&no.path) {
            StepOutcome::OtherWorker
        } else {
            StepOutcome::Elsewhere
        }
    }
}
