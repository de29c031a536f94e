//! The crew: the checks in each step of a master or a worker against another client that was
//! faster.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::{join_all, pending, select};
use synod_core::client::Client;
use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Txn};
use synod_recipes::crew::{AttemptEnd, CrewTask, CrewWorker, NewTask, TaskEnd, TaskStatus};
use synod_recipes::election::LeaderSelector;
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::door::answer;
use crate::door::gate::Gate;
use crate::recipe::Waiting;
use crate::recipe::crew_members::{
    Slow, at_once, below, by, crew, leads, reads_no_more, reads_only, works, works_as,
};
use crate::world::{MILLISECOND, World};

cases![
    "L-MW-3" catches [EventDropped] => no_task_is_taken_from_a_worker_that_its_master_does_not_know,
    "L-MW-5 L-MW-3" catches [EventDropped] => a_master_that_was_replaced_takes_nothing_back,
    "L-MW-5 L-MW-9" catches [EventDropped] => a_master_that_was_replaced_removes_nothing,
    "L-MW-12" catches [NoImplicitParents] breaks [DrainIgnored] => a_drained_worker_gets_nothing_from_a_master_that_does_not_know_that,
    "L-MW-8 L-MW-11" catches [CasIgnoresVersion] => a_failure_after_the_cancellation_does_not_reopen_a_task,
    "L-MW-4 L-MW-8" catches [EventDropped] => a_task_that_waits_again_while_it_is_cancelled_waits_no_more,
    "L-MW-4 L-MW-16" catches [EventDropped] => a_task_that_waits_again_while_it_expires_waits_no_more,
    "L-MW-9" catches [EventDropped] => a_task_is_kept_while_a_worker_has_it,
    "L-MW-16 L-MW-9" catches [NoImplicitParents] => a_task_expires_once_though_its_name_is_used_again,
    "L-MW-6 L-MW-9" catches [EventDropped] => a_removal_whose_answer_is_lost_spares_the_next_task_of_its_name,
    "L-MW-11 L-MW-2" catches [EventDropped] => a_failure_whose_answer_is_lost_counts_once,
    "L-MW-11" catches [EventDropped] => a_task_that_failed_is_not_tried_again_before_its_pause_is_over,
];

impl World {
    fn of_crew(&self, below: &str) -> Path {
        self.at(&format!("crew/{below}"))
    }

    async fn is_there(&self, client: &Client, below: &str) -> bool {
        answer(client.get(&self.of_crew(below)).await).is_some()
    }

    /// Deletes a node of the crew, as another program does.
    async fn deletes(&self, client: &Client, below: &str) {
        answer(answer(client.delete(&self.of_crew(below), Expect::Any).await).required());
    }
}

async fn no_task_is_taken_from_a_worker_that_its_master_does_not_know(world: World) {
    let ann = world.client().await;
    let task = world.submits(&ann, "task", "data").await;
    // The worker is registering, or has a later version.
    let own = Lifetime::Session;
    answer(
        answer(ann.create(&world.of_crew("workers/later"), "of a later version", own).await)
            .required(),
    );
    let terms = answer(ann.get(&world.of_crew("todo/task")).await).expect("it waits").data;
    let assigned = Txn::new().delete(world.of_crew("todo/task"), Expect::Any).create(
        world.of_crew("assigned/later/task"),
        terms,
        Lifetime::Persistent,
    );
    answer(answer(ann.commit(assigned).await).required());
    let _master = leads(&world, &ann);
    let _worker = works(&world, &ann, "ann");

    let other = world.submits(&ann, "other", "data").await;
    world.ends(&other, by("data by ann")).await;
    sleep(world.brief()).await;
    assert_eq!(answer(task.status().await), Some(TaskStatus::Assigned), "its worker is there");

    world.deletes(&ann, "workers/later").await;
    world.ends(&task, by("data by ann")).await;
}

/// Lets another client lead without serving the crew, as long as the returned value exists.
async fn replaces(world: &World, other: &Client) -> Waiting<()> {
    let election = LeaderSelector::new(other, world.of_crew("master"));
    let leads = election.clone();
    let idle = Waiting::new(async move { leads.lead(|_lead| pending::<()>()).await.map(drop) });
    let waits = async || answer(election.candidates().await).len() == 2;
    world.eventually("it is a candidate", waits).await;
    let tickets = below(other, &world.of_crew("master")).await;
    let first = tickets.iter().min_by_key(|node| node.stat.map(|stat| stat.created));
    let first = first.expect("the master has one").path.clone();
    answer(answer(other.delete(&first, Expect::Any).await).required());
    idle
}

async fn a_master_that_was_replaced_takes_nothing_back(world: World) {
    // The TTL is so long that the master does not read its ticket during the test.
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.unhurried()).await;
    let _master = leads(&world, &ann);
    let slow = Slow::default();
    let _working = slow.works(&world, &bob, CrewWorker::new());
    let task = world.submits(&bob, "task", "data").await;
    world.eventually("it is begun", async || slow.begun() == 1).await;
    let worker = below(&bob, &world.of_crew("workers")).await.remove(0).path;

    let idle = replaces(&world, &bob).await;
    let commits = gate.count(Verb::Commit);
    answer(answer(bob.delete(&worker, Expect::Any).await).required());
    world.in_time("it tries", gate.called(Verb::Commit, commits + 1)).await;
    sleep(world.brief()).await;
    let assigned = format!("assigned/{}/task", worker.name());
    assert!(world.is_there(&bob, &assigned).await, "by one that does not lead");

    drop(idle);
    slow.let_go();
    world.ends(&task, by("slow")).await;
}

async fn a_master_that_was_replaced_removes_nothing(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.unhurried()).await;
    let leading = crew(&world, &ann).retention(world.brief());
    let _master = Waiting::new(async move { leading.lead().await });
    let _worker = works(&world, &bob, "bob");
    // The master leads once a task is done.
    let first = world.submits(&bob, "first", "data").await;
    let _end = answer(world.in_time("the end of a task", first.wait()).await);

    let idle = loop {
        let task = world.submits(&bob, "task", "data").await;
        let _end = answer(world.in_time("the end of a task", task.wait()).await);
        let idle = replaces(&world, &bob).await;
        // On a slow machine the task was removed before that.
        if world.is_there(&bob, "done/task").await {
            break idle;
        }
        drop(idle);
        world
            .eventually("it leads again", async || {
                let task = world.submits(&bob, &bob.random().id(), "data").await;
                answer(world.in_time("the end of a task", task.wait()).await).is_some()
            })
            .await;
    };
    sleep(world.brief() * 3).await;
    assert!(world.is_there(&bob, "done/task").await, "by one that does not lead");

    drop(idle);
    world.eventually("it is removed", async || !world.is_there(&bob, "tasks/task").await).await;
}

async fn a_drained_worker_gets_nothing_from_a_master_that_does_not_know_that(world: World) {
    let (gate, bob, slow) = (world.gate(), world.client().await, Slow::default());
    let ann = world.client_on(gate.clone(), world.unhurried()).await;
    let master = leads(&world, &ann);
    let _working = slow.works(&world, &bob, CrewWorker::new());
    let first = world.submits(&bob, "first", "data").await;
    world.eventually("it is begun", async || slow.begun() == 1).await;
    let worker = below(&bob, &world.of_crew("workers")).await.remove(0).path;

    gate.join_changes_of(&worker);
    assert!(answer(world.in_time("draining", crew(&world, &bob).drain(worker.name())).await));
    slow.let_go();
    world.ends(&first, by("slow")).await;
    let second = world.submits(&bob, "second", "data").await;
    sleep(world.brief()).await;
    assert_eq!((answer(second.status().await), slow.begun()), (Some(TaskStatus::Waiting), 1));

    master.stop().await;
    let _next = leads(&world, &bob);
    let _worker = works(&world, &bob, "bob");
    world.ends(&second, by("data by bob")).await;
}

/// A task of a worker that receives no notifications and does not end.
async fn held(world: &World, slow: &Slow, task: &CrewTask) -> (Gate, Waiting<Infallible>) {
    let (gate, working) = reads_only(world, slow).await;
    world.eventually("it is begun", async || slow.begun() == 1).await;
    assert_eq!(answer(task.status().await), Some(TaskStatus::Assigned));
    reads_no_more(&gate);
    (gate, working)
}

async fn a_failure_after_the_cancellation_does_not_reopen_a_task(world: World) {
    let (ann, gate) = (world.client().await, world.gate());
    let bob = world.client_on(gate.clone(), world.options()).await;
    gate.lose_events(true);
    let _master = leads(&world, &ann);
    let (begins, fails) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begun, failing) = (begins.clone(), fails.clone());
    let _unaware = works_as(&world, &bob, CrewWorker::new(), move |_task| {
        let (begun, failing) = (begun.clone(), failing.clone());
        async move {
            begun.notify_one();
            failing.notified().await;
            Err("on purpose".to_owned())
        }
    });
    let new = at_once(NewTask::new("data").retries(1));
    let task = world.submits(&ann, "task", new).await;
    world.in_time("the attempt", begins.notified()).await;
    reads_no_more(&gate);
    assert_eq!(answer(task.cancel().await), Some(TaskEnd::Cancelled));

    fails.notify_one();
    // Its report is rejected, so the worker reads the task.
    world.in_time("the read of the task", gate.held(1)).await;

    world.ends(&task, TaskEnd::Cancelled).await;
    assert!(!world.is_there(&ann, "todo/task").await, "the task is cancelled, and waits");
    gate.hold_behind(None);
    let assigned = world.of_crew("assigned");
    let is_given_up = async || {
        let workers = below(&ann, &assigned).await;
        let tasks = join_all(workers.iter().map(|worker| below(&ann, &worker.path))).await;
        tasks.concat().is_empty()
    };
    world.eventually("the worker gives it up", is_given_up).await;
}

async fn a_task_that_waits_again_while_it_is_cancelled_waits_no_more(world: World) {
    let (ann, gate, slow) = (world.client().await, world.gate(), Slow::default());
    let bob = world.client_on(gate.clone(), world.options()).await;
    let _master = leads(&world, &ann);
    let task = world.submits(&ann, "task", "data").await;
    let (worker_gate, _unaware) = held(&world, &slow, &task).await;
    let worker = below(&ann, &world.of_crew("workers")).await.remove(0).path;

    // The master has seen that the task does not wait.
    let reads = gate.count(Verb::Read);
    gate.hold_behind([(Verb::Read, reads)]);
    let cancelled = answer(crew(&world, &bob).task("task"));
    let cancels = Waiting::new(async move { cancelled.cancel().await });
    world.in_time("its look", gate.held(1)).await;
    answer(answer(ann.delete(&worker, Expect::Any).await).required());
    world.eventually("it waits again", async || world.is_there(&ann, "todo/task").await).await;
    gate.hold_behind([]);

    assert_eq!(cancels.gets(&world, "the end").await, Some(TaskEnd::Cancelled));
    assert!(!world.is_there(&ann, "todo/task").await, "it is over, and waits");
    worker_gate.hold_behind(None);
}

async fn a_task_that_waits_again_while_it_expires_waits_no_more(world: World) {
    let (bob, gate) = (world.client().await, world.gate());
    let ann = world.client_on(gate.clone(), world.unhurried()).await;
    let _master = leads(&world, &ann);
    loop {
        let slow = Slow::default();
        let id = bob.random().id();
        let task = NewTask::new("data").deadline(world.brief() * 2);
        let task = world.submits(&bob, &id, task).await;
        let (worker_gate, working) = reads_only(&world, &slow).await;
        let is_over = async || matches!(answer(task.status().await), Some(TaskStatus::Over(_)));
        let begins = async || slow.begun() == 1 || is_over().await;
        world.eventually("it is begun or is over", begins).await;
        reads_no_more(&worker_gate);
        let reads = gate.count(Verb::Read);
        gate.hold_behind([(Verb::Read, reads)]);
        let expires = async || gate.count(Verb::Read) > reads || is_over().await;
        world.eventually("it is about to expire", expires).await;
        let workers = below(&bob, &world.of_crew("workers")).await;
        let has_it = answer(task.status().await) == Some(TaskStatus::Assigned);
        // On a slow machine the task was late before that.
        if has_it && let [worker] = &workers[..] {
            answer(answer(bob.delete(&worker.path, Expect::Any).await).required());
            let todo = format!("todo/{id}");
            let waits =
                world.eventually("it waits again", async || world.is_there(&bob, &todo).await);
            // On some stores the master reads more before, and that is held back too.
            let _either = select(pin!(waits), pin!(gate.held(2))).await;
            gate.hold_behind(None);
            world.ends(&task, TaskEnd::Expired).await;
            assert!(!world.is_there(&bob, &todo).await, "it is over, and waits");
            worker_gate.hold_behind(None);
            return;
        }
        gate.hold_behind(None);
        worker_gate.hold_behind(None);
        working.stop().await;
        world.eventually("it is over", is_over).await;
    }
}

async fn a_task_is_kept_while_a_worker_has_it(world: World) {
    let (ann, slow) = (world.client().await, Slow::default());
    let leading = crew(&world, &ann).retention(world.brief());
    let _master = Waiting::new(async move { leading.lead().await });
    let task = world.submits(&ann, "task", "data").await;
    let (gate, _unaware) = held(&world, &slow, &task).await;

    assert_eq!(answer(task.cancel().await), Some(TaskEnd::Cancelled));
    sleep(world.brief() * 4).await;

    assert!(world.is_there(&ann, "done/task").await && world.is_there(&ann, "tasks/task").await);
    gate.hold_behind(None);
    gate.lose_events(false);
    slow.let_go();
    for dir in ["tasks", "done", "attempts"] {
        let is_empty = async || below(&ann, &world.of_crew(dir)).await.is_empty();
        world.eventually("it is removed", is_empty).await;
    }
}

async fn a_task_expires_once_though_its_name_is_used_again(world: World) {
    let (ann, plan) = world.scripted([]).await;
    let bob = world.client().await;
    let leading = crew(&world, &ann).retention(Duration::ZERO);
    let _master = Waiting::new(async move { leading.lead().await });
    let ends = world.of_crew("done/task");
    plan.cue(Cue::new(Site::ReplyLost).of(Verb::Create).under(ends));
    let late = NewTask::new("").needs("disk", "none").deadline(world.brief());
    world.submits(&bob, "task", late).await;

    let first = answer(crew(&world, &bob).task("task"));
    let is_removed = async || {
        sleep(MILLISECOND).await;
        plan.pending() == 0 && answer(first.status().await).is_none()
    };
    world.eventually("it has expired, and is removed", is_removed).await;
    let next = NewTask::new("").needs("disk", "none");
    let next = world.submits(&bob, "task", next).await;
    sleep(world.brief()).await;

    assert_eq!(answer(next.status().await), Some(TaskStatus::Waiting));
}

async fn a_removal_whose_answer_is_lost_spares_the_next_task_of_its_name(world: World) {
    let (ann, plan) = world.scripted([]).await;
    let (bob, retention) = (world.client().await, world.brief() * 4);
    let leading = crew(&world, &ann).retention(retention);
    let _master = Waiting::new(async move { leading.lead().await });
    let _worker = works(&world, &bob, "bob");
    let first = world.submits(&bob, "daily", "monday").await;
    world.ends(&first, by("monday by bob")).await;
    plan.cue(Cue::new(Site::ReplyLost).of(Verb::Delete).under(world.of_crew("done/daily")));
    // Before the request is retried.
    while world.is_there(&bob, "tasks/daily").await {
        sleep(MILLISECOND).await;
    }

    let submitted = Instant::now();
    let next = world.submits(&bob, "daily", "tuesday").await;
    world.ends(&next, by("tuesday by bob")).await;
    sleep(world.brief()).await;
    let kept = answer(next.status().await);

    assert_eq!(plan.pending(), 0, "its answer was lost");
    // On a slow machine the task may have been removed by now.
    if submitted.elapsed() < retention {
        assert_eq!(kept, Some(TaskStatus::Over(by("tuesday by bob"))));
    }
    world.eventually("it is removed", async || !world.is_there(&bob, "tasks/daily").await).await;
}

async fn a_failure_whose_answer_is_lost_counts_once(world: World) {
    let ann = world.client().await;
    let (bob, plan) = world.scripted([]).await;
    let runs = Arc::new(AtomicUsize::new(0));
    plan.cue(Cue::new(Site::ReplyLost).of(Verb::Set).under(world.of_crew("tasks/task")));
    let _master = leads(&world, &ann);
    let (count, brief) = (runs.clone(), world.brief());
    let _worker = works_as(&world, &bob, CrewWorker::new(), move |_task| {
        let run = count.fetch_add(1, Ordering::Relaxed);
        async move {
            if run == 0 {
                return Err("on purpose".to_owned());
            }
            sleep(brief).await;
            Ok(Bytes::from_static(b"done"))
        }
    });

    let task = world.submits(&ann, "task", at_once(NewTask::new("data").retries(1))).await;

    world.ends(&task, by("done")).await;
    assert_eq!((runs.load(Ordering::Relaxed), plan.pending()), (2, 0));
    let made = answer(task.history().await).expect("it is kept").attempts;
    let ends: Vec<_> = made.into_iter().filter_map(|attempt| attempt.end).collect();
    assert_eq!(ends, [AttemptEnd::Failed("on purpose".to_owned()), AttemptEnd::Done]);
}

async fn a_task_that_failed_is_not_tried_again_before_its_pause_is_over(world: World) {
    let (ann, pause) = (world.client().await, world.brief());
    let master = leads(&world, &ann);
    let tries = Arc::new(Mutex::new(Vec::new()));
    let noted = tries.clone();
    let _worker = works_as(&world, &ann, CrewWorker::new(), move |task| {
        let fails = task.id == "fails";
        if fails {
            noted.lock().expect("nobody panics").push((Instant::now(), clock::date()));
        }
        async move { if fails { Err("on purpose".to_owned()) } else { Ok(task.data) } }
    });
    let count = || tries.lock().expect("nobody panics").len();
    let new = NewTask::new("data").retries(3).backoff(pause, pause * 2);

    let task = world.submits(&ann, "fails", new).await;
    world.eventually("it is tried", async || count() == 1).await;
    // It does not block any other task.
    let other = world.submits(&ann, "other", "data").await;
    world.ends(&other, by("data")).await;
    // A later master observes it, too, by the wall clock, which does not follow paused time.
    world.eventually("it is tried again", async || count() == 2).await;
    master.stop().await;
    let bob = world.client().await;
    let _next = leads(&world, &bob);

    world.ends(&task, TaskEnd::Failed("on purpose".to_owned())).await;
    let tries = tries.lock().expect("nobody panics").clone();
    let passed = |two: &[(Instant, SystemTime)]| {
        let wall = two[1].1.duration_since(two[0].1).unwrap_or_default();
        (two[1].0 - two[0].0, wall)
    };
    let [first, second, third] = [0, 1, 2].map(|at| passed(&tries[at..at + 2]));
    assert!(first.0 >= pause && third.0 >= pause * 2, "{tries:?}");
    // Dates have milliseconds.
    assert!(second.0 + second.1 + 2 * MILLISECOND >= pause * 2, "{tries:?}");
}
