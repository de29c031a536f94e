//! A crew whose processes submit tasks, work, and stand for master.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{Either, select, try_join};
use synod_core::client::Client;
use synod_core::path::Path;
use synod_core::store::{Change, Kind};
use synod_core::task::{Task, spawn};
use synod_mem::cluster::{By, Entry, Site};
use synod_recipes::{Assignment, Crew, CrewPolicy, CrewWorker, NewTask, TaskEnd};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::presence::nothing_is_left;

/// Three processes submit tasks, cancel some, do them, and stand for master, all at the same time.
pub(super) struct Crews;

const ROUNDS: u64 = 3;

/// How many tasks a worker does at the same time.
const CAPACITY: u32 = 2;

const AGAIN: &str = "a task was begun again";
const STOPPED: &str = "work was dropped";
const FAILED: &str = "a task failed";
const CANCELLED: &str = "a task was cancelled";
const SILENT: &str = "a worker was silent for longer than its session lives";
const DONE: &str = "a task was done";
const DRAINED: &str = "a worker was drained";
const PAUSED: &str = "the crew was paused";
const EXPIRED: &str = "a task expired";

/// How often each task was begun. Clones share it.
#[derive(Clone, Default)]
struct Begun(Arc<Mutex<BTreeMap<String, u64>>>);

impl Workload for Crews {
    fn name(&self) -> &'static str {
        "crew"
    }

    fn about(&self) -> &'static str {
        "three processes submit tasks to one crew, do them, and stand for master"
    }

    fn laws(&self) -> &'static [&'static str] {
        &[
            "L-MW-1", "L-MW-2", "L-MW-3", "L-MW-4", "L-MW-5", "L-MW-7", "L-MW-8", "L-MW-10",
            "L-MW-12", "L-MW-13", "L-MW-16",
        ]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, AGAIN, STOPPED, FAILED, CANCELLED, SILENT, DONE, DRAINED, PAUSED, EXPIRED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::NearTheEnd]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let begun = Begun::default();
        // Strangers would remove tasks.
        sim.without_strangers()
            .processes(3, move |me| work(me, begun.clone()))
            .must_end("L-MW-1")
            .eventually("L-X-5", |me| nothing_is_left(me, dir("master")))
            .eventually("L-X-5", |me| nothing_is_left(me, dir("workers")))
            .check("L-MW-1", |truth| judge(truth, "L-MW-1"))
            .check("L-MW-2", |truth| judge(truth, "L-MW-2"))
            .check("L-MW-3", |truth| judge(truth, "L-MW-3"))
            .check("L-MW-4", |truth| judge(truth, "L-MW-4"))
            .check("L-MW-5", |truth| judge(truth, "L-MW-5"))
            .check("L-MW-12", |truth| judge(truth, "L-MW-12"))
            .check("L-MW-13", |truth| judge(truth, "L-MW-13"))
            .check("L-MW-16", |truth| judge(truth, "L-MW-16"))
    }
}

async fn work(me: Process, begun: Begun) {
    let Ok(client) = me.impatient_client().await else { return };
    let crew = Crew::new(&client, Path::new("/crew").expect("it is one"));
    // Some masters remove what others wait for.
    let crew = if me.pick(3) == 0 { crew.retention(me.ttl() * 2) } else { crew };
    // Each has its own policy.
    let crew = crew.policy(match me.number() % 3 {
        0 => CrewPolicy::LeastLoaded,
        1 => CrewPolicy::RoundRobin,
        _ => CrewPolicy::chosen(|_, able| able.len().checked_sub(1)),
    });
    let member = Member { me, client, crew, begun };
    let _working = member.works();
    for round in 0..member.me.rounds(ROUNDS) {
        Box::pin(member.round(round)).await;
        member.me.rest(member.me.ttl() / 2).await;
    }
}

#[derive(Clone)]
struct Member {
    me: Process,
    client: Client,
    crew: Crew,
    begun: Begun,
}

/// Work that is being done.
struct AtWork<'a> {
    me: &'a Process,
    running: &'a AtomicUsize,
    is_over: bool,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.me.sometimes(STOPPED, !self.is_over);
    }
}

impl Member {
    /// Works and stands for master, in a task of its own. Now and then it begins anew.
    fn works(&self) -> Task {
        let member = self.clone();
        spawn(async move {
            while !member.client.is_closed() {
                let running = AtomicUsize::new(0);
                let worker = CrewWorker::new().capacity(CAPACITY.try_into().expect("not zero"));
                let works = member.crew.work(worker, |task| member.does(task, &running));
                let both = pin!(try_join(works, member.crew.lead()));
                // A worker that was drained is replaced by another one.
                let shift = pin!(member.me.rest(member.me.ttl() * 8));
                drop(Box::pin(member.me.perhaps(select(both, shift))).await);
                member.me.rest(member.me.ttl() / 4).await;
            }
        })
    }

    /// L-MW-10: no more tasks than there is room for.
    async fn does(&self, task: Assignment, running: &AtomicUsize) -> Result<String, &'static str> {
        let me = &self.me;
        let before = running.fetch_add(1, Ordering::Relaxed);
        let mut at_work = AtWork { me, running, is_over: false };
        if before >= usize::try_from(CAPACITY).unwrap_or(usize::MAX) {
            me.wrong("L-MW-10", || format!("{before} tasks are being done already"));
        }
        let times = self.begun.again(&task.id);
        me.sometimes(AGAIN, times > 1);
        let _during = me.during(format!("does {}", task.id));
        me.sometimes(SILENT, me.falls_silent(me.ttl() * 2));
        me.rest(if me.pick(8) == 0 { me.ttl() * 2 } else { me.ttl() / 8 }).await;
        at_work.is_over = true;
        if me.pick(4) == 0 { Err("on purpose") } else { Ok(format!("{} {times}", task.id)) }
    }

    /// Submits a task that others may submit, too, and waits for its end.
    async fn round(&self, round: u64) {
        let me = &self.me;
        let which = me.pick(3);
        let id = format!("{round}-{which}");
        let new = NewTask::new(id.clone()).retries(u32::try_from(me.pick(3)).unwrap_or(0));
        let new = new.priority(i32::try_from(me.pick(2)).unwrap_or(0));
        // The wall clocks of two processes may be a year apart: such a task is late at once, or never.
        let new = if which == 2 { new.deadline(me.ttl()) } else { new };
        let Some(Ok(task)) = me.perhaps(self.crew.submit(&id, new)).await else { return };
        let mut cancelled = None;
        if me.pick(4) == 0 {
            me.rest(me.ttl() / 4).await;
            cancelled = me.perhaps(task.cancel()).await.and_then(Result::ok).flatten();
        }
        match me.pick(6) {
            0 => self.drains().await,
            1 => self.pauses().await,
            _ => {}
        }
        // L-MW-1 and L-MW-7: it ends, however long that takes.
        let (waits, resumes) = (pin!(task.wait()), pin!(self.resumes()));
        let Either::Left((Ok(end), _)) = select(waits, resumes).await else { return };
        me.sometimes(DONE, matches!(end, Some(TaskEnd::Done(_))));
        me.sometimes(FAILED, matches!(end, Some(TaskEnd::Failed(_))));
        me.sometimes(CANCELLED, matches!(end, Some(TaskEnd::Cancelled)));
        me.sometimes(EXPIRED, matches!(end, Some(TaskEnd::Expired)));
        if cancelled.is_some() && end.is_some() && cancelled != end {
            me.wrong("L-MW-8", || format!("{id} ended as {cancelled:?}, and as {end:?}"));
        }
        if let Some(TaskEnd::Done(result)) = end
            && !result.starts_with(id.as_bytes())
        {
            me.wrong("L-MW-7", || format!("{result:?} is no result of {id}"));
        }
    }
}

impl Member {
    /// Drains a worker. It works again in its next session, so that the tasks end.
    async fn drains(&self) {
        let Some(Ok(shown)) = self.me.perhaps(self.crew.snapshot()).await else { return };
        let Some(worker) = shown.workers.first() else { return };
        let drained = self.me.perhaps(self.crew.drain(&worker.name)).await;
        self.me.sometimes(DRAINED, matches!(drained, Some(Ok(true))));
    }

    /// Pauses the crew. Any process ends the pause: this one may end before that.
    async fn pauses(&self) {
        let paused = self.me.perhaps(self.crew.pause()).await;
        self.me.sometimes(PAUSED, matches!(paused, Some(Ok(()))));
    }

    /// Ends a pause every now and then.
    async fn resumes(&self) {
        while !self.client.is_closed() {
            self.me.rest(self.me.ttl()).await;
            // One that fails is repeated.
            let _resumed = self.crew.resume().await.is_ok();
        }
    }
}

impl Begun {
    /// How often a task was begun, with this time.
    fn again(&self, id: &str) -> u64 {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let times = begun.entry(id.to_owned()).or_default();
        *times += 1;
        *times
    }
}

/// What the store has of the crew, after each commit.
#[derive(Default)]
struct Crewed {
    /// The tasks that there are, and whether they are open.
    tasks: BTreeMap<String, bool>,
    /// How often a task of this name was submitted.
    submitted: BTreeMap<String, u64>,
    todo: BTreeSet<String>,
    /// The tasks that have a deadline.
    limited: BTreeSet<String>,
    /// Workers and tasks, and which of the tasks of this name it is.
    assigned: BTreeMap<(String, String), u64>,
    workers: BTreeSet<String>,
    drained: BTreeSet<String>,
    paused: bool,
    /// The tickets of the masters in their order, each with its process.
    masters: Vec<(Path, By)>,
}

/// Finds the first commit that breaks this law.
fn judge(truth: &Truth, law: &str) -> Result<(), String> {
    let mut crewed = Crewed::default();
    for (at, entry) in truth.log.iter().enumerate() {
        let found = crewed.takes(entry);
        if let Some((_, what)) = found.into_iter().find(|(broken, _)| *broken == law) {
            return Err(format!("commit {at}, by {:?}: {what}", entry.by));
        }
    }
    Ok(())
}

impl Crewed {
    /// Takes over a commit, and returns the laws that it breaks.
    fn takes(&mut self, entry: &Entry) -> Vec<(&'static str, String)> {
        let mut broken = self.accepts(entry);
        broken.extend(self.moves(entry));
        broken.extend(self.assigns(entry));
        for change in &entry.changes {
            self.learn(change, entry.by);
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

    /// L-MW-1, L-MW-2, L-MW-16: a task ends once, by a worker that is there and has it, or by the master if it has a deadline.
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
            let is_move =
                change.kind == Kind::Created || !reports && self.tasks.get(*task) == Some(&true);
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

    /// Whether a worker has the task of this name that there is now, and not an earlier one that was cancelled.
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
            Some(["workers", worker]) => {
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

fn put<T: Ord>(all: &mut BTreeSet<T>, one: T, there: bool) {
    if there {
        all.insert(one);
    } else {
        all.remove(&one);
    }
}

/// Whether a commit takes a task from this worker.
fn is_given_up(entry: &Entry, worker: &str, task: &str) -> bool {
    entry.changes.iter().any(|change| {
        change.kind == Kind::Deleted
            && place(change).as_deref() == Some(&["assigned", worker, task])
    })
}

/// The names of a node of the crew.
fn place(change: &Change) -> Option<Vec<&str>> {
    let mut names = change.path.segments();
    (names.next() == Some("crew")).then(|| names.collect())
}

/// Whether a node holds this text now.
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

fn dir(name: &str) -> Path {
    Path::new(&format!("/crew/{name}")).expect("it is one")
}
