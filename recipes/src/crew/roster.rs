//! [`CrewRoster`]: what a master knows of its crew, and what it does next. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use synod_core::clock::Instant;
use synod_core::store::{Node, Version};
use synod_core::value::decode;

use crate::crew::crew_policy::{CrewPolicy, CrewTurns, PolicyPanicked};
use crate::crew::crew_switch::CrewSwitch;
use crate::crew::crew_task::id_of;
use crate::crew::free_worker::FreeWorker;
use crate::crew::step::{AFTER_PANIC, ASIDE, MasterStep, Queued, StepBasis, StepOutcome};
use crate::crew::task_terms::TaskTerms;
use crate::crew::todo_queue::TodoQueue;
use crate::crew::waiting_task::WaitingTask;
use crate::crew::worker_record::KnownWorker;
use crate::mutant::mistake;

/// What a master knows. What it has just done is in it before its mirrors show that.
#[derive(Debug, Default)]
pub(super) struct CrewRoster {
    todo: TodoQueue,
    workers: BTreeMap<String, KnownWorker>,
    turns: CrewTurns,
    /// The version in which the switch allows assignments: `None` while the crew is paused.
    switch: Option<Version>,
    /// The tasks of each worker.
    assigned: BTreeMap<String, BTreeMap<String, Assigned>>,
    /// The worker that has a task.
    holders: BTreeMap<String, String>,
    /// Tasks of workers that are gone.
    orphans: VecDeque<(String, String)>,
    /// Assignments that were made and not reported yet: the time, the worker and the task.
    unseen: VecDeque<(Instant, String, String)>,
    /// Orphans that the store could not take back, until they are tried again.
    aside: BTreeSet<(Instant, String, String)>,
}

/// The result of a look at the tasks that wait.
enum Choice {
    /// The task goes to the worker.
    Worker { task: String, worker: String },
    /// The policy panicked for the task.
    Panicked { task: String },
}

/// A task that a worker has.
#[derive(Clone, Debug)]
struct Assigned {
    /// Its terms as they are stored.
    stored: Bytes,
    /// Whether that was reported. What is only expected may come and go unseen.
    is_seen: bool,
}

/// The time within which an assignment that was made is reported.
const UNSEEN: Duration = Duration::from_secs(5);

/// Longer than any master leads.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

impl CrewRoster {
    pub(super) fn new(policy: CrewPolicy) -> Self {
        Self { turns: CrewTurns::new(policy), ..Self::default() }
    }

    /// A task waits, and is not assigned before this pause is over.
    pub(super) fn waits(
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
        self.has_no_more(task);
        let (version, since, stored) = (stat.version, stat.created, node.data.clone());
        let queued = Queued { version, since, terms, stored };
        if pause.is_zero() {
            self.todo.enters(task, queued);
        } else {
            // A pause that no clock can show is longer than any master leads.
            self.todo.rests(task, queued, now.checked_add(pause).unwrap_or(now + FAR));
        }
    }

    /// A task does not wait any more. A later incarnation of it may.
    pub(super) fn waits_no_more(&mut self, node: &Node) {
        let created = node.stat.map(|stat| stat.created);
        if created.is_some() && self.todo.since(node.path.name()) == created {
            self.todo.leaves(node.path.name());
        }
    }

    /// A worker is there, or a node that is none.
    pub(super) fn is_there(&mut self, node: &Node) {
        let name = node.path.name();
        match KnownWorker::of(node) {
            Some(worker) => drop(self.workers.insert(name.to_owned(), worker)),
            None => drop(self.workers.remove(name)),
        }
    }

    /// The crew was paused, or goes on.
    pub(super) fn is_switched(&mut self, node: &Node) {
        let paused = decode(&node.path, &node.data).is_ok_and(|CrewSwitch { paused }| paused);
        mistake!(PauseIgnored: let paused = false);
        self.switch = node.stat.filter(|_| !paused).map(|stat| stat.version);
    }

    /// Forgets the switch: it is reported anew.
    pub(super) fn forget_switch(&mut self) {
        self.switch = None;
    }

    /// A worker is gone, for good: the name of a worker is used once.
    pub(super) fn is_gone(&mut self, worker: &str) {
        self.workers.remove(worker);
        self.orphans_of(worker);
    }

    fn orphans_of(&mut self, worker: &str) {
        let tasks = self.assigned.get(worker).into_iter().flat_map(BTreeMap::keys);
        self.orphans.extend(tasks.map(|task| (worker.to_owned(), task.clone())));
    }

    /// A worker has a task.
    pub(super) fn has(&mut self, worker: &str, task: &str, stored: Bytes) {
        self.will_have(worker, task, Assigned { stored, is_seen: true });
        if !self.workers.contains_key(worker) {
            self.orphans.push_back((worker.to_owned(), task.to_owned()));
        }
    }

    fn will_have(&mut self, worker: &str, task: &str, assigned: Assigned) {
        self.has_no_more(task);
        self.holders.insert(task.to_owned(), worker.to_owned());
        let tasks = self.assigned.entry(worker.to_owned()).or_default();
        tasks.insert(task.to_owned(), assigned);
    }

    /// A task is over. Its worker may still have it, if it was cancelled.
    pub(super) fn is_over(&mut self, task: &str) {
        if !self.is_seen(task) {
            self.has_no_more(task);
        }
    }

    /// Whether the store has shown the worker of a task.
    fn is_seen(&self, task: &str) -> bool {
        let worker = self.holders.get(task).and_then(|worker| self.assigned.get(worker));
        worker.and_then(|tasks| tasks.get(task)).is_some_and(|assigned| assigned.is_seen)
    }

    /// An assignment was refused. If the store has shown it, the request was repeated, and the first one was applied.
    fn is_refused(&mut self, worker: &str, task: &str) {
        if !self.is_seen(task) {
            self.gave_up(worker, task);
        }
    }

    /// A worker does not have a task any more.
    pub(super) fn gave_up(&mut self, worker: &str, task: &str) {
        if self.holder(task) == Some(worker) {
            self.has_no_more(task);
        }
    }

    /// No worker has a task any more.
    pub(super) fn has_no_more(&mut self, task: &str) {
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

    /// Whether a task waits, or a worker has it, as far as this master knows.
    pub(super) fn knows(&self, task: &str) -> bool {
        self.todo.has(task) || self.holders.contains_key(task)
    }

    /// A task is about to end. It is not assigned any more. Returns whether it waited.
    pub(super) fn ends(&mut self, task: &str) -> bool {
        self.todo.leaves(task).is_some()
    }

    /// Forgets the tasks that wait: they are reported anew.
    pub(super) fn forget_queue(&mut self) {
        self.todo.clear();
    }

    /// Forgets the workers: they are reported anew, and then [`CrewRoster::find_orphans`] is called.
    pub(super) fn forget_workers(&mut self) {
        self.workers.clear();
    }

    /// Forgets the assignments: they are reported anew.
    pub(super) fn forget_assigned(&mut self) {
        self.assigned.clear();
        self.holders.clear();
    }

    /// Finds all tasks of workers that are gone.
    pub(super) fn find_orphans(&mut self) {
        self.orphans.clear();
        self.aside.clear();
        let there = &self.workers;
        let gone: Vec<_> =
            self.assigned.keys().filter(|worker| !there.contains_key(*worker)).cloned().collect();
        for worker in gone {
            self.orphans_of(&worker);
        }
    }

    /// When time alone brings the next step.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let aside = self.aside.first().map(|(until, ..)| *until);
        let unseen = self.unseen.front().map(|(until, ..)| *until);
        self.todo.next_wake().into_iter().chain(aside).chain(unseen).min()
    }

    /// What to do next. It is taken for done until its outcome is known.
    pub(super) fn next(&mut self, now: Instant) -> Option<MasterStep> {
        self.todo.wakes(now);
        self.forget_unseen(now);
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

    /// Forgets assignments that were made and, some time later, are not reported: they have ended, and left neither a finished task nor one
    /// that waits, as they were of no task. If the report is only late, the worker gets more than it has room for, which waits there.
    fn forget_unseen(&mut self, now: Instant) {
        while let Some((until, worker, task)) = self.unseen.front() {
            let is_expected = self.holder(task) == Some(worker) && !self.is_seen(task);
            if is_expected && *until > now {
                return;
            }
            if let Some((_, _, task)) = self.unseen.pop_front().filter(|_| is_expected) {
                self.has_no_more(&task);
            }
        }
    }

    /// The first task that waits for which there is a worker, and the one of these that the policy chooses.
    fn next_assignment(&mut self, now: Instant) -> Option<MasterStep> {
        let switch = self.switch?;
        let (task, worker) = loop {
            match self.first_choice()? {
                Choice::Worker { task, worker } => break (task, worker),
                Choice::Panicked { task } => {
                    tracing::error!(task, "the policy of a crew panicked; the task is set aside");
                    let queued = self.todo.leaves(&task)?;
                    self.todo.rests(&task, queued, now + AFTER_PANIC);
                }
            }
        };
        let basis = StepBasis { worker: self.workers.get(&worker)?.version, switch };
        self.turns.chose(&worker);
        let queued = self.todo.leaves(&task)?;
        let assigned = Assigned { stored: queued.stored.clone(), is_seen: false };
        self.will_have(&worker, &task, assigned);
        Some(MasterStep::Assign { task, worker, queued, basis })
    }

    /// The first task that waits for which the policy chooses a worker, and that worker.
    fn first_choice(&self) -> Option<Choice> {
        let free: Vec<_> = self.free().collect();
        if free.is_empty() || self.todo.is_empty() {
            return None;
        }
        let mut able = Vec::with_capacity(free.len());
        let are_met = |needs: &_| free.iter().any(|worker| worker.offers.has(needs));
        self.todo.with_needs_met(are_met).find_map(|(name, Queued { terms, .. })| {
            able.clear();
            able.extend(free.iter().filter(|worker| worker.offers.has(&terms.needs)).copied());
            let id = id_of(name);
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

    /// Takes note of what came of a step.
    pub(super) fn came_to(&mut self, step: MasterStep, made: StepOutcome, now: Instant) {
        match (step, made) {
            (MasterStep::Assign { task, worker, .. }, StepOutcome::Applied) => {
                self.unseen.push_back((now + UNSEEN, worker, task));
            }
            // It keeps its task.
            (MasterStep::TakeBack { .. }, StepOutcome::OtherWorker)
            | (MasterStep::Assign { .. }, StepOutcome::Deposed)
            | (MasterStep::Remove { .. } | MasterStep::Expire { .. }, _) => {}
            (
                MasterStep::Assign { task, worker, queued, .. },
                StepOutcome::OtherWorker | StepOutcome::NotNow,
            ) => {
                self.is_refused(&worker, &task);
                if made == StepOutcome::OtherWorker {
                    self.is_gone(&worker);
                }
                if !self.knows(&task) {
                    self.todo.enters(&task, queued);
                }
            }
            (MasterStep::Assign { task, worker, queued, .. }, StepOutcome::SetAside) => {
                self.is_refused(&worker, &task);
                if !self.knows(&task) {
                    self.todo.rests(&task, queued, now + ASIDE);
                }
            }
            (MasterStep::Assign { task, worker, .. }, _) => self.is_refused(&worker, &task),
            (MasterStep::TakeBack { task, worker, .. }, StepOutcome::SetAside) => {
                self.aside.insert((now + ASIDE, worker, task));
            }
            (MasterStep::TakeBack { task, worker, .. }, _) => self.gave_up(&worker, &task),
        }
    }

    /// The workers that have room.
    fn free(&self) -> impl Iterator<Item = FreeWorker<'_>> {
        let taking = self.workers.iter().filter(|(_, worker)| !worker.drained);
        let loaded = taking.map(|(name, worker)| {
            let load = self.assigned.get(name).map_or(0, BTreeMap::len);
            FreeWorker { name, offers: &worker.offers, load }
        });
        loaded.filter(FreeWorker::has_room)
    }
}

#[cfg(test)]
mod tests;
