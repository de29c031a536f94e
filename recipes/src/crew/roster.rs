//! [`CrewRoster`]: what a master knows of its crew, and what it does next. Pure.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use synod_core::store::{Node, Version};
use synod_core::value::decode;

use crate::crew::crew_policy::{CrewPolicy, CrewTurns};
use crate::crew::crew_switch::CrewSwitch;
use crate::crew::crew_task::id_of;
use crate::crew::free_worker::FreeWorker;
use crate::crew::new_task::TaskTerms;
use crate::crew::step::{MasterStep, Queued, StepBasis, StepOutcome};
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
}

/// A task that a worker has.
#[derive(Clone, Debug)]
struct Assigned {
    /// Its terms as they are stored.
    stored: Bytes,
    /// Whether that was reported. What is only expected may come and go unseen.
    is_seen: bool,
}

impl CrewRoster {
    pub(super) fn new(policy: CrewPolicy) -> Self {
        Self { turns: CrewTurns::new(policy), ..Self::default() }
    }

    /// A task waits.
    pub(super) fn waits(&mut self, node: &Node) {
        let (Ok(terms), Some(stat)) = (decode::<TaskTerms>(&node.path, &node.data), node.stat)
        else {
            return;
        };
        let task = node.path.name();
        self.todo.leaves(task);
        self.has_no_more(task);
        let (version, since, stored) = (stat.version, stat.created, node.data.clone());
        self.todo.enters(task, Queued { version, since, terms, stored });
    }

    /// A task does not wait any more. A later incarnation of it may.
    pub(super) fn waits_no_more(&mut self, node: &Node) {
        let created = node.stat.map(|stat| stat.created);
        if created.is_some() && self.todo.since(node.path.name()) == created {
            self.todo.leaves(node.path.name());
        }
    }

    /// A worker is there.
    pub(super) fn is_there(&mut self, node: &Node) {
        if let Some(worker) = KnownWorker::of(node) {
            self.workers.insert(node.path.name().to_owned(), worker);
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
        let there = &self.workers;
        let gone: Vec<_> =
            self.assigned.keys().filter(|worker| !there.contains_key(*worker)).cloned().collect();
        for worker in gone {
            self.orphans_of(&worker);
        }
    }

    /// What to do next. It is taken for done until its outcome is known.
    pub(super) fn next(&mut self) -> Option<MasterStep> {
        while let Some((worker, task)) = self.orphans.pop_front() {
            if self.workers.contains_key(&worker) {
                continue;
            }
            if let Some(assigned) = self.assigned.get(&worker).and_then(|tasks| tasks.get(&task)) {
                return Some(MasterStep::TakeBack { task, terms: assigned.stored.clone(), worker });
            }
        }
        self.next_assignment()
    }

    /// The first task that waits for which there is a worker, and the one of these that the policy chooses.
    fn next_assignment(&mut self) -> Option<MasterStep> {
        let switch = self.switch?;
        let (task, worker) = self.first_choice()?;
        let basis = StepBasis { worker: self.workers.get(&worker)?.version, switch };
        self.turns.chose(&worker);
        let queued = self.todo.leaves(&task)?;
        let assigned = Assigned { stored: queued.stored.clone(), is_seen: false };
        self.will_have(&worker, &task, assigned);
        Some(MasterStep::Assign { task, worker, queued, basis })
    }

    /// The first task that waits for which the policy chooses a worker, and that worker.
    fn first_choice(&self) -> Option<(String, String)> {
        let free: Vec<_> = self.free().collect();
        if free.is_empty() || self.todo.is_empty() {
            return None;
        }
        let mut able = Vec::with_capacity(free.len());
        self.todo.iter().find_map(|(name, Queued { terms, .. })| {
            able.clear();
            able.extend(free.iter().filter(|worker| worker.offers.has(&terms.needs)).copied());
            if able.is_empty() {
                return None;
            }
            let id = id_of(name);
            let (needs, prefers) = (&terms.needs, &terms.prefers);
            let task = WaitingTask { id: &id, priority: terms.priority, needs, prefers };
            let chosen = self.turns.choose(&task, &able)?;
            Some((name.to_owned(), chosen.name.to_owned()))
        })
    }

    /// Takes note of what came of a step.
    pub(super) fn came_to(&mut self, step: MasterStep, made: StepOutcome) {
        match (step, made) {
            // It keeps its task.
            (MasterStep::TakeBack { .. }, StepOutcome::OtherWorker)
            | (MasterStep::Assign { .. }, StepOutcome::Applied | StepOutcome::Deposed)
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
            (MasterStep::Assign { task, worker, .. }, StepOutcome::Elsewhere) => {
                self.is_refused(&worker, &task);
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
mod tests {
    use std::num::NonZeroU32;

    use synod_core::path::Path;
    use synod_core::store::{Revision, SessionId, Stat};
    use synod_core::value::encode;

    use super::*;
    use crate::crew::crew_worker::CrewWorker;
    use crate::crew::new_task::NewTask;
    use crate::crew::worker_record::WorkerRecord;

    fn node(path: &str, created: u64, owner: Option<u64>, data: Bytes) -> Node {
        let (created, written) = (Revision::new(created), Revision::new(created + 1));
        let stat = Stat::new(created, written, Version::new(0), owner.map(SessionId::new));
        Node::new(Path::new(path).expect("valid")).with(data, stat)
    }

    fn todo(task: &str, created: u64, new: &NewTask) -> Node {
        let path = Path::new(&format!("/todo/{task}")).expect("valid");
        let data = encode(&path, &new.terms).expect("JSON");
        node(path.as_str(), created, None, data)
    }

    fn worker(name: &str, offers: &CrewWorker) -> Node {
        let path = Path::new(&format!("/workers/{name}")).expect("valid");
        node(path.as_str(), 1, Some(7), record(offers, false))
    }

    fn record(offers: &CrewWorker, drained: bool) -> Bytes {
        encode(&Path::root(), &WorkerRecord::new(offers, drained)).expect("JSON")
    }

    fn switched(paused: bool) -> Node {
        let data = encode(&Path::root(), &CrewSwitch { paused }).expect("JSON");
        node("/switch", 1, None, data)
    }

    /// Of a crew that is not paused.
    fn roster() -> CrewRoster {
        let mut roster = CrewRoster::default();
        roster.is_switched(&switched(false));
        roster
    }

    fn two() -> CrewWorker {
        CrewWorker::new().capacity(NonZeroU32::new(2).expect("not zero"))
    }

    /// The tasks that are assigned next, each with its worker.
    fn assigns(roster: &mut CrewRoster) -> Vec<(String, String)> {
        let steps = std::iter::from_fn(|| roster.next());
        let assigned = steps.map(|step| match step {
            MasterStep::Assign { task, worker, .. } => (task, worker),
            MasterStep::TakeBack { task, worker, .. } => (format!("-{task}"), worker),
            MasterStep::Expire { .. } | MasterStep::Remove { .. } => {
                unreachable!("a roster ends nothing")
            }
        });
        assigned.collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(task, worker): &(&str, &str)| ((*task).to_owned(), (*worker).to_owned());
        expected.iter().map(owned).collect()
    }

    #[test]
    fn the_least_loaded_worker_gets_the_first_task_up_to_its_capacity() {
        let mut roster = roster();
        for (place, task) in (5..).zip(["e", "d", "c", "b"]) {
            roster.waits(&todo(task, place, &NewTask::new("")));
        }
        roster.waits(&todo("urgent", 9, &NewTask::new("").priority(1)));
        roster.waits(&node("/todo/other", 1, None, Bytes::from_static(b"not ours")));
        assert_eq!(assigns(&mut roster), [], "there is no worker");
        roster.is_there(&worker("ann", &two()));
        roster.is_there(&worker("bob", &CrewWorker::new()));
        // A node that no session owns is no worker.
        roster.is_there(&node("/workers/cid", 1, None, record(&two(), false)));

        let expected = [("urgent", "ann"), ("e", "bob"), ("d", "ann")];
        assert_eq!(assigns(&mut roster), pairs(&expected));
        roster.gave_up("bob", "d");
        assert_eq!(assigns(&mut roster), [], "it was not his");
        roster.gave_up("bob", "e");
        assert_eq!(assigns(&mut roster), pairs(&[("c", "bob")]));
    }

    #[test]
    fn a_task_waits_for_a_worker_that_has_what_it_needs() {
        let mut roster = roster();
        roster.waits(&todo("a", 1, &NewTask::new("").needs("gpu", "yes")));
        roster.waits(&todo("b", 2, &NewTask::new("")));
        roster.is_there(&worker("ann", &two().property("gpu", "no")));
        assert_eq!(assigns(&mut roster), pairs(&[("b", "ann")]));
        roster.is_there(&worker("bob", &two().property("gpu", "yes").property("disk", "big")));
        assert_eq!(assigns(&mut roster), pairs(&[("a", "bob")]));
    }

    #[test]
    fn an_assignment_that_is_seen_stays_when_its_repetition_is_refused() {
        for outcome in [StepOutcome::Elsewhere, StepOutcome::OtherWorker] {
            let mut roster = roster();
            roster.is_there(&worker("ann", &two()));
            roster.waits(&todo("a", 1, &NewTask::new("")));
            let step = roster.next().expect("it is assigned");
            roster.has("ann", "a", Bytes::new());

            roster.came_to(step, outcome);

            roster.is_gone("ann");
            let taken_back = pairs(&[("-a", "ann")]);
            assert!(assigns(&mut roster).ends_with(&taken_back), "{outcome:?}");
        }
    }

    #[test]
    fn a_drained_worker_gets_nothing_and_keeps_what_it_has() {
        let mut roster = roster();
        roster.is_there(&worker("ann", &two()));
        roster.waits(&todo("a", 1, &NewTask::new("")));
        assert_eq!(assigns(&mut roster), pairs(&[("a", "ann")]));
        roster.is_there(&node("/workers/ann", 1, Some(7), record(&two(), true)));
        roster.waits(&todo("b", 2, &NewTask::new("")));
        assert_eq!(assigns(&mut roster), []);
        assert_eq!(roster.holder("a"), Some("ann"));
        roster.is_there(&worker("bob", &two()));
        assert_eq!(assigns(&mut roster), pairs(&[("b", "bob")]));
    }

    #[test]
    fn a_paused_crew_assigns_nothing_and_takes_back_what_the_lost_had() {
        let mut roster = roster();
        roster.is_there(&worker("ann", &two()));
        roster.waits(&todo("a", 1, &NewTask::new("")));
        assert_eq!(assigns(&mut roster), pairs(&[("a", "ann")]));
        roster.is_switched(&switched(true));
        roster.waits(&todo("b", 2, &NewTask::new("")));
        roster.is_there(&worker("bob", &two()));
        roster.is_gone("ann");
        assert_eq!(assigns(&mut roster), pairs(&[("-a", "ann")]));
        roster.is_switched(&switched(false));
        assert_eq!(assigns(&mut roster), pairs(&[("b", "bob")]));
    }

    #[test]
    fn the_tasks_of_a_worker_that_is_gone_are_taken_back_once() {
        let mut roster = roster();
        roster.is_there(&worker("ann", &two()));
        roster.waits(&todo("a", 1, &NewTask::new("")));
        assert_eq!(assigns(&mut roster), pairs(&[("a", "ann")]));
        roster.is_gone("ann");
        assert_eq!(assigns(&mut roster), pairs(&[("-a", "ann")]));
        assert_eq!(assigns(&mut roster), []);

        // It waits again, in another incarnation. The end of the first one is reported late.
        roster.waits(&todo("a", 2, &NewTask::new("")));
        roster.waits_no_more(&todo("a", 1, &NewTask::new("")));
        roster.is_there(&worker("bob", &two()));
        assert_eq!(assigns(&mut roster), pairs(&[("a", "bob")]));
        roster.has("cid", "b", Bytes::new());
        assert_eq!(assigns(&mut roster), pairs(&[("-b", "cid")]), "of a worker that is not known");

        roster.forget_workers();
        roster.find_orphans();
        assert_eq!(assigns(&mut roster).len(), 2);
        assert_eq!(roster.holder("a"), Some("bob"));
    }
}
