//! The crew at its limits: sizes, names, panics, and nodes that do not belong to it. The failure of
//! one task does not affect any other.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::panic::resume_unwind;
use std::time::Duration;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::path::Path;
use synod_core::store::{Lifetime, Txn};
use synod_recipes::crew::{Assignment, Crew, CrewPolicy, CrewTask, CrewWorker, NewTask, TaskEnd};

use crate::door::{answer, done, failure};
use crate::recipe::Waiting;
use crate::recipe::crew_members::{at_once, by, crew, leads, works, works_as};
use crate::world::World;

cases![
    "L-MW-19 L-MW-11" catches [EventDropped] => a_failure_of_any_length_ends_its_task_and_no_worker,
    "L-MW-19 L-MW-11" catches [EventDropped] => the_largest_task_may_fail_as_often_as_it_says,
    "L-MW-19 L-MW-10" catches [EventDropped] => the_largest_terms_are_assigned_by_a_master_that_goes_on,
    "L-MW-19 L-MW-2" catches [EventDropped] => a_result_that_is_too_large_fails_its_task_alone,
    "L-MW-19 L-MW-11" catches [EventDropped] => work_that_panics_fails_its_task_alone,
    "L-MW-19 L-MW-15" catches [EventDropped] => a_policy_that_panics_sets_its_task_aside,
    "L-MW-19" catches [EventDropped] => a_name_that_leaves_no_room_is_refused_before_anything_is_sent,
    "L-MW-19" catches [EventDropped] => a_node_that_is_none_of_a_crew_ends_no_member_of_it,
    "L-MW-9 L-MW-16" catches [EventDropped] => times_of_any_length_are_times,
];

/// More bytes than any store accepts in a node.
const TOO_MUCH: usize = 1_100_000;

/// A master and a worker. The name of a task selects its result: `long`, `huge`, `panic`, or
/// `fail`. Other tasks succeed.
fn members(world: &World, client: &Client) -> [Waiting<Infallible>; 2] {
    let does = |task: Assignment| async move {
        match task.id.split('-').next() {
            Some("long") => Err("x".repeat(TOO_MUCH)),
            Some("huge") => Ok(Bytes::from(vec![b'x'; TOO_MUCH])),
            Some("panic") => resume_unwind(Box::new("on purpose")),
            Some("fail") => Err("on purpose".to_owned()),
            _ => Ok(Bytes::from_static(b"done")),
        }
    };
    [leads(world, client), works_as(world, client, CrewWorker::new(), does)]
}

/// Asserts that a valid task is completed.
async fn others_are_done(world: &World, client: &Client) {
    let id = client.random().id();
    let task = world.submits(client, &id, "data").await;
    world.ends(&task, by("done")).await;
}

async fn a_failure_of_any_length_ends_its_task_and_no_worker(world: World) {
    let ann = world.client().await;
    let _members = members(&world, &ann);

    let task = world.submits(&ann, "long", at_once(NewTask::new("data").retries(2))).await;

    let end = answer(world.in_time("the end of a task", task.wait()).await);
    let Some(TaskEnd::Failed(text)) = end else { panic!("it is {end:?}") };
    assert!(text.len() > 10_000 && text.bytes().all(|byte| byte == b'x'), "{}", text.len());
    others_are_done(&world, &ann).await;
}

/// Submits the largest task of one of these sizes that the store accepts.
async fn largest(
    world: &World,
    client: &Client,
    id: &str,
    sizes: impl Iterator<Item = usize>,
    task: impl Fn(usize) -> NewTask,
) -> CrewTask {
    for bytes in sizes {
        match world.in_time("submitting", crew(world, client).submit(id, task(bytes))).await {
            Err(error) => assert_eq!(error.kind(), ErrorKind::TooLarge, "{bytes}: {error}"),
            Ok(submitted) => return submitted,
        }
    }
    panic!("the store takes nothing of this size");
}

async fn the_largest_task_may_fail_as_often_as_it_says(world: World) {
    let ann = world.client().await;
    let _members = members(&world, &ann);

    // The number of its failures is stored with its data.
    let data = Bytes::from(vec![b'x'; 1_000_000]);
    let new = |bytes| at_once(NewTask::new(data.slice(..bytes)).retries(11));
    let task = largest(&world, &ann, "fail", (990_000..=1_000_000).rev(), new).await;

    world.ends(&task, TaskEnd::Failed("on purpose".to_owned())).await;
    assert_eq!(answer(task.history().await).expect("it is kept").attempts.len(), 12);
    others_are_done(&world, &ann).await;
}

async fn the_largest_terms_are_assigned_by_a_master_that_goes_on(world: World) {
    let ann = world.client().await;
    let _members = members(&world, &ann);

    // An assignment has the terms and a date.
    let value = "x".repeat(1_000_000);
    let new = |bytes| at_once(NewTask::new("").prefers("disk", &value[..bytes]));
    let sizes = || (990_000..=999_950).rev().step_by(10);
    let task = largest(&world, &ann, "terms", sizes(), new).await;
    world.ends(&task, by("done")).await;

    let new = |bytes| at_once(NewTask::new("").retries(1).prefers("disk", &value[..bytes]));
    let task = largest(&world, &ann, "fail", sizes(), new).await;
    world.ends(&task, TaskEnd::Failed("on purpose".to_owned())).await;
    others_are_done(&world, &ann).await;
}

async fn a_result_that_is_too_large_fails_its_task_alone(world: World) {
    let ann = world.client().await;
    let _members = members(&world, &ann);

    let task = world.submits(&ann, "huge", NewTask::new("data").retries(5)).await;

    world.ends(&task, TaskEnd::Failed("the result is too large for the store".to_owned())).await;
    others_are_done(&world, &ann).await;
}

async fn work_that_panics_fails_its_task_alone(world: World) {
    let ann = world.client().await;
    let _members = members(&world, &ann);

    let task = world.submits(&ann, "panic", at_once(NewTask::new("data").retries(1))).await;

    world.ends(&task, TaskEnd::Failed("the work panicked: on purpose".to_owned())).await;
    assert_eq!(answer(task.history().await).expect("it is kept").attempts.len(), 2);
    others_are_done(&world, &ann).await;
}

async fn a_policy_that_panics_sets_its_task_aside(world: World) {
    let ann = world.client().await;
    let refused = world.submits(&ann, "refused", NewTask::new("").priority(-7)).await;
    let policy = CrewPolicy::chosen(|task, able| {
        if task.id == "refused" {
            resume_unwind(Box::new("on purpose"));
        }
        able.len().checked_sub(1)
    });
    let leading = crew(&world, &ann).policy(policy);
    let _master = Waiting::new(async move { leading.lead().await });
    let _worker = works(&world, &ann, "ann");

    for id in ["one", "two"] {
        let task = world.submits(&ann, id, "data").await;
        world.ends(&task, by("data by ann")).await;
    }

    assert_eq!(answer(refused.cancel().await), Some(TaskEnd::Cancelled));
}

/// The longest path of a crew: the node of an assignment has the directory, the longest name of a
/// worker, and a name.
const MAX_CREW_PATH: usize = 2_048 - "/assigned".len() - (1 + 65) - (1 + 1);

/// A path with the given length in bytes.
fn long_path(world: &World, bytes: usize) -> Path {
    let mut path = world.at("crew");
    while path.as_str().len() < bytes {
        let left = bytes - path.as_str().len() - 1;
        // The rest is never one byte, which would be the slash.
        let name = if left == 201 { 100 } else { left.min(200) };
        path = path.join(&"y".repeat(name)).expect("it is valid");
    }
    path
}

async fn a_name_that_leaves_no_room_is_refused_before_anything_is_sent(world: World) {
    let ann = world.client().await;
    let _members = members(&world, &ann);
    let longest = "x".repeat(255);
    let task = world.submits(&ann, &longest, "data").await;
    world.ends(&task, by("done")).await;
    let refused = crew(&world, &ann).submit(&format!("{longest}x"), "data").await;
    assert_eq!(failure(refused, "a longer name").kind(), ErrorKind::Invalid);

    // The node of an assignment has the longest path: here its name is one byte.
    let far = Crew::new(&ann, long_path(&world, MAX_CREW_PATH));
    let refused = far.submit("ab", "data").await;
    assert_eq!(failure(refused, "a path that is too long").kind(), ErrorKind::Invalid);
    let (leading, working) = (far.clone(), far.clone());
    let _master = Waiting::new(async move { leading.lead().await });
    let does = |task: Assignment| async { Ok::<_, Infallible>(task.data) };
    let _worker = Waiting::new(async move { working.work(CrewWorker::new(), does).await });
    let task = answer(far.submit("a", "data").await);
    world.ends(&task, by("data")).await;

    let path = long_path(&world, MAX_CREW_PATH + 1);
    let too_far = Crew::new(&ann, &path);
    let refused = too_far.submit("a", "data").await;
    assert_eq!(failure(refused, "submitting").kind(), ErrorKind::Invalid);
    let refused = world.in_time("leading", too_far.lead()).await;
    assert_eq!(failure(refused, "leading").kind(), ErrorKind::Invalid);
    let work = too_far.work(CrewWorker::new(), does);
    let refused = world.in_time("working", work).await;
    assert_eq!(failure(refused, "working").kind(), ErrorKind::Invalid);
    assert!(answer(ann.children(&path).await).is_empty(), "nothing was sent");
    others_are_done(&world, &ann).await;
}

async fn a_node_that_is_none_of_a_crew_ends_no_member_of_it(world: World) {
    let ann = world.client().await;
    let at = |below: &str| world.at(&format!("crew/{below}"));
    for strange in [
        "master/strange",
        "workers/strange",
        "tasks/strange",
        "todo/strange",
        "todo/strange/below",
        "assigned/strange",
        "assigned/strange/strange",
        "assigned/strange/strange/below",
        "attempts/strange",
        "done/strange",
        "switch",
    ] {
        answer(ann.put(&at(strange), "not ours").await);
    }
    let own = Lifetime::Session;
    done(ann.create(&at("workers/owned"), "not ours", own).await);
    // A task whose node is no task, and an assignment of no task to a worker that is lost.
    let open = Lifetime::Persistent;
    let txn = Txn::new().create(at("tasks/broken"), "not ours", open).create(
        at("todo/broken"),
        "{}",
        open,
    );
    answer(answer(ann.commit(txn).await).required());
    done(ann.create(&at("todo/none"), "{}", open).await);
    done(ann.create(&at("assigned/lost/gone"), "{}", open).await);

    let _members = members(&world, &ann);

    let broken = answer(crew(&world, &ann).task("broken"));
    let ends = async || matches!(broken.wait().await, Ok(Some(TaskEnd::Failed(_))));
    world.eventually("it is ended", ends).await;
    others_are_done(&world, &ann).await;
    for strange in ["workers/strange", "tasks/strange", "todo/strange", "assigned/strange/strange"]
    {
        let kept = answer(ann.get(&at(strange)).await).is_some_and(|it| it.data == "not ours");
        assert!(kept, "{strange}");
    }
    assert!(answer(crew(&world, &ann).snapshot().await).tasks.iter().all(|it| it.id != "strange"));
}

async fn times_of_any_length_are_times(world: World) {
    let ann = world.client().await;
    let crew = crew(&world, &ann).retention(Duration::MAX);
    let leading = crew.clone();
    let _master = Waiting::new(async move { leading.lead().await });
    let worker = CrewWorker::new().capacity(NonZeroU32::MAX);
    let _worker = works_as(&world, &ann, worker, |_task| async { Err("on purpose".to_owned()) });

    let new = NewTask::new("").priority(i32::MIN).deadline(Duration::MAX);
    let once = world.submits(&ann, "once", new).await;
    world.ends(&once, TaskEnd::Failed("on purpose".to_owned())).await;

    let new = NewTask::new("").priority(i32::MAX).retries(u32::MAX);
    let again = world.submits(&ann, "again", new.backoff(Duration::MAX, Duration::MAX)).await;
    let has_failed =
        async || answer(again.history().await).is_some_and(|it| it.attempts.len() == 1);
    world.eventually("it has failed", has_failed).await;
    let new = NewTask::new("").retries(1).backoff(Duration::MAX, Duration::ZERO);
    let twice = world.submits(&ann, "twice", new).await;
    world.ends(&twice, TaskEnd::Failed("on purpose".to_owned())).await;
    assert_eq!(answer(again.history().await).expect("it waits").attempts.len(), 1);
    assert_eq!(answer(again.cancel().await), Some(TaskEnd::Cancelled));
    let at = Path::new(&format!("{}/crew/tasks/once", world.dir.as_str())).expect("valid");
    assert!(answer(ann.get(&at).await).is_some(), "it is kept");
}
