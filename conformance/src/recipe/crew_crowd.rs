//! A crew with very many tasks, and a crew with very many workers.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::iter;
use synod_core::client::Client;
use synod_core::store::Query;
use synod_recipes::crew::CrewWorker;

use crate::door::answer;
use crate::recipe::Waiting;
use crate::recipe::crew_members::{Slow, by, crew, leads, works};
use crate::world::World;

cases![
    "L-MW-9 L-X-7" breaks [EventReadsAll] => what_is_stored_and_asked_does_not_grow_with_the_tasks,
    "L-MW-10 L-MW-1" catches [EventDropped] => very_many_workers_have_a_task_each,
];

/// The number of tasks that are open at the same time.
const OPEN: usize = 50;

/// The number of tasks that are done one after the other, to count their costs.
const FEW: usize = 20;

/// The maximum number of nodes of a crew without tasks: the switch, its master, and four workers.
const AT_REST: usize = 6;

async fn what_is_stored_and_asked_does_not_grow_with_the_tasks(world: World) {
    let (bob, gate) = (world.unhurried_client().await, world.gate());
    let ann = world.client_on(gate.clone(), world.unhurried()).await;
    let master = crew(&world, &ann).retention(Duration::ZERO);
    let _leads = Waiting::new(async move { master.lead().await });
    let _workers = ["bob"; 4].map(|name| works(&world, &bob, name));
    go_through(&world, &bob, "first", OPEN, OPEN).await;
    world.eventually("no task is left", async || nodes(&world, &bob).await <= AT_REST).await;

    let tasks = many("SYNOD_CREW_TASKS", world.at_most(1_000, 200));
    for part in 0..4 {
        go_through(&world, &bob, &format!("{part}"), tasks / 4, OPEN).await;
        world.eventually("no task is left", async || nodes(&world, &bob).await <= AT_REST).await;
    }

    let lists = gate.lists();
    go_through(&world, &bob, "last", FEW, 1).await;
    // A store that keeps few events for a reader must list again now and then.
    let asked = gate.lists() - lists;
    assert!(asked <= world.at_most(0, FEW / 4), "{asked} lists for {FEW} tasks");
}

async fn very_many_workers_have_a_task_each(world: World) {
    let (ann, bob) = (world.unhurried_client().await, world.unhurried_client().await);
    let _master = leads(&world, &ann);
    let (slow, many) = (Slow::default(), many("SYNOD_CREW_WORKERS", world.at_most(200, 100)));
    let working: Vec<_> =
        (0..many).map(|_worker| slow.works(&world, &bob, CrewWorker::new())).collect();
    let registered = async || answer(bob.children(&world.at("crew/workers")).await).len() == many;
    world.eventually("all have registered", registered).await;

    let tasks: Vec<_> = iter(0..many)
        .map(|number| {
            let world = &world;
            let ann = &ann;
            async move { world.submits(ann, &number.to_string(), "data").await }
        })
        .buffer_unordered(OPEN)
        .collect()
        .await;

    world.eventually("each has a task", async || slow.begun() == many).await;
    slow.let_go();
    for task in &tasks {
        world.ends(task, by("slow")).await;
    }
    drop(working);
}

/// The number in this environment variable, or else the usual number: on a store that answers
/// immediately, more tasks take little time.
fn many(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |number| number.parse().expect("it is a number"))
}

/// Submits this number of tasks, some of them concurrently, and waits until all are done.
async fn go_through(world: &World, bob: &Client, part: &str, tasks: usize, open: usize) {
    let all = iter(0..tasks).map(|number| async move {
        let task = world.submits(bob, &format!("{part}-{number}"), "data").await;
        // It may be removed before this waits for it.
        let end = answer(world.in_time("the end of a task", task.wait()).await);
        assert!(end.is_none_or(|end| end == by("data by bob")));
    });
    all.buffer_unordered(open).collect::<Vec<()>>().await;
}

/// Returns the number of nodes of the crew.
async fn nodes(world: &World, bob: &Client) -> usize {
    let view = answer(bob.read(Query::subtree(world.at("crew"))).await);
    view.nodes.iter().filter(|node| node.stat.is_some()).count()
}
