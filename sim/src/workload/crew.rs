//! Two crews whose processes submit tasks, work, and are candidates for master.

use std::collections::BTreeMap;
use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::{Rates, Site};
use futures_util::future::{Either, select, try_join};
use synod_core::client::Client;
use synod_core::path::Path;
use synod_core::task::{Task, spawn};
use synod_recipes::crew::{
    Assignment, Crew, CrewPolicy, CrewTask, CrewWorker, NewTask, TaskEnd, TaskStatus,
};

use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::crew_short_terms::times_pass_in_short_terms;
use crate::workload::crew_told::Told;
use crate::workload::crew_truth::judge;
use crate::workload::presence::nothing_is_left;

/// Three processes submit tasks, cancel some, do them, and are candidates for master, all at the
/// same time, in one crew and some also in another.
pub(super) struct Crews;

const ROUNDS: u64 = 3;

/// The number of tasks that a worker does at the same time.
const CAPACITY: u32 = 2;

const AGAIN: &str = "a task was begun again";
const STOPPED: &str = "work was dropped";
const LEFT: &str = "a worker was stopped, and left when its tasks were done";
const FAILED: &str = "a task failed";
const CANCELLED: &str = "a task was cancelled";
const SILENT: &str = "a worker was silent for longer than its session lives";
const DONE: &str = "a task was done";
const DRAINED: &str = "a worker was drained";
const UNDRAINED: &str = "a worker was drained no longer";
const FOLLOWED: &str = "the progress of a task reached another process";
const PAUSED: &str = "the crew was paused";
const EXPIRED: &str = "a task expired";
const SHORT_TERMS: &str = "masters followed each other in short terms";

/// The number of times that each task was begun. Clones share it.
#[derive(Clone, Default)]
struct Begun(Arc<Mutex<BTreeMap<String, u64>>>);

impl Workload for Crews {
    fn name(&self) -> &'static str {
        "crew"
    }

    fn about(&self) -> &'static str {
        "three processes submit tasks to two crews, do them, and stand for master"
    }

    fn laws(&self) -> &'static [&'static str] {
        &[
            "L-MW-1", "L-MW-2", "L-MW-3", "L-MW-4", "L-MW-5", "L-MW-7", "L-MW-8", "L-MW-9",
            "L-MW-10", "L-MW-11", "L-MW-12", "L-MW-13", "L-MW-16", "L-MW-17", "L-MW-18",
        ]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[
            DROPPED,
            AGAIN,
            STOPPED,
            LEFT,
            FAILED,
            CANCELLED,
            SILENT,
            DONE,
            DRAINED,
            UNDRAINED,
            PAUSED,
            EXPIRED,
            FOLLOWED,
            SHORT_TERMS,
        ]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::NearTheEnd]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let shared = CREWS.map(|_| Shared::default());
        let working = shared.clone();
        // Strangers would remove tasks.
        let sim = sim.without_strangers();
        // A wrong wall clock shifts the times that a later master computes.
        let wrong_clocks = Site::WallClock.fault().filter(|_| sim.seed.is_multiple_of(2));
        let has_right_clocks = wrong_clocks.is_some();
        let mut sim = sim
            .rates(|rates| wrong_clocks.into_iter().fold(rates, Rates::without))
            .processes(3, move |me| work(me, working.clone()))
            .must_end("L-MW-1");
        if has_right_clocks {
            sim = sim.eventually("L-MW-19", |me| async move {
                let is_audited = me.pick(4) == 0;
                me.sometimes(SHORT_TERMS, is_audited);
                if is_audited {
                    Box::pin(times_pass_in_short_terms(me, dir(CREWS[0], ""))).await
                } else {
                    Ok(())
                }
            });
        }
        CREWS.into_iter().zip(shared).fold(sim, |sim, (crew, shared)| {
            let sim = sim
                .eventually("L-X-5", move |me| nothing_is_left(me, dir(crew, "/master")))
                .eventually("L-X-5", move |me| nothing_is_left(me, dir(crew, "/workers")))
                .check("L-MW-8", move |truth| shared.told.judge(truth, crew));
            JUDGED
                .into_iter()
                .fold(sim, |sim, law| sim.check(law, move |truth| judge(truth, crew, law)))
        })
    }
}

/// The crews, by the names of their nodes.
const CREWS: [&str; 2] = ["crew", "side"];

/// The laws that are checked on the commits of a crew.
const JUDGED: [&str; 11] = [
    "L-MW-1", "L-MW-2", "L-MW-3", "L-MW-4", "L-MW-5", "L-MW-9", "L-MW-12", "L-MW-13", "L-MW-16",
    "L-MW-17", "L-MW-18",
];

/// The data that the processes share about one crew. Clones share it.
#[derive(Clone, Default)]
struct Shared {
    begun: Begun,
    told: Told,
}

async fn work(me: Process, shared: [Shared; 2]) {
    let Ok(client) = me.impatient_client().await else { return };
    let member = |name, Shared { begun, told }: Shared| {
        let crew = Crew::new(&client, dir(name, ""));
        // Some masters remove nodes for which others wait.
        let crew = if me.pick(3) == 0 { crew.retention(me.ttl() * 2) } else { crew };
        // Each has its own policy.
        let crew = crew.policy(match me.number() % 3 {
            0 => CrewPolicy::LeastLoaded,
            1 => CrewPolicy::RoundRobin,
            _ => CrewPolicy::chosen(|_, able| able.len().checked_sub(1)),
        });
        Member { me: me.clone(), client: client.clone(), name, crew, begun, told }
    };
    let [one, other] = shared;
    let (first, second) = (member(CREWS[0], one), member(CREWS[1], other));
    let _working = first.works();
    // In one process of three, so that a history does not become much longer.
    let beside = (me.pick(3) == 0).then(|| second.works());
    for round in 0..me.rounds(ROUNDS) {
        let is_beside = beside.is_some() && me.pick(3) == 0;
        Box::pin(if is_beside { &second } else { &first }.round(round)).await;
        me.rest(me.ttl() / 2).await;
    }
}

/// A process, as a member of one crew.
#[derive(Clone)]
struct Member {
    me: Process,
    client: Client,
    /// The name of the crew, with which the ids of its tasks begin.
    name: &'static str,
    crew: Crew,
    begun: Begun,
    told: Told,
}

/// A task that is running.
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
    /// Runs a worker that is also a candidate for master, in a separate task. It restarts now and
    /// then.
    fn works(&self) -> Task {
        let member = self.clone();
        spawn(async move {
            while !member.client.is_closed() {
                let running = AtomicUsize::new(0);
                let worker = CrewWorker::new().capacity(CAPACITY.try_into().expect("not zero"));
                // The property is the same across the sessions of one call.
                let worker = worker.property("shift", member.client.random().id());
                let stops = member.me.pick(2) == 0;
                let stop = async {
                    member.me.rest(member.me.ttl() * 4).await;
                    if !stops {
                        pending::<()>().await;
                    }
                };
                let works = async {
                    let run = |task| member.does(task, &running);
                    member.crew.work_until(worker, stop, run).await?;
                    member.me.sometimes(LEFT, true);
                    Ok(())
                };
                let both = pin!(try_join(works, member.crew.lead()));
                // A drained worker is replaced by another one.
                let shift = pin!(member.me.rest(member.me.ttl() * 8));
                drop(Box::pin(member.me.perhaps(select(both, shift))).await);
                member.me.rest(member.me.ttl() / 4).await;
            }
        })
    }

    /// L-MW-10: a worker has no more tasks than its capacity.
    async fn does(&self, task: Assignment, running: &AtomicUsize) -> Result<String, &'static str> {
        let me = &self.me;
        let before = running.fetch_add(1, Ordering::Relaxed);
        let mut at_work = AtWork { me, running, is_over: false };
        if before >= usize::try_from(CAPACITY).unwrap_or(usize::MAX) {
            me.wrong("L-MW-10", || format!("{before} tasks are being done already"));
        }
        if !task.id.starts_with(self.name) {
            me.wrong("L-MW-2", || format!("{} is a task of another crew", task.id));
        }
        let times = self.begun.again(&task.id);
        me.sometimes(AGAIN, times > 1);
        let _during = me.during(format!("does {}", task.id));
        me.sometimes(SILENT, me.falls_silent(me.ttl() * 2));
        if me.pick(2) == 0 {
            task.report(format!("{} {times}", task.id));
        }
        me.rest(if me.pick(8) == 0 { me.ttl() * 2 } else { me.ttl() / 8 }).await;
        at_work.is_over = true;
        if me.pick(4) == 0 { Err("on purpose") } else { Ok(format!("{} {times}", task.id)) }
    }

    /// Submits a task that others may also submit, and waits for its end.
    async fn round(&self, round: u64) {
        let me = &self.me;
        let which = me.pick(3);
        let id = format!("{}-{round}-{which}", self.name);
        let new = NewTask::new(id.clone()).retries(u32::try_from(me.pick(3)).unwrap_or(0));
        let new = new.priority(i32::try_from(me.pick(2)).unwrap_or(0));
        // The wall clocks of two processes may be a year apart: such a task is late immediately, or
        // never.
        let new = match which {
            2 => new.deadline(me.ttl()),
            1 => new.backoff(Duration::ZERO, Duration::ZERO),
            _ => new,
        };
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
        // L-MW-1 and L-MW-7: the task ends, after any time.
        let (waits, resumes) = (pin!(self.waits(&task)), pin!(self.resumes()));
        let Either::Left((Ok(end), _)) = select(waits, resumes).await else { return };
        me.sometimes(DONE, matches!(end, Some(TaskEnd::Done(_))));
        me.sometimes(FAILED, matches!(end, Some(TaskEnd::Failed(_))));
        me.sometimes(CANCELLED, matches!(end, Some(TaskEnd::Cancelled)));
        me.sometimes(EXPIRED, matches!(end, Some(TaskEnd::Expired)));
        if let (Some(cancelled), Some(end)) = (cancelled, &end) {
            self.told.add(&id, cancelled, end.clone());
        }
        if let Some(TaskEnd::Done(result)) = end
            && !result.starts_with(id.as_bytes())
        {
            me.wrong("L-MW-7", || format!("{result:?} is no result of {id}"));
        }
    }
}

impl Member {
    /// Waits for the end of a task, or follows it until then: L-MW-17.
    async fn waits(&self, task: &CrewTask) -> synod_core::error::Result<Option<TaskEnd>> {
        if self.me.pick(3) > 0 {
            return task.wait().await;
        }
        let (mut follower, mut end) = (task.follow(), None);
        while let Some(shown) = follower.next().await? {
            let progress = shown.attempts.iter().filter_map(|made| made.progress.as_ref());
            for progress in progress {
                self.me.sometimes(FOLLOWED, true);
                if !progress.starts_with(&task.id()) {
                    self.me.wrong("L-MW-17", || format!("{progress} is of another task"));
                }
            }
            if let TaskStatus::Over(over) = shown.status {
                end = Some(over);
            }
        }
        Ok(end)
    }

    /// Drains a worker, and undrains it now and then. Another worker always starts, so that the
    /// tasks end.
    async fn drains(&self) {
        let Some(Ok(shown)) = self.me.perhaps(self.crew.snapshot()).await else { return };
        let Some(worker) = shown.workers.first() else { return };
        let drained = self.me.perhaps(self.crew.drain(&worker.name)).await;
        self.me.sometimes(DRAINED, matches!(drained, Some(Ok(true))));
        if self.me.pick(3) == 0 {
            let undrained = self.me.perhaps(self.crew.undrain(&worker.name)).await;
            self.me.sometimes(UNDRAINED, matches!(undrained, Some(Ok(true))));
        }
    }

    /// Pauses the crew. Any process may resume it, because this one may end before.
    async fn pauses(&self) {
        let paused = self.me.perhaps(self.crew.pause()).await;
        self.me.sometimes(PAUSED, matches!(paused, Some(Ok(()))));
    }

    /// Ends a pause every now and then.
    async fn resumes(&self) {
        while !self.client.is_closed() {
            self.me.rest(self.me.ttl()).await;
            // A failed call is retried.
            let _resumed = self.crew.resume().await.is_ok();
        }
    }
}

impl Begun {
    /// Counts another start of a task. Returns the number of starts.
    fn again(&self, id: &str) -> u64 {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let times = begun.entry(id.to_owned()).or_default();
        *times += 1;
        *times
    }
}

/// A directory of a crew.
fn dir(crew: &str, below: &str) -> Path {
    Path::new(&format!("/{crew}{below}")).expect("it is one")
}
