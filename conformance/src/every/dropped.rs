//! Uses that are dropped before their end.

use synod_testkit::cancel::{cancel_at_every_await, stop_at};
use tokio::time::timeout;

use crate::door::answer;
use crate::every::trial::{Trial, each};
use crate::recipe::Waiting;
use crate::world::{World, dropped_enough};

cases![
    "L-X-1 L-X-5" breaks [DroppedTicketStays MarkStays] => a_use_dropped_at_any_await_leaves_nothing,
    "L-X-1" breaks [DroppedTicketStays DroppedCreateStays] => a_wait_dropped_at_any_await_leaves_nothing,
    "L-WAT-14 L-X-5" needs [WatchCount] catches [DropLeavesWatch] => a_wait_that_was_given_up_leaves_no_watch,
];

async fn a_use_dropped_at_any_await_leaves_nothing(world: World) {
    let (ann, bob) = (world.hesitant().await, world.unhurried_client().await);
    each(Trial::all(&world), async |trial| {
        let name = trial.it.name;
        let drops = cancel_at_every_await(async || {
            answer(world.in_time(name, trial.it.whole(&ann, &trial.path)).await);
        });
        dropped_enough(drops.await, 0);
        trial.until_over(&world, &bob).await;
        answer(world.in_time(name, trial.it.whole(&bob, &trial.path)).await);
    })
    .await;
}

async fn a_wait_dropped_at_any_await_leaves_nothing(world: World) {
    let (ann, bob) = (world.unhurried_client().await, world.hesitant().await);
    each(Trial::waiting(&world), async |trial| {
        for waits in 1.. {
            let trial = trial.round(waits);
            let obstacle = answer(trial.it.obstruct(&ann, &trial.path).await).expect("it waits");
            let pause = world.think_for(waits.min(8));
            // In a separate task, which does not wake the waiter.
            let leaving = Waiting::new(async move {
                pause.await;
                obstacle.remove().await
            });
            let waiting = timeout(world.profile.patience, trial.it.waiting(&bob, &trial.path));
            let ended = stop_at(waits, waiting).await;
            leaving.gets(&world, "the removal of the obstacle").await;
            trial.until_over(&world, &ann).await;
            if let Some(ended) = ended {
                answer(ended.unwrap_or_else(|_late| panic!("{} waits on", trial.it.name)));
                return dropped_enough(waits, 2);
            }
        }
    })
    .await;
}

async fn a_wait_that_was_given_up_leaves_no_watch(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    for trial in Trial::waiting(&world) {
        let (name, base) = (trial.it.name, world.harness.watches().await);
        let obstacle = answer(trial.it.obstruct(&ann, &trial.path).await).expect("it waits");
        let before = world.harness.watches().await;
        // A recipe that outlives its session has a task, which may start to watch later. A task
        // that was left after each round would add more watches than that.
        let own = usize::from(trial.it.outlasts);
        for _ in 0..3 {
            let (bob, trial) = (bob.clone(), trial.clone());
            let waits = Waiting::new(async move { trial.it.waiting(&bob, &trial.path).await });
            let watching = async || world.harness.watches().await > before;
            world.eventually(&format!("{name}: it watches"), watching).await;
            drop(waits);
            let quiet = async || world.harness.watches().await <= before + own;
            world.eventually(&format!("{name}: no watch is left"), quiet).await;
        }
        answer(obstacle.remove().await);
        let over = async || own == 0 || world.harness.watches().await <= base;
        world.eventually(&format!("{name}: not even the obstacle watches"), over).await;
        trial.until_over(&world, &ann).await;
    }
}
