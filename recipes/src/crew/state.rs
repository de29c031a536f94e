//! [`CrewState`]: the state of a crew as its master knows it, and the choice of the next step.
//! Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use synod_core::clock::Instant;
use synod_core::store::{Node, Revision, Version};
use synod_core::value::decode;

use crate::crew::layout::CrewSwitch;
use crate::crew::policy::{CrewPolicy, CrewTurns, FreeWorker, PolicyPanicked, WaitingTask};
use crate::crew::steps::{AFTER_PANIC, ASIDE, MasterStep, Queued, StepBasis, StepOutcome};
use crate::crew::task_terms::TaskTerms;
use crate::crew::worker::RegisteredWorker;
use crate::mutant::mistake;
use crate::support::names::decoded_name;

#[cfg(test)]
mod tests;

/// The state of a crew as its master knows it. It contains the steps that the master has just made
/// before the store reports them.
#[derive(Debug, Default)]
pub(super) struct CrewState {
    todo: TodoQueue,
    workers: BTreeMap<String, RegisteredWorker>,
    turns: CrewTurns,
    /// The version of the switch, or `None` while the crew is paused.
    switch: Option<Version>,
    /// The tasks of each worker.
    assigned: BTreeMap<String, BTreeMap<String, Assigned>>,
    /// The worker that has a task.
    holders: BTreeMap<String, String>,
    /// The tasks of workers that are gone, with these workers.
    orphans: VecDeque<(String, String)>,
    /// Assignments that were made and not reported yet: the time limit, the worker and the task.
    unreported: VecDeque<(Instant, String, String)>,
    /// The last assignment of each task that this master has requested, until the store reports it
    /// or the task is gone: the worker may have the task even if it is not among the holders. The
    /// directories are reported independently, so the end of a task can precede its assignment.
    possible_holders: BTreeMap<String, PossibleHolder>,
    /// Orphans that the store rejected, until they are tried again.
    aside: BTreeSet<(Instant, String, String)>,
}

/// The result of the choice of an assignment.
enum Choice {
    /// The task is assigned to the worker.
    Worker { task: String, worker: String },
    /// The policy panicked for the task.
    Panicked { task: String },
}

/// A task that a worker has.
#[derive(Clone, Debug)]
struct Assigned {
    /// The terms of the task as they are stored.
    stored: Bytes,
    /// True if the store has reported the assignment. An assignment that was not reported may also
    /// have ended without a report.
    is_reported: bool,
}

/// A worker to which a master has requested to assign a task.
#[derive(Debug)]
struct PossibleHolder {
    worker: String,
    /// The revision at which the task began to wait. Its assignment is newer.
    since: Revision,
}

/// The time limit for the report of an assignment that was made.
const MAX_UNREPORTED: Duration = Duration::from_secs(5);

/// A time that is longer than any master leads.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

impl CrewState {
    pub(super) fn new(policy: CrewPolicy) -> Self {
        Self { turns: CrewTurns::new(policy), ..Self::default() }
    }

    /// Adds a waiting task, which is not assigned before this pause is over.
    pub(super) fn add_waiting(
        &mut self,
        node: &Node,
        pause: impl FnOnce(&TaskTerms) -> Duration,
        now: Instant,
    ) {
        let (Ok(terms), Some(stat)) = (decode::<TaskTerms>(&node.path, &node.data), node.stat)
        else {
            return;
        };
        let (task, pause) = (node.path.name(), pause(&terms));
        self.unassign(task);
        let (version, since, stored) = (stat.version, stat.created, node.data.clone());
        let queued = Queued { version, since, terms, stored };
        if pause.is_zero() {
            self.todo.insert(task, queued);
        } else {
            // A pause beyond the range of the clock is longer than any master leads.
            self.todo.insert_resting(
                task,
                queued,
                now.checked_add(pause).unwrap_or(now + FAR_FUTURE),
            );
        }
    }

    /// Removes a task that no longer waits, unless it is a later incarnation that waits.
    pub(super) fn remove_waiting(&mut self, node: &Node) {
        let created = node.stat.map(|stat| stat.created);
        if created.is_some() && self.todo.since(node.path.name()) == created {
            self.todo.remove(node.path.name());
        }
    }

    /// Adds or updates the worker of this node. Removes the worker if the node holds none.
    pub(super) fn add_worker(&mut self, node: &Node) {
        let name = node.path.name();
        match RegisteredWorker::of(node) {
            Some(worker) => drop(self.workers.insert(name.to_owned(), worker)),
            None => drop(self.workers.remove(name)),
        }
    }

    /// Sets whether the crew is paused.
    pub(super) fn set_switch(&mut self, node: &Node) {
        let paused = decode(&node.path, &node.data).is_ok_and(|CrewSwitch { paused }| paused);
        mistake!(PauseIgnored: let paused = false);
        self.switch = node.stat.filter(|_| !paused).map(|stat| stat.version);
    }

    /// Forgets the switch, which is reported anew.
    pub(super) fn forget_switch(&mut self) {
        self.switch = None;
    }

    /// Removes a worker for good: the name of a worker is used once.
    pub(super) fn remove_worker(&mut self, worker: &str) {
        self.workers.remove(worker);
        self.add_orphans_of(worker);
    }

    fn add_orphans_of(&mut self, worker: &str) {
        let tasks = self.assigned.get(worker).into_iter().flat_map(BTreeMap::keys);
        self.orphans.extend(tasks.map(|task| (worker.to_owned(), task.clone())));
    }

    /// Adds an assignment that the store has reported.
    pub(super) fn add_assignment(&mut self, worker: &str, node: &Node) {
        let (task, stored) = (node.path.name(), node.data.clone());
        self.insert_assignment(worker, task, Assigned { stored, is_reported: true });
        let is_last = |possible: &PossibleHolder| {
            possible.worker == worker && node.stat.is_some_and(|stat| stat.created > possible.since)
        };
        if self.possible_holders.get(task).is_some_and(is_last) {
            self.possible_holders.remove(task);
        }
        if !self.workers.contains_key(worker) {
            self.orphans.push_back((worker.to_owned(), task.to_owned()));
        }
    }

    fn insert_assignment(&mut self, worker: &str, task: &str, assigned: Assigned) {
        self.unassign(task);
        self.holders.insert(task.to_owned(), worker.to_owned());
        let tasks = self.assigned.entry(worker.to_owned()).or_default();
        tasks.insert(task.to_owned(), assigned);
    }

    /// Removes a finished task. A reported assignment is kept: the worker of a cancelled task may
    /// still have it.
    pub(super) fn remove_finished(&mut self, task: &str) {
        if !self.is_reported(task) {
            self.unassign(task);
        }
    }

    /// Returns true if the store has reported the assignment of a task.
    fn is_reported(&self, task: &str) -> bool {
        let worker = self.holders.get(task).and_then(|worker| self.assigned.get(worker));
        worker.and_then(|tasks| tasks.get(task)).is_some_and(|assigned| assigned.is_reported)
    }

    /// Removes an assignment that the store rejected. If the store has reported the assignment, the
    /// request was repeated and its first copy was applied; then it is kept.
    fn undo_assignment(&mut self, worker: &str, task: &str) {
        if !self.is_reported(task) {
            self.remove_assignment(worker, task);
        }
    }

    /// Removes a task from this worker, if it has it.
    pub(super) fn remove_assignment(&mut self, worker: &str, task: &str) {
        if self.holder(task) == Some(worker) {
            self.unassign(task);
        }
    }

    /// Removes a task from its worker.
    pub(super) fn unassign(&mut self, task: &str) {
        let Some(worker) = self.holders.remove(task) else { return };
        if let Some(tasks) = self.assigned.get_mut(&worker) {
            tasks.remove(task);
            if tasks.is_empty() {
                self.assigned.remove(&worker);
            }
        }
    }

    /// The worker that has a task.
    pub(super) fn holder(&self, task: &str) -> Option<&str> {
        self.holders.get(task).map(String::as_str)
    }

    /// The worker to which this master has requested to assign a task, if the store has not
    /// reported that assignment.
    pub(super) fn possible_holder(&self, task: &str) -> Option<&str> {
        self.possible_holders.get(task).map(|possible| possible.worker.as_str())
    }

    /// Forgets a task that is gone.
    pub(super) fn forget_task(&mut self, task: &str) {
        self.possible_holders.remove(task);
    }

    /// Returns true if a task waits or is assigned, as far as this master knows.
    pub(super) fn knows(&self, task: &str) -> bool {
        self.todo.contains(task) || self.holders.contains_key(task)
    }

    /// Removes a waiting task that is about to end, so that it is not assigned. Returns whether it
    /// waited.
    pub(super) fn remove_waiting_task(&mut self, task: &str) -> bool {
        self.todo.remove(task).is_some()
    }

    /// Forgets the waiting tasks, which are reported anew.
    pub(super) fn forget_queue(&mut self) {
        self.todo.clear();
    }

    /// Forgets the workers, which are reported anew. Then [`CrewState::find_orphans`] is called.
    pub(super) fn forget_workers(&mut self) {
        self.workers.clear();
    }

    /// Forgets the assignments, which are reported anew.
    pub(super) fn forget_assigned(&mut self) {
        self.assigned.clear();
        self.holders.clear();
    }

    /// Finds all tasks of workers that are gone.
    pub(super) fn find_orphans(&mut self) {
        self.orphans.clear();
        self.aside.clear();
        let workers = &self.workers;
        let lost: Vec<_> =
            self.assigned.keys().filter(|worker| !workers.contains_key(*worker)).cloned().collect();
        for worker in lost {
            self.add_orphans_of(&worker);
        }
    }

    /// The time of the next step that no change triggers.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let aside = self.aside.first().map(|(until, ..)| *until);
        let unreported = self.unreported.front().map(|(until, ..)| *until);
        self.todo.next_wake().into_iter().chain(aside).chain(unreported).min()
    }

    /// Chooses the next step, and assumes that it is made until its outcome is known.
    pub(super) fn next_step(&mut self, now: Instant) -> Option<MasterStep> {
        self.todo.wake(now);
        self.forget_unreported(now);
        while self.aside.first().is_some_and(|(until, ..)| *until <= now) {
            let orphan = self.aside.pop_first();
            self.orphans.extend(orphan.map(|(_, worker, task)| (worker, task)));
        }
        while let Some((worker, task)) = self.orphans.pop_front() {
            if self.workers.contains_key(&worker) {
                continue;
            }
            if let Some(assigned) = self.assigned.get(&worker).and_then(|tasks| tasks.get(&task)) {
                return Some(MasterStep::TakeBack { task, terms: assigned.stored.clone(), worker });
            }
        }
        self.next_assignment(now)
    }

    /// Forgets assignments that were made and are not reported within the time limit: they have
    /// ended, and left neither a finished nor a waiting task, because there was no such task. If
    /// the report is only delayed, the worker receives more tasks than its capacity, and they wait
    /// there.
    fn forget_unreported(&mut self, now: Instant) {
        while let Some((until, worker, task)) = self.unreported.front() {
            let is_expected = self.holder(task) == Some(worker) && !self.is_reported(task);
            if is_expected && *until > now {
                return;
            }
            if let Some((_, _, task)) = self.unreported.pop_front().filter(|_| is_expected) {
                self.unassign(&task);
            }
        }
    }

    /// Assigns the first waiting task for which the policy chooses a worker.
    fn next_assignment(&mut self, now: Instant) -> Option<MasterStep> {
        let switch = self.switch?;
        let (task, worker) = loop {
            match self.first_choice()? {
                Choice::Worker { task, worker } => break (task, worker),
                Choice::Panicked { task } => {
                    tracing::error!(task, "the policy of a crew panicked; the task is set aside");
                    let queued = self.todo.remove(&task)?;
                    self.todo.insert_resting(&task, queued, now + AFTER_PANIC);
                }
            }
        };
        let basis = StepBasis { worker: self.workers.get(&worker)?.version, switch };
        self.turns.record_choice(&worker);
        let queued = self.todo.remove(&task)?;
        let possible = PossibleHolder { worker: worker.clone(), since: queued.since };
        self.possible_holders.insert(task.clone(), possible);
        let assigned = Assigned { stored: queued.stored.clone(), is_reported: false };
        self.insert_assignment(&worker, &task, assigned);
        Some(MasterStep::Assign { task, worker, queued, basis })
    }

    /// Chooses the first waiting task for which the policy chooses a worker, and that worker.
    fn first_choice(&self) -> Option<Choice> {
        let free: Vec<_> = self.free_workers().collect();
        if free.is_empty() || self.todo.is_empty() {
            return None;
        }
        let mut able = Vec::with_capacity(free.len());
        let are_met = |needs: &_| free.iter().any(|worker| worker.offers.has(needs));
        self.todo.with_needs_met(are_met).find_map(|(name, Queued { terms, .. })| {
            able.clear();
            able.extend(free.iter().filter(|worker| worker.offers.has(&terms.needs)).copied());
            let id = decoded_name(name);
            let (needs, prefers) = (&terms.needs, &terms.prefers);
            let waiting = WaitingTask { id: &id, priority: terms.priority, needs, prefers };
            let task = || name.to_owned();
            match self.turns.choose(&waiting, &able) {
                Ok(chosen) => {
                    Some(Choice::Worker { worker: chosen?.name.to_owned(), task: task() })
                }
                Err(PolicyPanicked) => Some(Choice::Panicked { task: task() }),
            }
        })
    }

    /// Records the outcome of a step.
    pub(super) fn record_outcome(&mut self, step: MasterStep, outcome: StepOutcome, now: Instant) {
        match (step, outcome) {
            (MasterStep::Assign { task, worker, .. }, StepOutcome::Applied) => {
                self.unreported.push_back((now + MAX_UNREPORTED, worker, task));
            }
            // The worker keeps its task.
            (MasterStep::TakeBack { .. }, StepOutcome::OtherWorker)
            | (MasterStep::Assign { .. }, StepOutcome::Deposed)
            | (MasterStep::Remove { .. } | MasterStep::Expire { .. }, _) => {}
            (
                MasterStep::Assign { task, worker, queued, .. },
                StepOutcome::OtherWorker | StepOutcome::NotNow,
            ) => {
                self.undo_assignment(&worker, &task);
                if outcome == StepOutcome::OtherWorker {
                    self.remove_worker(&worker);
                }
                if !self.knows(&task) {
                    self.todo.insert(&task, queued);
                }
            }
            (MasterStep::Assign { task, worker, queued, .. }, StepOutcome::SetAside) => {
                self.undo_assignment(&worker, &task);
                if !self.knows(&task) {
                    self.todo.insert_resting(&task, queued, now + ASIDE);
                }
            }
            (MasterStep::Assign { task, worker, .. }, _) => self.undo_assignment(&worker, &task),
            (MasterStep::TakeBack { task, worker, .. }, StepOutcome::SetAside) => {
                self.aside.insert((now + ASIDE, worker, task));
            }
            (MasterStep::TakeBack { task, worker, .. }, _) => {
                self.remove_assignment(&worker, &task);
            }
        }
    }

    /// Returns the workers that have room.
    fn free_workers(&self) -> impl Iterator<Item = FreeWorker<'_>> {
        let taking = self.workers.iter().filter(|(_, worker)| !worker.drained);
        let loaded = taking.map(|(name, worker)| {
            let load = self.assigned.get(name).map_or(0, BTreeMap::len);
            FreeWorker { name, offers: &worker.offers, load }
        });
        loaded.filter(FreeWorker::has_room)
    }
}

/// The waiting tasks, by the properties that they need, then by their priority, then by the time
/// since which they wait. So tasks that need a missing worker block no other task, whatever their
/// number.
#[derive(Debug, Default)]
pub(super) struct TodoQueue {
    ready: BTreeMap<Needs, BTreeMap<TaskPlace, Queued>>,
    /// Tasks that are not assigned before a time.
    resting: BTreeSet<(Instant, String)>,
    tasks: BTreeMap<String, WaitPlace>,
}

/// The properties that a worker must have.
type Needs = BTreeMap<String, String>;

type TaskPlace = (i32, Revision, String);

/// The position of a waiting task.
#[derive(Debug)]
enum WaitPlace {
    Ready(Needs, TaskPlace),
    Resting(Instant, Queued),
}

impl TodoQueue {
    pub(super) fn insert(&mut self, task: &str, queued: Queued) {
        self.remove(task);
        let place = (queued.terms.priority, queued.since, task.to_owned());
        let needs = queued.terms.needs.clone();
        self.tasks.insert(task.to_owned(), WaitPlace::Ready(needs.clone(), place.clone()));
        self.ready.entry(needs).or_default().insert(place, queued);
    }

    /// Adds a task that is not assigned before this time.
    pub(super) fn insert_resting(&mut self, task: &str, queued: Queued, until: Instant) {
        self.remove(task);
        self.resting.insert((until, task.to_owned()));
        self.tasks.insert(task.to_owned(), WaitPlace::Resting(until, queued));
    }

    /// Makes the tasks ready whose pause is over.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some((_, task)) = self.resting.first().filter(|(until, _)| *until <= now).cloned()
        {
            if let Some(queued) = self.remove(&task) {
                self.insert(&task, queued);
            }
        }
    }

    /// The end of the next pause.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.resting.first().map(|(until, _)| *until)
    }

    pub(super) fn remove(&mut self, task: &str) -> Option<Queued> {
        match self.tasks.remove(task)? {
            WaitPlace::Resting(until, queued) => {
                self.resting.remove(&(until, task.to_owned()));
                Some(queued)
            }
            WaitPlace::Ready(needs, place) => {
                let equal = self.ready.get_mut(&needs)?;
                let queued = equal.remove(&place);
                if equal.is_empty() {
                    self.ready.remove(&needs);
                }
                queued
            }
        }
    }

    /// The revision since which a task waits.
    pub(super) fn since(&self, task: &str) -> Option<Revision> {
        self.tasks.get(task).map(|place| match place {
            WaitPlace::Ready(_, place) => place.1,
            WaitPlace::Resting(_, queued) => queued.since,
        })
    }

    pub(super) fn contains(&self, task: &str) -> bool {
        self.tasks.contains_key(task)
    }

    /// Returns true if no task is ready.
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Returns the ready tasks whose needs are met, in their order.
    pub(super) fn with_needs_met(
        &self,
        are_met: impl Fn(&Needs) -> bool,
    ) -> impl Iterator<Item = (&str, &Queued)> {
        let met = self.ready.iter().filter(|(needs, _)| are_met(needs));
        let mut equals: Vec<_> = met.map(|(_, tasks)| tasks.iter()).collect();
        // The first task of each group of equal needs.
        let mut firsts = BTreeMap::new();
        for (kind, tasks) in equals.iter_mut().enumerate() {
            firsts.extend(tasks.next().map(|(place, queued)| (place, (queued, kind))));
        }
        std::iter::from_fn(move || {
            let (place, (queued, kind)) = firsts.pop_first()?;
            let next = equals.get_mut(kind).and_then(Iterator::next);
            firsts.extend(next.map(|(place, queued)| (place, (queued, kind))));
            Some((place.2.as_str(), queued))
        })
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
