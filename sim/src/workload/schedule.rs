//! A schedule that processes with wrong clocks run, stop, and fail.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use synod_core::path::Path;
use synod_core::store::Expect;
use synod_mem::cluster::Site;
use synod_recipes::Held;
use synod_recipes::schedule::{Schedule, ScheduledRun, Timetable};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::{Workload, holding};

/// Three processes run a schedule.
pub(super) struct Schedules;

const ROUNDS: u64 = 3;

/// The maximum number of attempts at a date.
const ATTEMPTS: u32 = 2;

const RUN: &str = "a run succeeded";
const FAILED: &str = "a run failed";
const AGAIN: &str = "a run had another attempt";
const STOPPED: &str = "a process was stopped during a run";
const LOST: &str = "a run was dropped as its lead was lost, and another one began here";

/// The parts of the node of a schedule that its laws concern.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Record {
    run: Option<Run>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Run {
    due: u64,
    attempt: u32,
    ended: u64,
    failure: Option<String>,
}

impl Workload for Schedules {
    fn name(&self) -> &'static str {
        "schedule"
    }

    fn about(&self) -> &'static str {
        "three processes run a schedule, whose runs fail, are stopped, and have another attempt"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-SCH-1", "L-SCH-2", "L-SCH-7"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, RUN, FAILED, AGAIN, STOPPED, LOST]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::EventsJoined]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        // Strangers would let the schedule start again.
        sim.without_strangers()
            .given(holding::data(), "0")
            .processes(3, work)
            .must_end("L-SCH-7")
            .check("L-SCH-1", no_date_begins_too_often)
            .check("L-SCH-2", holding::guarded_writes_rise)
    }
}

async fn work(me: Process) {
    let Ok(client) = me.client().await else { return };
    for _ in 0..me.rounds(ROUNDS) {
        let period = Duration::from_millis(100 + 100 * me.pick(3));
        let attempts = NonZeroU32::new(ATTEMPTS).unwrap_or(NonZeroU32::MIN);
        let schedule = Schedule::new(&client, path(), Timetable::every(period)).label(me.name());
        let schedule = schedule.attempts(attempts, me.ttl() / 100);
        let at_work = AtomicBool::new(false);
        let run = async |run: ScheduledRun| {
            me.sometimes(LOST, at_work.swap(true, Ordering::Relaxed));
            me.sometimes(AGAIN, run.attempt > 1);
            if !run.is_held() {
                me.wrong("L-SCH-2", || format!("{run:?} begins, and is not held"));
            }
            let silent = me.falls_silent(me.ttl() * 2);
            me.rest(if silent { me.ttl() * 2 } else { me.ttl() / 20 }).await;
            let write = run.txn().set(holding::data(), run.token().to_string(), Expect::Any);
            let _written = client.commit(write).await;
            let fails = me.pick(3) == 0;
            at_work.store(false, Ordering::Relaxed);
            me.sometimes(FAILED, fails);
            me.sometimes(RUN, !fails);
            if fails { Err("on purpose") } else { Ok(()) }
        };
        let stop = async {
            me.rest(me.ttl() * 2).await;
            me.sometimes(STOPPED, at_work.load(Ordering::Relaxed));
        };
        let _ended = me.perhaps(Box::pin(schedule.run_until(stop, &run))).await;
        me.rest(me.ttl() / 4).await;
    }
}

/// No date begins more attempts than permitted, and none after its success.
fn no_date_begins_too_often(truth: &Truth) -> Result<(), String> {
    let written = truth.log.iter().flat_map(|entry| &entry.changes);
    let records = written.filter(|change| change.path.as_str() == "/schedule/state");
    let records = records.filter_map(|change| change.node.as_ref());
    let records = records.filter_map(|node| serde_json::from_slice::<Record>(&node.data).ok());
    let (mut attempts, mut last) = (BTreeMap::<u64, u32>::new(), None);
    for run in records.filter_map(|record| record.run) {
        let is_begin = run.ended == 0 && last.as_ref() != Some(&run);
        if is_begin {
            let before = attempts.entry(run.due).or_default();
            let expected = *before + 1;
            if run.attempt != expected || expected > ATTEMPTS {
                return Err(format!("{run:?} begins after {before} attempts"));
            }
            *before = expected;
        } else if run.ended > 0 && run.failure.is_none() {
            // No other attempt may follow.
            attempts.insert(run.due, ATTEMPTS);
        }
        last = Some(run);
    }
    Ok(())
}

fn path() -> Path {
    Path::new("/schedule").expect("it is one")
}
