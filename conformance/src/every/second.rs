//! Two instances of a recipe. One of them stops, and does not delay the other one.

use std::thread;

use futures_util::future::BoxFuture;
use synod_core::error::Result;
use synod_testkit::cancel::stop_at;
use synod_testkit::recipe::Act;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use crate::door::answer;
use crate::every::trial::{Trial, each};
use crate::recipe::Waiting;
use crate::world::World;

cases![
    "L-X-12" needs [ManyUses] catches [OneCallAtATime DroppedCallJams] => a_use_that_is_not_polled_is_in_no_others_way,
    "L-X-12" needs [ManyUses] catches [OneCallAtATime] => a_second_instance_works_while_the_first_is_in_use,
    "L-X-12" needs [ManyUses] catches [OneCallAtATime DroppedCallJams] => a_runtime_that_ends_is_in_no_others_way,
];

async fn a_use_that_is_not_polled_is_in_no_others_way(world: World) {
    let ann = world.hesitant().await;
    each(Trial::all(&world), async |trial| {
        let name = trial.it.name;
        for polls in 1.. {
            let (first, second) = (trial.round(2 * polls), trial.round(2 * polls + 1));
            let mut kept = Box::pin(first.it.whole(&ann, &first.path));
            let ended = stop_at(polls, kept.as_mut()).await;

            answer(world.in_time(name, second.it.whole(&ann, &second.path)).await);
            if first.shares() {
                answer(world.in_time(name, first.it.whole(&ann, &first.path)).await);
            }

            match ended {
                None => answer(world.in_time(name, kept).await),
                Some(result) => return answer(result),
            }
        }
    })
    .await;
}

impl Trial {
    /// Returns `true` if a use continues at the path of a stopped use. It does not if the stopped
    /// use holds the lock or node that this one needs.
    fn shares(&self) -> bool {
        /// The master of a crew and the leader of a schedule hold the leadership, a member of a
        /// partition its name and its items, and an owner its node.
        const HOLDERS: [&str; 5] =
            ["crew", "schedule", "partition", "persistent_node", "persistent_node/ttl"];
        matches!(self.it.act, Act::Change { .. }) && !HOLDERS.contains(&self.it.name)
    }
}

async fn a_second_instance_works_while_the_first_is_in_use(world: World) {
    let (ann, bob) = (world.unhurried_client().await, world.unhurried_client().await);
    each(Trial::waiting(&world), async |trial| {
        let (name, first, second) = (trial.it.name, trial.round(1), trial.round(2));
        let obstacle = answer(first.it.obstruct(&ann, &first.path).await).expect("it waits");
        let waiting = {
            let (first, bob) = (first.clone(), bob.clone());
            Waiting::new(async move { first.it.begin(&bob, &first.path).await })
        };
        sleep(world.brief()).await;

        answer(world.in_time(name, second.it.whole(&bob, &second.path)).await);

        answer(obstacle.remove().await);
        let held = waiting.gets(&world, name).await;
        answer(world.in_time(name, second.it.whole(&bob, &second.path)).await);
        if let Some(proof) = held {
            assert!(proof.is_held(), "{name}: the second one took nothing with it");
            answer(world.in_time(name, proof.release()).await);
        }
        first.until_over(&world, &ann).await;
        second.until_over(&world, &ann).await;
    })
    .await;
}

async fn a_runtime_that_ends_is_in_no_others_way(world: World) {
    /// The tasks of the first runtime run between two polls on the second one.
    const POLLS: usize = 4;
    let (ann, bob) = (&world.unhurried_client().await, &world.unhurried_client().await);
    each(Trial::all(&world), async |trial| {
        for polls in 1..=POLLS {
            let (trial, second) = (trial.round(polls), SecondRuntime::new());
            let mut using: Option<Using> = Some({
                let (trial, ann) = (trial.clone(), ann.clone());
                Box::pin(async move { trial.it.whole(&ann, &trial.path).await })
            });
            for _ in 0..polls {
                using = second.polls(using);
                sleep(world.brief() / 100).await;
            }

            second.ends(using);

            if trial.outlasts_its_runtime() {
                let name = trial.it.name;
                answer(world.in_time(name, trial.it.whole(ann, &trial.path)).await);
                answer(world.in_time(name, trial.it.whole(bob, &trial.path)).await);
            }
        }
    })
    .await;

    // Nodes that tasks of the other runtime had to remove are removed with the session.
    answer(world.in_time("the end of a client", ann.close()).await);
    each(Trial::all(&world), async |trial| {
        for trial in (1..=POLLS).map(|polls| trial.round(polls)) {
            answer(world.in_time(trial.it.name, trial.it.whole(bob, &trial.path)).await);
            trial.until_over(&world, bob).await;
        }
    })
    .await;
}

impl Trial {
    /// Returns `true` if others can use the path of a use whose runtime has ended, even while the
    /// session of that use is alive.
    fn outlasts_its_runtime(&self) -> bool {
        /// A claim, a worker, a member of a partition and a persistent node belong to the session,
        /// and no task is left to release them.
        const OF_THE_SESSION: [&str; 4] = ["queue", "partition", "persistent_node/ttl", "crew"];
        !OF_THE_SESSION.contains(&self.it.name)
    }
}

type Using = BoxFuture<'static, Result<()>>;

/// A second runtime, on another thread. It runs only during [`SecondRuntime::polls`].
struct SecondRuntime(Runtime);

impl SecondRuntime {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        Self(runtime.expect("the operating system lets a runtime start"))
    }

    /// Polls a use once, and lets the tasks that it has started run. Returns the use if it has not
    /// ended.
    fn polls(&self, using: Option<Using>) -> Option<Using> {
        let polling = async {
            let mut using = using?;
            let ended = stop_at(1, &mut using).await;
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            ended.is_none().then_some(using)
        };
        on_a_thread(|| self.0.block_on(polling))
    }

    /// Drops a use on this runtime, which ends at once.
    fn ends(self, using: Option<Using>) {
        on_a_thread(|| {
            self.0.block_on(async { drop(using) });
            drop(self);
        });
    }
}

/// A runtime must not run within another one.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().expect("it does not panic"))
}
