//! Schedules: one run a date, on whichever machine.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime, Txn};
use synod_recipes::Held;
use synod_recipes::schedule::{Schedule, ScheduleState, ScheduledRun, Timetable};
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::sync::{Notify, mpsc};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::recipe::{Waiting, line};
use crate::world::{MILLISECOND, World};

cases![
    "L-SCH-1 L-SCH-3" breaks [LeadKeptAfterWork] => a_date_has_one_run_whichever_process_leads,
    "L-SCH-1 L-SCH-3 L-SCH-2" breaks [RequeuesTwice] => each_date_has_one_run_while_leaders_come_and_go,
    "L-SCH-2 L-SCH-4" breaks [WorkOutlivesLead] => a_run_whose_lead_is_lost_is_dropped_and_has_another_attempt,
    "L-SCH-1" breaks [RequeuesTwice] => a_run_whose_lead_is_lost_is_not_repeated_by_default,
    "L-SCH-4 L-SCH-3" breaks [OutageEndsIt] => a_run_that_failed_has_another_attempt_and_an_outage_ends_nothing,
    "L-SCH-1 L-SCH-2" breaks [LeadKeptAfterWork] => a_run_whose_answers_are_lost_begins_once,
    "L-SCH-5 L-SCH-6" breaks [LeadKeptAfterWork] => a_start_and_another_timetable_run_no_date_that_has_passed,
    "L-SCH-3 L-SCH-2" breaks [LeadKeptAfterWork] => missed_dates_are_caught_up_as_requested,
    "L-SCH-7" breaks [LeadKeptAfterWork] => a_schedule_that_is_stopped_finishes_its_run,
];

const HOUR: Duration = Duration::from_secs(60 * 60);

fn schedule(world: &World, client: &Client, timetable: Timetable) -> Schedule {
    Schedule::new(client, world.at("schedule"), timetable)
}

/// A date that has passed.
fn once() -> Timetable {
    Timetable::at(SystemTime::UNIX_EPOCH)
}

fn often() -> Timetable {
    Timetable::every(MILLISECOND)
}

fn attempts(schedule: Schedule, attempts: u32) -> Schedule {
    schedule.attempts(NonZeroU32::new(attempts).expect("not zero"), Duration::ZERO)
}

/// Runs a schedule without an end in a task of its own. Its runs are sent, and continue until they
/// are dropped.
fn runs_on(schedule: Schedule) -> (Waiting<()>, mpsc::UnboundedReceiver<ScheduledRun>) {
    let (begun, begins) = mpsc::unbounded_channel();
    let at_work = Arc::new(AtomicUsize::new(0));
    let running = Waiting::new(async move {
        let work = |run: ScheduledRun| {
            let (begun, at_work) = (begun.clone(), at_work.clone());
            async move {
                let _working = Working::begin(&at_work);
                assert!(run.is_held());
                let _is_received = begun.send(run).is_ok();
                pending::<Result<(), Infallible>>().await
            }
        };
        schedule.run(work).await
    });
    (running, begins)
}

/// A run that is counted while it lasts.
struct Working(Arc<AtomicUsize>);

impl Working {
    fn begin(at_work: &Arc<AtomicUsize>) -> Self {
        assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "the last run is not over");
        Self(at_work.clone())
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs a schedule whose work does nothing, until no date is left. Returns the number of runs.
async fn runs(world: &World, schedule: &Schedule) -> usize {
    let runs = AtomicUsize::new(0);
    let work = |_run| {
        runs.fetch_add(1, Ordering::SeqCst);
        ready(Ok::<_, Infallible>(()))
    };
    answer(world.in_time("the end of the dates", schedule.run(work)).await);
    runs.into_inner()
}

/// Removes the ticket of the leader.
async fn depose(world: &World, client: &Client) {
    let leaders = line(client, &world.at("schedule/leader")).await;
    if let Some(leader) = leaders.first() {
        let _removed = answer(client.delete(&leader.path, Expect::Any).await);
    }
}

async fn state(world: &World, client: &Client) -> ScheduleState {
    let state = answer(Schedule::state_of(client, &world.at("schedule")).await);
    state.expect("a process has led")
}

async fn a_date_has_one_run_whichever_process_leads(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let own = schedule(&world, &ann, once()).label("ann");
    assert_eq!(answer(own.state().await), None);
    assert_eq!(runs(&world, &own).await, 1);
    for client in [&bob, &ann] {
        assert_eq!(runs(&world, &schedule(&world, client, once()).label("bob")).await, 0);
    }
    let state = state(&world, &bob).await;
    let last = state.last.expect("a run");
    assert_eq!((last.by.as_str(), last.attempt, last.failure), ("ann", 1, None));
    assert!(last.ended.is_some() && state.succeeded == Some(last.due), "{:?}", state.succeeded);
    assert_eq!((state.next, state.timetable.as_str()), (None, "at 1"));
    world.left_alone(&bob, &world.at("schedule/leader")).await;
}

async fn each_date_has_one_run_while_leaders_come_and_go(world: World) {
    const RUNS: usize = 30;
    let (eve, dates) = (world.client().await, Arc::new(Mutex::new(BTreeSet::new())));
    let count = || dates.lock().unwrap_or_else(PoisonError::into_inner).len();
    let mut running = Vec::new();
    for _ in 0..3 {
        let client = world.hesitant().await;
        let (schedule, dates) = (schedule(&world, &client, often()), dates.clone());
        let data = world.at("data");
        running.push(Waiting::new(async move {
            let work = |run: ScheduledRun| {
                let is_new = dates.lock().unwrap_or_else(PoisonError::into_inner).insert(run.due);
                assert!(is_new, "{run:?} begins again");
                let (client, data) = (client.clone(), data.clone());
                async move {
                    let write = run.txn().set(data, run.token().to_string(), Expect::Any);
                    client.commit(write).await.map(drop)
                }
            };
            schedule.run(work).await
        }));
    }
    answer(eve.put(&world.at("data"), "0").await);
    let mut last = 0;
    for part in 1..=3 {
        world.eventually("more runs", async || count() >= RUNS / 3 * part).await;
        depose(&world, &eve).await;
        // No run of an earlier leader writes after one of a later leader.
        let node = answer(eve.get(&world.at("data")).await).expect("data");
        let token = std::str::from_utf8(&node.data).expect("text").parse::<u64>();
        let token = token.expect("a token");
        assert!(token >= last, "{token} after {last}");
        last = token;
    }
    drop(running);
}

async fn a_run_whose_lead_is_lost_is_dropped_and_has_another_attempt(world: World) {
    let (ann, eve) = (world.client().await, world.client().await);
    let (_running, mut begins) = runs_on(attempts(schedule(&world, &ann, once()), 4));
    let data = world.at("data");
    answer(eve.put(&data, "0").await);
    let write = |run: &ScheduledRun| -> Txn { run.txn().set(&data, "written", Expect::Any) };
    let mut last: Option<ScheduledRun> = None;
    for attempt in 1..=4 {
        let run = world.in_time("an attempt", begins.recv()).await.expect("it continues");
        assert_eq!((run.attempt, run.previous), (attempt, None));
        if let Some(last) = &last {
            assert!(run.token() > last.token() && run.due == last.due, "{run:?}");
            assert!(!last.is_held());
            assert!(!answer(ann.commit(write(last)).await).is_committed(), "it has ended");
        }
        assert!(answer(ann.commit(write(&run)).await).is_committed());
        depose(&world, &eve).await;
        last = Some(run);
    }
    world.in_time("the end", async { while begins.recv().await.is_some() {} }).await;
    let last = state(&world, &eve).await.last.expect("a run");
    assert_eq!((last.attempt, last.ended), (4, None));
}

async fn a_run_whose_lead_is_lost_is_not_repeated_by_default(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let (running, mut begins) = runs_on(schedule(&world, &ann, once()));
    let run = world.in_time("the run", begins.recv()).await.expect("it continues");
    depose(&world, &bob).await;
    assert_eq!(runs(&world, &schedule(&world, &bob, once())).await, 0);
    running.gets(&world, "the end").await;
    assert!(!run.is_held() && begins.recv().await.is_none());
    let last = state(&world, &bob).await.last.expect("a run");
    assert_eq!((last.attempt, last.ended), (1, None));
}

async fn a_run_that_failed_has_another_attempt_and_an_outage_ends_nothing(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let limit = world.brief();
    let ann = world.client_on(gate.clone(), world.options().timeout(limit)).await;
    let own = attempts(schedule(&world, &ann, once()), 3);
    let tried = Arc::new(AtomicUsize::new(0));
    gate.set(Way::Shut);
    let mut running = {
        let tried = tried.clone();
        Waiting::new(async move {
            let work = |run: ScheduledRun| {
                let before = tried.fetch_add(1, Ordering::SeqCst);
                assert_eq!(usize::try_from(run.attempt).expect("small"), before + 1);
                ready(if before < 2 { Err("the disk is full") } else { Ok(()) })
            };
            own.run(work).await
        })
    };
    running.waits_for(limit * 3, "the store does not answer").await;
    gate.set(Way::Open);
    running.gets(&world, "the end").await;
    assert_eq!(tried.load(Ordering::SeqCst), 3);
    let last = state(&world, &bob).await.last.expect("a run");
    assert_eq!((last.attempt, last.failure), (3, None));

    // The last attempt fails, too.
    let later = Timetable::at(SystemTime::UNIX_EPOCH + HOUR);
    let own = attempts(schedule(&world, &bob, later), 2);
    let fails = |_run| ready(Err::<(), _>("the disk is full"));
    answer(world.in_time("the end", own.run(fails)).await);
    let state = state(&world, &bob).await;
    let last = state.last.expect("a run");
    assert_eq!((last.attempt, last.failure.as_deref()), (2, Some("the disk is full")));
    assert_eq!(state.succeeded, Some(SystemTime::UNIX_EPOCH + MILLISECOND));
}

async fn a_run_whose_answers_are_lost_begins_once(world: World) {
    let (client, plan) = world.scripted([]).await;
    for (hours, site) in (1..).zip([Site::ReplyLost, Site::RequestLost, Site::AppliedLate]) {
        for verb in [Verb::Create, Verb::Set] {
            // The record is created, and the run begins and ends with a set each.
            answer(client.delete_recursive(&world.at("schedule")).await);
            for nth in if verb == Verb::Set { 1..=2 } else { 1..=1 } {
                let at = Timetable::at(SystemTime::UNIX_EPOCH + HOUR * hours * nth);
                let under = world.at("schedule/state");
                plan.cue(Cue::new(site).of(verb).under(under).nth(nth.into()));
                let ran = runs(&world, &schedule(&world, &client, at)).await;
                assert_eq!((ran, plan.pending()), (1, 0), "{site:?} of {verb:?} {nth}");
            }
        }
    }
}

async fn a_start_and_another_timetable_run_no_date_that_has_passed(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let stopped = |timetable: Timetable, until: Option<Duration>| {
        let (own, world, bob) = (schedule(&world, &ann, timetable.clone()), &world, bob.clone());
        async move {
            let (stop, text) = (Notify::new(), timetable.to_string());
            let runs = AtomicUsize::new(0);
            let run = |run: ScheduledRun| {
                runs.fetch_add(1, Ordering::SeqCst);
                let is_late = until.is_some_and(|until| run.due > SystemTime::UNIX_EPOCH + until);
                assert!(!is_late, "{run:?} is not due");
                ready(Ok::<_, Infallible>(()))
            };
            let adopted = async {
                let is_adopted = async || {
                    let state = answer(Schedule::state_of(&bob, &world.at("schedule")).await);
                    let runs = runs.load(Ordering::SeqCst);
                    state.is_some_and(|it| it.timetable == text) && (until.is_none() || runs > 0)
                };
                world.eventually("it has begun", is_adopted).await;
                stop.notify_one();
            };
            let running = own.run_until(stop.notified(), run);
            let (ended, ()) = futures_util::future::join(running, adopted).await;
            answer(ended);
            runs.load(Ordering::SeqCst)
        }
    };
    // A date of each has passed, and the next one is far away.
    let long = |years: u32| Timetable::every(HOUR * 24 * 365 * years);
    assert_eq!(stopped(long(40), None).await, 0, "the first start");
    assert_eq!(stopped(long(50), None).await, 0, "another timetable");
    let next = state(&world, &bob).await.next.expect("a date");
    assert_eq!(Some(next), long(50).next_after(clock::date()));

    // A wrong clock has run a date that is years ahead, and passed over all dates before.
    let now = clock::date().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let (far, now) = ((now + HOUR * 24 * 365).as_millis(), now.as_millis());
    let record = |timetable: &Timetable| {
        format!(
            r#"{{"timetable":"{timetable}","over":{far},"next":{far},"succeeded":{far},"run":
            {{"due":{far},"attempt":1,"previous":0,"by":"","begun":{far},"ended":{far}}},
            "gaps":[[{now},{far}]]}}"#
        )
    };
    answer(bob.put(&world.at("schedule/state"), record(&often())).await);
    let ran = stopped(often(), Some(Duration::from_millis(u64::try_from(far - 1).expect("fits"))));
    assert!(ran.await > 0, "its dates are due");

    for data in ["", "7", r#"{"timetable":"at 1"}"#] {
        answer(bob.put(&world.at("schedule/state"), data).await);
        let own = schedule(&world, &ann, once());
        let run = own.run(|_run| ready(Ok::<_, Infallible>(())));
        for error in [
            failure(world.in_time("the error", run).await, "what is no schedule"),
            failure(own.state().await, "what is no schedule"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{data}");
        }
    }
}

async fn missed_dates_are_caught_up_as_requested(world: World) {
    let (client, at) = (world.client().await, world.at("schedule/state"));
    let now = clock::date().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let day = HOUR * 24;
    // The last run was at the beginning of 1970, and the next date is tomorrow.
    let daily = Timetable::every(day);
    let record = format!(
        r#"{{"timetable":"{daily}","over":{0},"next":{0},"succeeded":0,"run":
        {{"due":{0},"attempt":1,"previous":0,"by":"","begun":{0},"ended":{0}}}}}"#,
        day.as_millis()
    );
    let today = now.as_secs() / day.as_secs();
    let day_of = |run: &ScheduledRun| {
        let due = run.due.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        due.as_secs() / day.as_secs()
    };
    let three = NonZeroU32::new(3).expect("not zero");
    let own = || schedule(&world, &client, daily.clone());
    for (own, expected) in [
        (own(), vec![today]),
        (own().catch_up(three), vec![today - 2, today - 1, today]),
        (own().catch_up(three).start_within(day * 2), vec![today - 1, today]),
    ] {
        answer(client.put(&at, record.clone()).await);
        let (begun, stop) = (Mutex::new(Vec::<ScheduledRun>::new()), Notify::new());
        let runs = || begun.lock().unwrap_or_else(PoisonError::into_inner);
        let work = async |run: ScheduledRun| {
            let earlier = runs().last().cloned();
            if let Some(earlier) = earlier {
                // The same process leads on.
                assert!(!earlier.is_held() && run.token() > earlier.token(), "{earlier:?}");
                let late = earlier.txn().create(world.at("late"), "", Lifetime::Persistent);
                assert!(!answer(client.commit(late).await).is_committed(), "it has ended");
            }
            if day_of(&run) == today {
                stop.notify_one();
            }
            runs().push(run);
            Ok::<_, Infallible>(())
        };
        answer(world.in_time("the runs", own.run_until(stop.notified(), work)).await);
        assert_eq!(runs().iter().map(day_of).collect::<Vec<_>>(), expected);
    }
    for wrong in [
        own().start_within(Duration::ZERO),
        own().catch_up(NonZeroU32::MAX),
        own().label("x".repeat(Schedule::MAX_LABEL + 1)),
        schedule(&world, &client, Timetable::every(Duration::ZERO)),
    ] {
        let run = wrong.run(|_run| ready(Ok::<_, Infallible>(())));
        assert_eq!(failure(run.await, "what is wrong").kind(), ErrorKind::Invalid, "{wrong:?}");
    }
}

async fn a_schedule_that_is_stopped_finishes_its_run(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let (begun, end, stop) =
        (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let mut running = {
        let own = schedule(&world, &ann, once());
        let (begun, end, stop) = (begun.clone(), end.clone(), stop.clone());
        Waiting::new(async move {
            let work = |_run| {
                let (begun, end) = (begun.clone(), end.clone());
                async move {
                    begun.notify_one();
                    end.notified().await;
                    Ok::<_, Infallible>(())
                }
            };
            own.run_until(stop.notified(), work).await
        })
    };
    world.in_time("the run", begun.notified()).await;
    // A process that waits for the lead is stopped at once, and leaves.
    let other = schedule(&world, &bob, once());
    let waits = other.run_until(ready(()), |_run| ready(Ok::<_, Infallible>(())));
    answer(world.in_time("the end of a candidate", waits).await);
    stop.notify_one();
    running.waits_for(world.brief(), "its run is not over").await;

    end.notify_one();

    running.gets(&world, "the end").await;
    assert!(state(&world, &bob).await.last.is_some_and(|last| last.ended.is_some()));
    assert_eq!(runs(&world, &schedule(&world, &bob, once())).await, 0, "it leads at once");
}
