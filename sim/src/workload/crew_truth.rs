//! The state of a crew in the store after each commit, and the laws that a commit breaks.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::{By, Entry};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use synod_core::path::Path;
use synod_core::store::{Change, Kind};

use crate::findings::Truth;

/// The minimum number of attempts at a task that are kept.
const KEPT: usize = 16;

/// The state of a crew in the store after a commit.
#[derive(Default)]
struct Crewed {
    /// The existing tasks, with `true` for an open task.
    tasks: BTreeMap<String, bool>,
    /// The number of submissions of each name of a task.
    submitted: BTreeMap<String, u64>,
    todo: BTreeSet<String>,
    /// The tasks that have a deadline.
    limited: BTreeSet<String>,
    /// Workers and tasks, with the number of the submission among the tasks of this name.
    assigned: BTreeMap<(String, String), u64>,
    /// The attempts at each task.
    attempts: BTreeMap<String, Attempts>,
    workers: BTreeSet<String>,
    drained: BTreeSet<String>,
    /// The calls of `work` whose worker knows that it is drained.
    drained_shifts: BTreeSet<String>,
    paused: bool,
    /// The tickets of the masters in their order, each with its process.
    masters: Vec<(Path, By)>,
}

/// The attempts at a task, as their node holds them.
#[derive(Default, Deserialize)]
struct Attempts {
    /// The number of earlier attempts.
    #[serde(default)]
    earlier: usize,
    attempts: Vec<Attempt>,
}

/// An attempt at a task, as its node holds it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Attempt {
    worker: String,
    end: Option<Value>,
}

/// The node of a worker.
#[derive(Deserialize)]
struct Worker {
    properties: BTreeMap<String, String>,
    drained: bool,
    confirmed: bool,
}

/// Finds the first commit that breaks this law in the crew of this name.
pub(super) fn judge(truth: &Truth, crew: &str, law: &str) -> Result<(), String> {
    let mut crewed = Crewed::default();
    for (at, entry) in truth.log.iter().enumerate() {
        let mut entry = entry.clone();
        entry.changes.retain(|change| change.path.segments().next() == Some(crew));
        let found = crewed.takes(&entry);
        if let Some((_, what)) = found.into_iter().find(|(broken, _)| *broken == law) {
            return Err(format!("commit {at}, by {:?}: {what}", entry.by));
        }
    }
    Ok(())
}

/// The ends of all tasks of this name in a crew, in the order of their submissions.
pub(super) fn ends(truth: &Truth, crew: &str, task: &str) -> Vec<&'static str> {
    let changes = truth.log.iter().flat_map(|entry| &entry.changes);
    let in_crew = changes.filter(|change| change.path.segments().next() == Some(crew));
    let of_task = in_crew.filter(|change| place(change).as_deref() == Some(&["tasks", task]));
    of_task.filter_map(state).filter(|state| *state != "open").collect()
}

impl Crewed {
    /// Applies a commit, and returns the broken laws.
    fn takes(&mut self, entry: &Entry) -> Vec<(&'static str, String)> {
        let mut broken = self.accepts(entry);
        broken.extend(self.moves(entry));
        broken.extend(self.assigns(entry));
        broken.extend(self.registers(entry));
        broken.extend(self.enters(entry));
        broken.extend(self.gives_up(entry));
        for change in &entry.changes {
            self.learn(change, entry.by);
        }
        for task in self.attempts.keys().filter(|task| !self.tasks.contains_key(*task)) {
            broken.push(("L-MW-9", format!("the attempts at {task} outlast it")));
        }
        for (task, _) in self.tasks.iter().filter(|(_, open)| !**open) {
            if self.todo.contains(task) {
                broken.push(("L-MW-4", format!("{task} is over, and waits")));
            }
        }
        // Each open task is in one place.
        for (task, _) in self.tasks.iter().filter(|(_, open)| **open) {
            let assigned = self
                .assigned
                .keys()
                .filter(|(worker, of)| of == task && self.is_current(worker, task));
            let assigned = assigned.count();
            let places = assigned + usize::from(self.todo.contains(task));
            if places != 1 {
                broken.push(("L-MW-4", format!("{task} is in {places} places")));
            }
        }
        broken
    }

    /// L-MW-1, L-MW-2, L-MW-16: a task ends once, by an existing worker that has it, or by the
    /// master if it has a deadline. L-MW-5, L-MW-9: the master removes it after that, and after its
    /// worker has returned it.
    fn accepts(&self, entry: &Entry) -> Vec<(&'static str, String)> {
        let mut broken = Vec::new();
        for change in &entry.changes {
            let place = place(change);
            let Some(["tasks", task]) = place.as_deref() else { continue };
            let was_open = self.tasks.get(*task).copied();
            let now = state(change);
            match (was_open, now) {
                (Some(false), Some(_)) => {
                    broken.push(("L-MW-1", format!("{task} was over already")));
                }
                (Some(true), None) => {
                    broken.push(("L-MW-1", format!("{task} was removed before its end")));
                }
                _ => {}
            }
            let leader = self.masters.first().map(|(_, by)| *by);
            let is_removed = was_open.is_some() && now.is_none();
            if is_removed && leader != Some(entry.by) {
                broken.push(("L-MW-5", format!("{task} is removed, and {leader:?} leads")));
            }
            let has_it = |(worker, of): &&(String, String)| {
                *of == *task && self.is_current(worker, task) && !is_given_up(entry, worker, task)
            };
            if is_removed && let Some((worker, _)) = self.assigned.keys().find(has_it) {
                broken.push(("L-MW-9", format!("{task} is removed, and {worker} has it")));
            }
            if now == Some("expired") && (leader != Some(entry.by) || !self.limited.contains(*task))
            {
                broken.push((
                    "L-MW-16",
                    format!("{task} expires by another than {leader:?}, or without a deadline"),
                ));
            }
            let is_result = now.is_some_and(|state| state == "done" || state == "failed");
            let is_holder = self.assigned.keys().any(|(worker, of)| {
                *of == *task
                    && self.is_current(worker, task)
                    && self.workers.contains(worker)
                    && is_given_up(entry, worker, task)
            });
            if is_result && !is_holder {
                broken.push(("L-MW-2", format!("{task} ends by a worker that does not have it")));
            }
        }
        broken
    }

    /// L-MW-3, L-MW-5: a master takes from lost workers only, and only while it leads.
    fn moves(&self, entry: &Entry) -> Vec<(&'static str, String)> {
        let mut broken = Vec::new();
        let reports =
            entry.changes.iter().any(|it| matches!(place(it).as_deref(), Some(["tasks", _])));
        for change in &entry.changes {
            let place = place(change);
            let Some(["assigned", worker, task]) = place.as_deref() else { continue };
            let is_taken = change.kind == Kind::Deleted && !reports;
            let is_move =
                change.kind == Kind::Created || is_taken && self.tasks.get(*task) == Some(&true);
            if change.kind == Kind::Deleted && is_move && self.workers.contains(*worker) {
                broken.push(("L-MW-3", format!("{task} is taken from {worker}, which is there")));
            }
            let leader = self.masters.first().map(|(_, by)| *by);
            if is_move && leader != Some(entry.by) {
                broken.push(("L-MW-5", format!("{task} is moved, and {leader:?} leads")));
            }
        }
        broken
    }

    /// L-MW-12, L-MW-13: nothing is assigned to a drained worker, nor while the crew is paused.
    fn assigns(&self, entry: &Entry) -> Vec<(&'static str, String)> {
        let mut broken = Vec::new();
        for change in entry.changes.iter().filter(|it| it.kind == Kind::Created) {
            let place = place(change);
            let Some(["assigned", worker, task]) = place.as_deref() else { continue };
            if self.drained.contains(*worker) {
                broken
                    .push(("L-MW-12", format!("{task} is assigned to {worker}, which is drained")));
            }
            if self.paused {
                broken.push(("L-MW-13", format!("{task} is assigned, and the crew is paused")));
            }
        }
        broken
    }

    /// L-MW-12: a worker that knows that it is drained stays drained in its next session.
    fn registers(&self, entry: &Entry) -> Vec<(&'static str, String)> {
        let made = entry.changes.iter().filter(|it| it.kind == Kind::Created);
        let forgotten = made.filter_map(|change| {
            let place = place(change);
            let Some(["workers", worker]) = place.as_deref() else { return None };
            let shift = record::<Worker>(change).filter(|it| !it.drained)?.shift()?;
            let is_drained = self.drained_shifts.contains(&shift);
            is_drained.then(|| ("L-MW-12", format!("{worker} is drained, and registers otherwise")))
        });
        forgotten.collect()
    }

    /// L-MW-17, L-MW-18: a running attempt belongs to the worker that has the task, and attempts
    /// that have ended stay.
    fn enters(&self, entry: &Entry) -> Vec<(&'static str, String)> {
        let mut broken = Vec::new();
        for change in &entry.changes {
            let place = place(change);
            let Some(["attempts", task]) = place.as_deref() else { continue };
            let Some(now) = record::<Attempts>(change) else { continue };
            let goes_on =
                now.attempts.last().filter(|last| last.end.is_none()).map(|last| &last.worker);
            let key = goes_on.map(|worker| (worker.clone(), (*task).to_owned()));
            if let Some(key) = key
                && !(self.assigned.contains_key(&key) && self.workers.contains(&key.0))
            {
                broken.push(("L-MW-17", format!("{} reports, and does not have {task}", key.0)));
            }
            if self.attempts.get(*task).is_some_and(|before| !now.keeps(before)) {
                broken.push(("L-MW-18", format!("attempts at {task} are forgotten")));
            }
        }
        broken
    }

    /// L-MW-18: a write that takes a task from a worker records this among the attempts at the
    /// task.
    fn gives_up(&self, entry: &Entry) -> Vec<(&'static str, String)> {
        let mut broken = Vec::new();
        for change in entry.changes.iter().filter(|it| it.kind == Kind::Deleted) {
            let place_of = place(change);
            let Some(["assigned", worker, task]) = place_of.as_deref() else { continue };
            let log = entry.changes.iter().find(|it| {
                place(it).as_deref() == Some(&["attempts", task]) && it.kind != Kind::Deleted
            });
            let made = log.and_then(record::<Attempts>).unwrap_or_default();
            let is_entered = made
                .attempts
                .last()
                .is_some_and(|last| last.worker == *worker && last.end.is_some());
            if self.tasks.contains_key(*task) && self.is_current(worker, task) && !is_entered {
                broken.push(("L-MW-18", format!("that {worker} had {task} is nowhere")));
            }
        }
        broken
    }

    /// Returns `true` if a worker has the current task of this name, and not an earlier one that
    /// was cancelled.
    fn is_current(&self, worker: &str, task: &str) -> bool {
        let of = self.assigned.get(&(worker.to_owned(), task.to_owned()));
        of.is_some_and(|of| self.submitted.get(task) == Some(of))
    }

    fn learn(&mut self, change: &Change, by: By) {
        let there = change.kind != Kind::Deleted;
        match place(change).as_deref() {
            Some(["tasks", task]) => match state(change) {
                Some(state) => {
                    if self.tasks.insert((*task).to_owned(), state == "open").is_none() {
                        *self.submitted.entry((*task).to_owned()).or_default() += 1;
                    }
                }
                None => {
                    self.tasks.remove(*task);
                }
            },
            Some(["todo", task]) => {
                put(&mut self.todo, (*task).to_owned(), there);
                if there {
                    put(&mut self.limited, (*task).to_owned(), says(change, "\"deadline\":"));
                }
            }
            Some(["assigned", worker, task]) => {
                let key = ((*worker).to_owned(), (*task).to_owned());
                let of = self.submitted.get(*task).copied().unwrap_or_default();
                if there {
                    self.assigned.insert(key, of);
                } else {
                    self.assigned.remove(&key);
                }
            }
            Some(["attempts", task]) => {
                match record::<Attempts>(change) {
                    Some(made) => self.attempts.insert((*task).to_owned(), made),
                    None => self.attempts.remove(*task),
                };
            }
            Some(["workers", worker]) => {
                if let Some(worker) = record::<Worker>(change)
                    && let Some(shift) = worker.shift()
                {
                    put(&mut self.drained_shifts, shift, worker.drained && worker.confirmed);
                }
                put(&mut self.workers, (*worker).to_owned(), there);
                put(&mut self.drained, (*worker).to_owned(), says(change, "\"drained\":true"));
            }
            Some(["switch"]) => self.paused = says(change, "\"paused\":true"),
            Some(["master", _]) if there => self.masters.push((change.path.clone(), by)),
            Some(["master", _]) => self.masters.retain(|(path, _)| *path != change.path),
            _ => {}
        }
    }
}

impl Attempts {
    /// Returns `true` if all attempts that had ended before are among these, except the first ones
    /// if there are too many.
    fn keeps(&self, before: &Self) -> bool {
        let Some(dropped) = self.earlier.checked_sub(before.earlier) else { return false };
        let may_drop = dropped == 0 || self.attempts.len() >= KEPT;
        let ended: Vec<_> = before.attempts.iter().filter(|it| it.end.is_some()).collect();
        let Some(kept) = ended.get(dropped..) else { return false };
        may_drop && kept.iter().enumerate().all(|(at, it)| self.attempts.get(at) == Some(*it))
    }
}

impl Worker {
    /// The call of `work` that it belongs to.
    fn shift(&self) -> Option<String> {
        self.properties.get("shift").cloned()
    }
}

/// The record in a node, if the node exists.
fn record<T: DeserializeOwned>(change: &Change) -> Option<T> {
    let node = change.node.as_ref().filter(|_| change.kind != Kind::Deleted)?;
    serde_json::from_slice(&node.data).ok()
}

fn put<T: Ord>(all: &mut BTreeSet<T>, one: T, there: bool) {
    if there {
        all.insert(one);
    } else {
        all.remove(&one);
    }
}

/// Returns `true` if a commit takes a task from this worker.
fn is_given_up(entry: &Entry, worker: &str, task: &str) -> bool {
    entry.changes.iter().any(|change| {
        change.kind == Kind::Deleted
            && place(change).as_deref() == Some(&["assigned", worker, task])
    })
}

/// The names of a node below its crew.
fn place(change: &Change) -> Option<Vec<&str>> {
    let mut names = change.path.segments();
    let _crew = names.next()?;
    Some(names.collect())
}

/// Returns `true` if a node now has this text.
fn says(change: &Change, text: &str) -> bool {
    let node = change.node.as_ref().filter(|_| change.kind != Kind::Deleted);
    node.is_some_and(|node| String::from_utf8_lossy(&node.data).contains(text))
}

/// The state in the node of a task, if there is one now.
fn state(change: &Change) -> Option<&'static str> {
    let data = &change.node.as_ref()?.data;
    let states = ["open", "done", "failed", "cancelled", "expired"];
    states.into_iter().find(|state| data.starts_with(format!("{{\"state\":\"{state}\"").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(earlier: usize, numbers: std::ops::Range<usize>) -> Attempts {
        let attempt =
            |number: usize| Attempt { worker: number.to_string(), end: Some(Value::from("Lost")) };
        Attempts { earlier, attempts: numbers.map(attempt).collect() }
    }

    #[test]
    fn only_the_first_of_too_many_attempts_may_be_left_out() {
        assert!(made(0, 0..3).keeps(&made(0, 0..2)));
        assert!(made(0, 0..KEPT).keeps(&made(0, 0..KEPT)));
        assert!(made(1, 1..KEPT + 1).keeps(&made(0, 0..KEPT)));

        assert!(!made(0, 0..1).keeps(&made(0, 0..2)), "the last one is missing");
        assert!(!made(0, 1..3).keeps(&made(0, 0..2)), "the first one is missing");
        assert!(!made(1, 1..3).keeps(&made(0, 0..2)), "there was room for it");
        assert!(!made(0, 1..KEPT + 1).keeps(&made(0, 0..KEPT)), "it is not counted");
        assert!(!made(1, 2..KEPT + 2).keeps(&made(0, 0..KEPT)), "two are missing");
        assert!(!made(0, 0..2).keeps(&made(1, 0..2)), "fewer are counted than before");
        assert!(!made(20, 20..36).keeps(&made(0, 0..2)), "more are missing than there were");
    }
}
