//! Many waits of one client for the tasks of a crew, which share their requests.

use futures_util::future::join_all;
use synod_core::client::Client;
use synod_core::error::{ErrorKind, Result};
use synod_core::store::Expect;
use synod_recipes::crew::{CrewTask, TaskEnd};
use synod_testkit::fault::Verb;
use tokio::time::sleep;

use crate::door::gate::{Gate, Way};
use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::recipe::crew_members::crew;
use crate::world::World;

cases![
    "L-X-7 L-MW-7" catches [EventDropped] => many_waits_of_a_client_share_their_requests,
    "L-X-7 L-MW-7" catches [WatchMissesUpdate] => many_waits_for_one_task_are_answered_by_one_read,
    "L-MW-7" needs [Expiry] breaks [ResyncSwallowed] => many_waits_outlast_the_session_of_their_client,
    "L-MW-7 L-X-1" catches [WatchMissesUpdate] => each_of_many_waits_has_the_end_of_its_own_task,
];

/// The number of waits of a client that have a watch each.
const ALONE: usize = 8;

type Ends = Waiting<Vec<Option<TaskEnd>>>;

/// Begins a wait for each of these tasks.
fn wait(world: &World, client: &Client, ids: &[String]) -> Ends {
    let crew = crew(world, client);
    let tasks: Vec<_> = ids.iter().map(|id| answer(crew.task(id))).collect();
    Waiting::new(async move {
        let ends = join_all(tasks.iter().map(CrewTask::wait)).await;
        ends.into_iter().collect::<Result<Vec<_>>>()
    })
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

async fn submit_all(world: &World, client: &Client, ids: &[String]) {
    for id in ids {
        world.submits(client, id, "data").await;
    }
}

async fn cancel_all(world: &World, client: &Client, ids: &[String]) {
    for id in ids {
        let task = answer(crew(world, client).task(id));
        let end = answer(world.in_time("cancelling a task", task.cancel()).await);
        assert_eq!(end, Some(TaskEnd::Cancelled));
    }
}

/// Returns the number of requests of a client that wait or read.
fn requests(gate: &Gate) -> usize {
    gate.count(Verb::Watch) + gate.count(Verb::Read)
}

/// Holds back the answers to the reads that begin from now on.
fn hold_reads(gate: &Gate) {
    gate.hold_behind([(Verb::Read, gate.count(Verb::Read))]);
}

async fn many_waits_of_a_client_share_their_requests(world: World) {
    let (ann, gate) = (world.unhurried_client().await, world.gate());
    let bob = world.client_on(gate.clone(), world.unhurried()).await;
    let ids = names(world.at_most(1_000, 200));
    submit_all(&world, &ann, &ids).await;
    gate.set(Way::Holding);

    let waits = wait(&world, &bob, &ids);
    world.in_time("the watches", gate.called(Verb::Watch, ALONE + 1)).await;
    gate.set(Way::Open);
    world.in_time("the first read", gate.answered(Verb::Read, 1)).await;
    hold_reads(&gate);
    cancel_all(&world, &ann, &ids).await;
    gate.hold_behind([]);

    let ends = waits.gets(&world, "the ends of the tasks").await;
    assert_eq!(ends, vec![Some(TaskEnd::Cancelled); ids.len()]);
    assert!(requests(&gate) < ids.len() / 2, "{} for {} waits", requests(&gate), ids.len());
}

async fn many_waits_for_one_task_are_answered_by_one_read(world: World) {
    let (ann, gate) = (world.client().await, world.gate());
    let bob = world.client_on(gate.clone(), world.options()).await;
    let ids = vec!["task".to_owned(); 1_000];
    submit_all(&world, &ann, &ids[..1]).await;

    let waits = wait(&world, &bob, &ids);
    world.in_time("the watches", gate.answered(Verb::Watch, ALONE + 1)).await;
    world.in_time("the first read", gate.answered(Verb::Read, 1)).await;
    cancel_all(&world, &ann, &ids[..1]).await;

    let ends = waits.gets(&world, "the end of the task").await;
    assert_eq!(ends, vec![Some(TaskEnd::Cancelled); ids.len()]);
    assert!(requests(&gate) < ids.len() / 2, "{} for {} waits", requests(&gate), ids.len());
}

async fn many_waits_outlast_the_session_of_their_client(world: World) {
    let (ann, gate) = (world.client().await, world.gate());
    let bob = world.client_on(gate.clone(), world.options()).await;
    let ids = names(3 * ALONE);
    submit_all(&world, &ann, &ids).await;
    let waits = wait(&world, &bob, &ids);
    world.in_time("the watches", gate.answered(Verb::Watch, ALONE + 1)).await;
    world.in_time("the first read", gate.answered(Verb::Read, 1)).await;

    let session = answer(bob.session().await);
    gate.set(Way::Silent);
    world.expire(session.info().id).await;
    cancel_all(&world, &ann, &ids).await;
    // It is finished and removed while the waits see nothing.
    for dir in ["tasks", "done"] {
        let node = world.at(&format!("crew/{dir}/{}", ids[0]));
        answer(answer(ann.delete(&node, Expect::Any).await).required());
        let node = world.at(&format!("crew/{dir}/{}", ids[2 * ALONE]));
        answer(answer(ann.delete(&node, Expect::Any).await).required());
    }
    gate.set(Way::Open);

    let ends = waits.gets(&world, "the ends of the tasks, in the next session").await;
    for (number, end) in ends.iter().enumerate() {
        let is_removed = [0, 2 * ALONE].contains(&number);
        let expected = (!is_removed).then_some(TaskEnd::Cancelled);
        assert_eq!(end, &expected, "task {number}");
    }
}

async fn each_of_many_waits_has_the_end_of_its_own_task(world: World) {
    let (ann, gate) = (world.client().await, world.gate());
    let bob = world.client_on(gate.clone(), world.options()).await;
    let (others, open, next) = (names(ALONE), ["open".to_owned()], ["next".to_owned()]);
    for ids in [&others[..], &open, &next] {
        submit_all(&world, &ann, ids).await;
    }
    answer(ann.put(&world.at("crew/tasks/foreign"), "not a task").await);
    let alone = wait(&world, &bob, &others);
    world.in_time("the waits with a watch each", gate.answered(Verb::Watch, ALONE)).await;
    let ended = async |id| {
        let task = answer(crew(&world, &bob).task(id));
        world.in_time("the end of a wait", task.wait()).await
    };

    // A wait that is dropped ends no other, nor does one that fails.
    let (kept, dropped) = (wait(&world, &bob, &open), wait(&world, &bob, &open));
    assert_eq!(answer(ended("none").await), None);
    assert_eq!(failure(ended("foreign").await, "a wait for no task").kind(), ErrorKind::Corrupt);
    dropped.stop().await;
    cancel_all(&world, &ann, &open).await;
    assert_eq!(kept.gets(&world, "the end of a task").await, [Some(TaskEnd::Cancelled)]);
    assert_eq!(answer(ended("open").await), Some(TaskEnd::Cancelled), "it was over before");

    // The shared watch begins again after its last wait.
    let again = wait(&world, &bob, &next);
    sleep(world.brief()).await;
    cancel_all(&world, &ann, &next).await;
    assert_eq!(again.gets(&world, "the end of a task").await, [Some(TaskEnd::Cancelled)]);
    cancel_all(&world, &ann, &others).await;
    assert_eq!(alone.gets(&world, "the others").await, vec![Some(TaskEnd::Cancelled); ALONE]);
}
