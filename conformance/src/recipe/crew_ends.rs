//! The crew: the retention of finished tasks, and the state of a master that has missed events.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use futures_util::stream::iter;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime, Query, Txn};
use synod_recipes::crew::{CrewWorker, NewTask, TaskEnd, TaskStatus};
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::time::{Instant, sleep};

use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::recipe::crew_members::{Slow, below, by, crew, leads, works, works_as};
use crate::world::World;

cases![
    "L-MW-9" catches [EventDropped] => a_finished_task_is_removed_though_no_master_lives_as_long_as_it_is_kept,
    "L-MW-9 L-MW-3 L-MW-16" catches [EventDropped] => a_master_that_has_missed_events_knows_what_is_there,
    "L-MW-19" catches [EventDropped] => a_member_that_may_not_read_says_so,
    "L-MW-9 L-MW-5" catches [EventDropped] => two_crews_of_one_session_do_not_notice_each_other,
];

async fn a_finished_task_is_removed_though_no_master_lives_as_long_as_it_is_kept(world: World) {
    let ann = world.client().await;
    // The date of an end comes from a wall clock, which does not follow paused time.
    let millis = u64::try_from(world.at_most(300, 5_000)).expect("it is small");
    let retention = Duration::from_millis(millis);
    let worker = works(&world, &ann, "ann");
    let master = leads(&world, &ann);
    for number in 0..3 {
        let task = world.submits(&ann, &number.to_string(), "data").await;
        world.ends(&task, by("data by ann")).await;
    }
    master.stop().await;
    worker.stop().await;

    let (begun, is_over) = (clock::date(), async |dir| {
        answer(ann.children(&world.at(&format!("crew/{dir}"))).await).is_empty()
    });
    while !(is_over("tasks").await && is_over("done").await) {
        let passed = clock::date().duration_since(begun).unwrap_or_default();
        assert!(passed < retention * 6, "no master lives for so long");
        let crew = crew(&world, &ann).retention(retention);
        let master = Waiting::new(async move { crew.lead().await });
        sleep(retention / 4).await;
        master.stop().await;
    }
    assert!(is_over("attempts").await && is_over("todo").await);
}

/// Creates more nodes in a directory than any reader of its changes receives. The nodes do not
/// belong to the crew.
async fn floods(world: &World, client: &Client, dir: &str) {
    const NODES: usize = 4_200;
    const AT_ONCE: usize = 30;
    let parts = (0..NODES).step_by(AT_ONCE).map(|first| {
        let all = first..first + AT_ONCE;
        all.fold(Txn::new(), |txn, number| {
            let path = world.at(&format!("crew/{dir}/strange-{number}"));
            txn.create(path, "not ours", Lifetime::Persistent)
        })
    });
    let commits = iter(parts).map(|txn| client.commit(txn));
    let outcomes: Vec<_> = commits.buffer_unordered(8).collect().await;
    for outcome in outcomes {
        answer(answer(outcome).required());
    }
}

async fn a_master_that_has_missed_events_knows_what_is_there(world: World) {
    let (gate, bob) = (world.gate(), world.unhurried_client().await);
    let ann = world.client_on(gate.clone(), world.unhurried()).await;
    let retention = world.brief() * 10;
    let leading = crew(&world, &ann).retention(retention);
    let _master = Waiting::new(async move { leading.lead().await });
    let slow = Slow::default();
    let _slow = slow.works(&world, &bob, CrewWorker::new().property("pace", "slow"));
    let held = world.submits(&bob, "held", NewTask::new("data").needs("pace", "slow")).await;
    world.eventually("it is begun", async || slow.begun() == 1).await;
    let slow_worker = below(&bob, &world.at("crew/workers")).await.remove(0).path;
    let worker = works(&world, &bob, "bob");
    let early = world.submits(&bob, "early", "data").await;
    world.ends(&early, by("data by bob")).await;
    let ended = (Instant::now(), clock::date());
    worker.stop().await;
    let new = NewTask::new("").needs("disk", "none").deadline(world.brief() * 8);
    let late = world.submits(&bob, "late", new).await;
    let waits = world.submits(&bob, "waits", "data").await;
    sleep(world.brief()).await;

    // From now on it is notified only that it has missed events, and the answers to its next reads
    // are held back.
    gate.lose_events(true);
    gate.hold_behind([Verb::Read, Verb::Watch].map(|verb| (verb, gate.count(verb))));
    for dir in ["todo", "workers", "assigned/none/none", "done"] {
        floods(&world, &bob, dir).await;
    }
    answer(answer(bob.delete(&slow_worker, Expect::Any).await).required());
    let meanwhile = world.submits(&bob, "meanwhile", "data").await;
    let cancelling = (Instant::now(), clock::date());
    let cancelled = world.submits(&bob, "cancelled", "data").await;
    assert_eq!(answer(cancelled.cancel().await), Some(TaskEnd::Cancelled));
    gate.lose_events(false);
    gate.hold_behind([]);

    let able = CrewWorker::new().property("pace", "slow");
    let _worker = works_as(&world, &bob, able, |task| async move { Ok(task.data) });
    for task in [waits, meanwhile, held] {
        world.ends(&task, by("data")).await;
    }
    world.ends(&late, TaskEnd::Expired).await;
    let is_removed = async || answer(early.status().await).is_none();
    world.eventually("it is removed", is_removed).await;
    // The wall clock also counts, which does not follow paused time.
    let passed = |(since, date): (Instant, SystemTime)| {
        since.elapsed() + clock::date().duration_since(date).unwrap_or_default()
    };
    assert!(passed(ended) >= retention, "it was to be kept");
    let kept = answer(cancelled.status().await);
    // On a slow machine the task may have been removed by now.
    if passed(cancelling) < retention {
        assert_eq!(kept, Some(TaskStatus::Over(TaskEnd::Cancelled)));
    }
}

async fn a_member_that_may_not_read_says_so(world: World) {
    let bob = world.client().await;
    let mut members = Vec::new();
    for dir in ["workers", "todo", "assigned", "done", "switch", "assigned/W"] {
        let gate = world.gate();
        let (ann, plan) = world.scripted_on(gate.clone(), world.unhurried(), []).await;
        let (is_worker, it) = (dir == "assigned/W", crew(&world, &ann));
        // The member alone has this client. The other members of the crew use another client.
        let mut member = Waiting::new(async move {
            if is_worker {
                it.work(CrewWorker::new(), |task| async { Ok::<_, Infallible>(task.data) }).await
            } else {
                it.lead().await
            }
        });
        members = vec![if is_worker { leads(&world, &bob) } else { works(&world, &bob, "bob") }];
        let task = world.submits(&bob, &bob.random().id(), "data").await;
        let _end = answer(world.in_time("the end of a task", task.wait()).await);

        // It is notified that events were missed, and its next reads are refused.
        let workers = below(&bob, &world.at("crew/workers")).await;
        let worker = workers.first().filter(|_| is_worker).map(|node| node.path.name());
        let at = world.at(&format!("crew/{}", dir.replace('W', worker.unwrap_or("W"))));
        plan.cue(Cue::new(Site::Denied).of(Verb::Read).under(at.clone()));
        gate.lose_events(true);
        match dir {
            "switch" => answer(crew(&world, &bob).resume().await),
            "assigned" => drop(answer(bob.put(&world.at("crew/assigned/no/no"), "").await)),
            _ => drop(answer(bob.put(&at.join("none").expect("valid"), "").await)),
        }
        let ended = member.result_before(sleep(world.profile.patience)).await;
        let refused = failure(ended.unwrap_or_else(|| panic!("{dir}: it waits")), dir);
        assert_eq!(refused.kind(), ErrorKind::Denied, "{dir}");
    }
    drop(members);
}

async fn two_crews_of_one_session_do_not_notice_each_other(world: World) {
    let ann = world.client().await;
    let crews = ["one", "other"]
        .map(|name| synod_recipes::crew::Crew::new(&ann, world.at(&format!("crew/{name}"))));
    let mut members = Vec::new();
    for (number, crew) in crews.iter().enumerate() {
        let (leading, working) = (crew.clone(), crew.clone());
        members.push(Waiting::new(async move { leading.lead().await }));
        let does = move |_task| async move { Ok::<_, Infallible>(number.to_string()) };
        members.push(Waiting::new(async move { working.work(CrewWorker::new(), does).await }));
    }
    for round in 0..3 {
        for (number, crew) in crews.iter().enumerate() {
            let task = answer(crew.submit(&format!("task-{round}"), "data").await);
            let end = answer(world.in_time("the end of a task", task.wait()).await);
            assert_eq!(end, Some(TaskEnd::Done(number.to_string().into())), "of {number}");
        }
    }
    let first = answer(crews[0].snapshot().await);
    assert_eq!((first.workers.len(), first.tasks.len()), (1, 3));
    answer(crews[0].pause().await);
    let paused = answer(crews[0].submit("paused", "data").await);
    let other = answer(crews[1].submit("paused", "data").await);
    let end = answer(world.in_time("the end of a task", other.wait()).await);
    assert_eq!(end, Some(TaskEnd::Done("1".into())));
    assert_eq!(answer(paused.status().await), Some(TaskStatus::Waiting));
    let view = answer(ann.read(Query::subtree(world.at("crew/other/tasks"))).await);
    assert_eq!(view.nodes.iter().filter(|node| node.stat.is_some()).count(), 4);
}
