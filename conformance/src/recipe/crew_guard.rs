//! The assignment of a task is a guard, and its result is accepted together with other writes.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use synod_core::client::Client;
use synod_core::held::{Held as _, Token};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Txn};
use synod_recipes::crew::{Assignment, CrewWorker, NewTask, TaskEnd, TaskResult, TaskStatus};
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::sync::{mpsc, watch};

use crate::door::answer;
use crate::recipe::Waiting;
use crate::recipe::crew_members::{at_once, by, crew, leads, works_as};
use crate::world::World;

cases![
    "L-MW-21 L-MW-2" breaks [AttemptsForgotten] => an_assignment_guards_until_its_attempt_ends,
    "L-MW-22 L-MW-1" breaks [ResultUnguarded] => what_a_result_writes_is_written_once_with_the_end_of_its_task,
    "L-MW-22 L-MW-11" breaks [ResultUnguarded] => a_result_whose_writes_are_rejected_is_a_failed_attempt,
    "L-MW-22 L-MW-8" breaks [ResultUnguarded] => a_result_that_comes_after_the_end_writes_nothing,
];

/// Returns `true` if a transaction under the guard commits.
async fn guards(assignment: &Assignment, client: &Client, data: &Path) -> bool {
    let write = assignment.txn().set(data.clone(), "its", Expect::Any);
    answer(client.commit(write).await).is_committed()
}

async fn an_assignment_guards_until_its_attempt_ends(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let data = world.at("data");
    answer(bob.put(&data, "").await);
    let _master = leads(&world, &bob);
    let (sender, mut assignments) = mpsc::unbounded_channel::<Assignment>();
    let (go, going) = watch::channel(0);
    let _worker = works_as(&world, &ann, CrewWorker::new().labelled("ann"), move |task| {
        let mut going = going.clone();
        sender.send(task.clone()).expect("the case waits");
        async move {
            let number = task.failed + 1;
            let _gone = going.wait_for(|attempts| *attempts >= number).await.is_err();
            Err("on purpose".to_owned())
        }
    });
    let task = world.submits(&bob, "task", at_once(NewTask::new("").retries(1))).await;
    let (mut last, mut earlier) = (None::<Token>, Vec::<Assignment>::new());
    for attempt in 1..=2 {
        let held = world.in_time("an attempt", assignments.recv()).await.expect("a task");
        assert!(held.is_held() && guards(&held, &bob, &data).await, "{attempt}");
        assert!(last < Some(held.token()), "the token increases");
        let workers = answer(crew(&world, &bob).snapshot().await).workers;
        assert_eq!((workers.len(), &*workers[0].name), (1, &*held.worker));
        for old in &earlier {
            assert!(!old.is_held() && !guards(old, &bob, &data).await, "{attempt}");
        }
        answer(world.in_time("work", held.run(async {})).await);

        go.send_replace(attempt);

        world.in_time("its loss", held.lost()).await;
        let ended = async || !guards(&held, &bob, &data).await;
        world.eventually("its end is reported", ended).await;
        assert!(!held.is_held());
        let ran = world.in_time("its loss", held.run(pending::<()>())).await;
        assert!(ran.is_err(), "the work is stopped");
        last = Some(held.token());
        earlier.push(held);
    }
    world.ends(&task, TaskEnd::Failed("on purpose".to_owned())).await;
    let history = answer(task.history().await).expect("it is there");
    let workers: Vec<_> = history.attempts.iter().map(|it| it.worker.clone()).collect();
    assert_eq!(workers, earlier.iter().map(|it| it.worker.clone()).collect::<Vec<_>>());

    // A cancelled task is no longer held, even before its worker notices that.
    go.send_replace(0);
    let task = world.submits(&bob, "cancelled", "").await;
    let held = world.in_time("an attempt", assignments.recv()).await.expect("a task");
    assert!(guards(&held, &bob, &data).await);
    assert_eq!(answer(task.cancel().await), Some(TaskEnd::Cancelled));
    assert!(!guards(&held, &bob, &data).await);
    world.in_time("its loss", held.lost()).await;
    assert!(!held.is_held());
}

/// A worker whose result creates a node in this directory for each task.
fn writes(world: &World, client: &Client, dir: &Path) -> Waiting<Infallible> {
    let (crew, dir) = (crew(world, client), dir.clone());
    let run = move |task: Assignment| {
        let node = dir.join(&task.id).expect("valid");
        let count = task.failed.to_string();
        async move {
            let write = Txn::new().create(node, count, Lifetime::Persistent);
            Ok::<_, String>(TaskResult::new("done").with(write))
        }
    };
    Waiting::new(async move { crew.work(CrewWorker::new(), run).await })
}

async fn what_a_result_writes_is_written_once_with_the_end_of_its_task(world: World) {
    let (bob, (ann, plan)) = (world.client().await, world.scripted([]).await);
    let dir = world.at("effects");
    let _master = leads(&world, &bob);
    let _worker = writes(&world, &ann, &dir);
    let first = world.submits(&bob, "first", "").await;
    world.ends(&first, by("done")).await;
    let sites = [Site::ReplyLost, Site::RequestLost, Site::AppliedLate, Site::Unsent];
    for (number, site) in sites.into_iter().enumerate() {
        plan.cue(Cue::new(site).of(Verb::Delete));
        let task = world.submits(&bob, &format!("{site:?}"), "").await;
        world.ends(&task, by("done")).await;
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        assert_eq!(answer(bob.children(&dir).await).len(), number + 2, "{site:?}");
        let history = answer(task.history().await).expect("it is there");
        assert_eq!(history.attempts.len(), 1, "{site:?}");
    }
}

async fn a_result_whose_writes_are_rejected_is_a_failed_attempt(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let dir = world.at("effects");
    let _master = leads(&world, &bob);
    answer(bob.put(&dir.join("there").expect("valid"), "theirs").await);
    let crew = crew(&world, &ann);
    let (effects, size) = (dir.clone(), answer(bob.session().await).info().limits.data);
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let run = move |task: Assignment| {
        counted.fetch_add(1, Ordering::Relaxed);
        let name = if task.failed == 2 { "free" } else { &*task.id };
        let node = effects.join(name).expect("valid");
        let data = if task.id == "large" { vec![0; size + 1] } else { Vec::new() };
        async move {
            let create = Txn::new().create(node.clone(), data, Lifetime::Persistent);
            // Two creates of one node are invalid.
            let twice = task.id == "invalid";
            let writes = if twice { create.create(node, "", Lifetime::Session) } else { create };
            Ok::<_, String>(TaskResult::new(task.id.clone()).with(writes))
        }
    };
    let _worker = Waiting::new(async move { crew.work(CrewWorker::new(), run).await });

    for (id, runs) in [("there", 1), ("large", 1), ("invalid", 1)] {
        let before = tries.load(Ordering::Relaxed);
        let task = world.submits(&bob, id, "").await;
        let end = answer(world.in_time("the end of a task", task.wait()).await);
        let Some(TaskEnd::Failed(why)) = end else { panic!("{id}: {end:?}") };
        assert!(id != "there" || why.contains("effects/there"), "{why}");
        assert_eq!(tries.load(Ordering::Relaxed) - before, runs, "{id}");
    }
    answer(answer(bob.delete(&dir.join("there").expect("valid"), Expect::Any).await).required());
    let there = dir.join("again").expect("valid");
    answer(bob.put(&there, "theirs").await);
    let task = world.submits(&bob, "again", at_once(NewTask::new("").retries(2))).await;
    world.ends(&task, by("again")).await;
    let nodes = answer(bob.children(&dir).await);
    let names: Vec<_> = nodes.iter().map(|node| node.path.name()).collect();
    assert_eq!(names, ["again", "free"]);
    let history = answer(task.history().await).expect("it is there");
    assert_eq!(history.attempts.len(), 3);
}

async fn a_result_that_comes_after_the_end_writes_nothing(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let dir = world.at("effects");
    let _master = leads(&world, &bob);
    let (crew, other) = (crew(&world, &ann), crew(&world, &bob));
    let (node, muted) = (dir.join("late").expect("valid"), gate.clone());
    let run = move |task: Assignment| {
        let (other, node, muted) = (other.clone(), node.clone(), muted.clone());
        async move {
            // The worker is not notified of the end before it reports its result.
            muted.mute(true);
            let end = answer(other.task(&task.id)).cancel().await;
            assert_eq!(answer(end), Some(TaskEnd::Cancelled));
            let write = Txn::new().create(node, "", Lifetime::Persistent);
            Ok::<_, String>(TaskResult::new("late").with(write))
        }
    };
    let _worker = Waiting::new(async move { crew.work(CrewWorker::new(), run).await });
    let task = world.submits(&bob, "task", "").await;
    world.ends(&task, TaskEnd::Cancelled).await;

    let is_recorded =
        async || answer(task.history().await).is_some_and(|it| it.attempts.len() == 1);
    world.eventually("the attempt is recorded as ended", is_recorded).await;

    let status = answer(task.status().await);
    assert_eq!(status, Some(TaskStatus::Over(TaskEnd::Cancelled)));
    assert!(answer(bob.children(&dir).await).is_empty());
    gate.mute(false);
}
