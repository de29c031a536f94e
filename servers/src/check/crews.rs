//! Checks the tasks of crews: each has one accepted result, of the worker that had the task, all
//! submitters saw that result, and no node of the task is left. L-MW-1 to 4, 7 and 9.
//!
//! The tasks of these crews are not cancelled, and are not submitted again after they were removed.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::record::{Breach, Record};
use crate::clients::deed::{Deed, Effect};
use crate::clients::entry::{Fact, Kind};
use synod_testkit::history::Value;

/// Returns every task that was lost, had more than one result, or made a forbidden step.
pub fn check(record: &Record) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut over = BTreeMap::new();
    for crew in &record.crews {
        let mut steps = Steps { crew, ..Steps::default() };
        let below = |fact: &&Fact| fact.path.strip_prefix(crew.as_str()).is_some();
        let facts: Vec<&Fact> = record.facts.iter().filter(below).collect();
        for together in facts.chunk_by(|a, b| a.revision == b.revision) {
            steps.learn(together);
        }
        found.append(&mut steps.found);
        let left = steps.nodes.iter();
        found.extend(left.map(|node| Breach::new("L-MW-9", format!("{crew}/{node} is left"))));
        over.extend(steps.over);
    }
    if !record.crews.is_empty() {
        found.extend(check_results(record, &over));
    }
    found
}

/// The state of the tasks of one crew, step by step.
#[derive(Debug, Default)]
struct Steps<'a> {
    crew: &'a str,
    /// The current workers.
    workers: BTreeSet<&'a str>,
    /// The current nodes of tasks, by their paths below the crew.
    nodes: BTreeSet<&'a str>,
    /// The workers that have a task.
    had: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// The number of ends of each task.
    over: BTreeMap<String, usize>,
    found: Vec<Breach>,
}

/// A node of a crew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node<'a> {
    Worker(&'a str),
    Task(&'a str),
    Todo(&'a str),
    Done(&'a str),
    Assigned(&'a str, &'a str),
    Other,
}

impl<'a> Node<'a> {
    /// Returns the node of this path below the crew.
    fn of(path: &'a str) -> Self {
        let parts: Vec<&str> = path.split('/').collect();
        match parts[..] {
            ["workers", worker] => Self::Worker(worker),
            ["tasks", task] => Self::Task(task),
            ["todo", task] => Self::Todo(task),
            ["done", task] => Self::Done(task),
            ["assigned", worker, task] => Self::Assigned(worker, task),
            _ => Self::Other,
        }
    }
}

impl<'a> Steps<'a> {
    /// Applies the writes of one transaction.
    fn learn(&mut self, facts: &[&'a Fact]) {
        let changes: Vec<(Kind, Node<'a>)> =
            facts.iter().map(|fact| (fact.kind, Node::of(self.below(&fact.path)))).collect();
        for (kind, node) in &changes {
            if let Some((law, why)) = self.judge(*kind, *node, &changes) {
                self.found.push(Breach::new(law, format!("{why}: {facts:?}")));
            }
        }
        for fact in facts {
            self.apply(fact);
        }
    }

    fn below(&self, path: &'a str) -> &'a str {
        path.strip_prefix(self.crew).map_or("", |below| below.trim_start_matches('/'))
    }

    /// Returns the law that a change breaks, given all writes of its transaction.
    fn judge(
        &self,
        kind: Kind,
        node: Node<'a>,
        changes: &[(Kind, Node<'a>)],
    ) -> Option<(&'static str, &'static str)> {
        let is_made = |node| changes.contains(&(Kind::Created, node));
        let is_gone = |node| changes.contains(&(Kind::Deleted, node));
        let assigns = |wanted: Kind, task: &str| {
            let mut all = changes.iter();
            all.any(|(kind, it)| {
                *kind == wanted && matches!(it, Node::Assigned(_, of) if *of == task)
            })
        };
        match (kind, node) {
            // The end of an attempt.
            (Kind::Updated, Node::Task(task)) => {
                let moves = is_made(Node::Done(task)) || is_made(Node::Todo(task));
                (!moves || !assigns(Kind::Deleted, task))
                    .then_some(("L-MW-2", "a result of a worker that does not have the task"))
            }
            (Kind::Created, Node::Done(task)) if !assigns(Kind::Deleted, task) => {
                Some(("L-MW-2", "a task ends that no worker has"))
            }
            (Kind::Created, Node::Done(task)) if self.over.contains_key(task) => {
                Some(("L-MW-1", "a task ends twice"))
            }
            (Kind::Deleted, Node::Todo(task)) if !assigns(Kind::Created, task) => {
                Some(("L-MW-4", "a task waits no longer, and no worker has it"))
            }
            (Kind::Created, Node::Assigned(_, task)) if !is_gone(Node::Todo(task)) => {
                Some(("L-MW-4", "a task is assigned that does not wait"))
            }
            (Kind::Created, Node::Assigned(_, task)) if self.is_had(task) => {
                Some(("L-MW-3", "a task is assigned that a worker has"))
            }
            (Kind::Deleted, Node::Assigned(worker, task)) => {
                let reports = changes.contains(&(Kind::Updated, Node::Task(task)));
                let is_taken = !reports && is_made(Node::Todo(task));
                (is_taken && self.workers.contains(worker))
                    .then_some(("L-MW-3", "a task is taken from a worker that lives"))
            }
            _ => None,
        }
    }

    fn is_had(&self, task: &str) -> bool {
        self.had.get(task).is_some_and(|workers| !workers.is_empty())
    }

    fn apply(&mut self, fact: &'a Fact) {
        let below = self.below(&fact.path);
        let node = Node::of(below);
        match (fact.kind, node) {
            (Kind::Updated, _) | (_, Node::Other) => {}
            (Kind::Created, Node::Worker(worker)) => drop(self.workers.insert(worker)),
            (Kind::Deleted, Node::Worker(worker)) => drop(self.workers.remove(worker)),
            (Kind::Created, _) => drop(self.nodes.insert(below)),
            (Kind::Deleted, _) => drop(self.nodes.remove(below)),
        }
        match (fact.kind, node) {
            (Kind::Created, Node::Done(task)) => {
                *self.over.entry(task.to_owned()).or_default() += 1;
            }
            (Kind::Created, Node::Assigned(worker, task)) => {
                self.had.entry(task).or_default().insert(worker);
            }
            (Kind::Deleted, Node::Assigned(worker, task)) => {
                self.had.entry(task).or_default().remove(worker);
            }
            _ => {}
        }
    }
}

/// Checks that each submitted task has ended, and that all waiters saw the same result of it.
fn check_results(record: &Record, over: &BTreeMap<String, usize>) -> Vec<Breach> {
    let mut runs: BTreeSet<(Value, Value)> = BTreeSet::new();
    let mut submitted: BTreeSet<Value> = BTreeSet::new();
    let mut saw: BTreeMap<Value, BTreeSet<Option<Value>>> = BTreeMap::new();
    for (_, _, deed) in &record.deeds {
        match *deed {
            Deed::Runs { task, run } => drop(runs.insert((task, run))),
            Deed::Submitted { task, effect: Effect::Done } => drop(submitted.insert(task)),
            Deed::Saw { task, run } => drop(saw.entry(task).or_default().insert(run)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for task in submitted.iter().filter(|task| !over.contains_key(&task.to_string())) {
        found.push(Breach::new("L-MW-1", format!("{task} was submitted, and has no result")));
    }
    for (task, seen) in saw {
        if seen.len() > 1 {
            found.push(Breach::new("L-MW-1", format!("{task} has the results {seen:?}")));
        }
        let is_of_a_run = |run: &Option<Value>| run.is_some_and(|run| runs.contains(&(task, run)));
        if !seen.iter().all(is_of_a_run) {
            let what = format!("{task} has the result {seen:?}, which no attempt had");
            found.push(Breach::new("L-MW-7", what));
        }
    }
    found
}

#[cfg(test)]
mod tests;
