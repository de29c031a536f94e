//! The mutex: one holder at a time, in order, at the cost of one call.

use std::sync::Arc;

use synod_core::client::Client;
use synod_core::random::Random;
use synod_core::store::{Expect, Lifetime};
use synod_recipes::lock::{Mutex, MutexGuard};
use synod_testkit::cancel::stop_at;
use synod_testkit::fault::Verb;
use tokio::sync::Semaphore;

use crate::door::answer;
use crate::recipe::{Waiting, line};
use crate::world::World;

cases![
    "L-MX-1 L-MX-8 L-MX-7" breaks [SortsByName] => the_lock_is_given_in_the_order_it_was_asked_for,
    "L-MX-1 L-MX-8" breaks [PredecessorGoneIsTurn] => no_waiter_is_granted_because_its_predecessor_gave_up,
    "L-MX-1 L-MX-12" breaks [TicketPerSession] => two_tasks_of_one_client_exclude_each_other,
    "L-MX-1 L-MX-7" breaks [PredecessorGoneIsTurn] => a_crowd_is_let_in_one_by_one,
    "L-MX-3 L-SEQ-5" breaks [TokenIsSequence] => tokens_rise_though_the_directory_was_empty,
    "L-MX-5 L-MX-3" breaks [TxnUnguarded] => a_guarded_transaction_needs_the_lock,
    "L-MX-18" breaks [StrangersCount] => what_others_keep_in_the_line_is_ignored,
    "L-MX-16" breaks [DroppedTicketStays] => a_guard_that_is_dropped_gives_the_lock_back,
    "L-X-7" breaks [LookIgnored] => an_uncontended_lock_is_one_call_and_so_is_its_release,
    "L-X-7 L-MX-9" breaks [TriesByDrawing] => a_try_at_a_held_lock_asks_once_and_leaves_nothing,
];

fn mutex(world: &World, client: &Client) -> Mutex {
    Mutex::new(client, world.at("lock"))
}

/// A waiter for the lock, which has become the last of `count` in the wait queue.
async fn queued(world: &World, client: &Client, count: usize) -> Waiting<MutexGuard> {
    let mutex = mutex(world, client);
    let waiting = Waiting::new(async move { mutex.lock().await });
    world.stand(client, &world.at("lock"), count).await;
    waiting
}

async fn the_lock_is_given_in_the_order_it_was_asked_for(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let mut guard = answer(mutex(&world, &ann).lock().await);
    let mut waiting = Vec::new();
    for (place, client) in [&bob, &ann, &bob, &bob, &ann, &ann].into_iter().enumerate() {
        waiting.push(queued(&world, client, place + 2).await);
    }
    for next in waiting {
        let token = guard.token();
        answer(guard.release().await);
        guard = next.gets(&world, "the lock, in turn").await;
        assert!(guard.token() > token, "tokens rise");
    }
    answer(guard.release().await);
    world.left_alone(&ann, &world.at("lock")).await;
}

async fn no_waiter_is_granted_because_its_predecessor_gave_up(world: World) {
    let (ann, bob, eve) = (world.client().await, world.client().await, world.client().await);
    let held = answer(mutex(&world, &ann).lock().await);
    let gives_up = queued(&world, &bob, 2).await;
    let mut stays = queued(&world, &eve, 3).await;

    drop(gives_up);

    world.stand(&ann, &world.at("lock"), 2).await;
    stays.waits_for(world.brief(), "ann holds it").await;
    assert!(held.is_held());
    answer(held.release().await);
    let _guard = stays.gets(&world, "the lock, when it is free").await;
}

async fn two_tasks_of_one_client_exclude_each_other(world: World) {
    let client = world.client().await;
    let lock = mutex(&world, &client);
    let held = answer(lock.lock().await);

    // Holds for tasks that share the value and for tasks with another value of the same path.
    assert!(answer(lock.try_lock().await).is_none(), "another task has it");
    let (same, other) = (lock.clone(), mutex(&world, &client));
    let mut waits = Waiting::new(async move { same.lock().await });
    waits.waits_for(world.brief(), "another task has it").await;
    world.stand(&client, &world.at("lock"), 2).await;
    let mut waits_too = Waiting::new(async move { other.lock().await });
    waits_too.waits_for(world.brief(), "another task has it").await;

    answer(held.release().await);
    let guard = waits.gets(&world, "the lock").await;
    waits_too.waits_for(world.brief(), "another task has it").await;
    answer(guard.release().await);
    let _guard = waits_too.gets(&world, "the lock").await;
}

async fn a_crowd_is_let_in_one_by_one(world: World) {
    const CROWD: usize = 8;
    const ROUNDS: usize = 5;
    let inside = Arc::new(Semaphore::new(1));
    let mut all = Vec::new();
    for number in 0..CROWD {
        let (client, inside) = (world.client().await, inside.clone());
        let (mutex, random) = (mutex(&world, &client), world.random.fork(number as u64));
        all.push(Waiting::new(async move {
            let mut last = None;
            for _ in 0..ROUNDS {
                if random.below(2) == 0 {
                    // Sometimes a waiter times out, or is stopped before it waits.
                    let _gave_up = stop_at(1 + index(&random), mutex.lock()).await.transpose()?;
                }
                let guard = mutex.lock().await?;
                let alone = inside.try_acquire().expect("there is no other holder");
                assert!(guard.is_held() && Some(guard.token()) > last);
                last = Some(guard.token());
                tokio::task::yield_now().await;
                drop(alone);
                if random.below(2) == 0 {
                    guard.release().await?;
                }
            }
            Ok(())
        }));
    }
    for one in all {
        one.gets(&world, "the lock, in the end").await;
    }
}

fn index(random: &Random) -> usize {
    usize::try_from(random.below(3)).unwrap_or(0)
}

async fn tokens_rise_though_the_directory_was_empty(world: World) {
    let client = world.client().await;
    let mut last = None;
    for _ in 0..20 {
        let guard = answer(mutex(&world, &client).lock().await);
        assert!(Some(guard.token()) > last, "{} after {last:?}", guard.token());
        last = Some(guard.token());
        answer(guard.release().await);
        // Writes to another directory, so that the store may collect empty ones.
        let other = client.create(&world.at("other"), "", Lifetime::Persistent).await;
        assert!(answer(other).is_committed());
        assert!(answer(client.delete(&world.at("other"), Expect::Any).await).is_committed());
    }
}

async fn a_guarded_transaction_needs_the_lock(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let data = world.at("data");
    assert!(answer(ann.create(&data, "0", Lifetime::Persistent).await).is_committed());
    let guard = answer(mutex(&world, &ann).lock().await);
    let write = |text: &'static str| guard.txn().set(data.clone(), text, Expect::Any);
    let (first, late) = (write("1"), write("2"));

    assert!(answer(ann.commit(first).await).is_committed(), "ann has the lock");
    answer(guard.release().await);
    let _other = answer(mutex(&world, &bob).lock().await);
    let refused = answer(ann.commit(late).await);

    assert_eq!(refused.rejected().map(|no| no.index), Some(0), "bob has the lock");
    let node = answer(bob.get(&data).await).expect("created");
    assert_eq!(node.data, "1");
}

async fn what_others_keep_in_the_line_is_ignored(world: World) {
    const STRANGE: [&str; 8] =
        ["x", "lock-", "lock-abc", "lock--2147483648", "a", "block", "__READ__x", "0000000"];
    let (client, bob) = (world.client().await, world.bob().await);
    for name in STRANGE {
        bob.create(&world.at(&format!("lock/{name}")), "theirs").await;
    }
    bob.draw(&world.at("lock/strange-"), Lifetime::Persistent).await;

    let guard = answer(mutex(&world, &client).try_lock().await).expect("it is free");
    bob.draw(&world.at("lock/queue-"), Lifetime::Persistent).await;
    let waits = queued(&world, &client, 2).await;
    answer(guard.release().await);
    let guard = waits.gets(&world, "the lock").await;

    answer(guard.release().await);
    assert_eq!(line(&client, &world.at("lock")).await, []);
    assert_eq!(bob.names(&world.at("lock")).await.len(), STRANGE.len() + 2);
}

async fn a_guard_that_is_dropped_gives_the_lock_back(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let guard = answer(mutex(&world, &ann).lock().await);
    let waits = queued(&world, &bob, 2).await;

    // The guard may be dropped by any task.
    let gone = Waiting::new(async move {
        drop(guard);
        Ok(())
    });

    gone.gets(&world, "the drop").await;
    let _guard = waits.gets(&world, "the lock").await;
}

async fn an_uncontended_lock_is_one_call_and_so_is_its_release(world: World) {
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.options()).await;
    let counts = || [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));
    let mutex = mutex(&world, &client);

    let guard = answer(mutex.lock().await);
    assert_eq!(counts(), [1, 0, 0], "commits, reads, observes");
    answer(guard.release().await);
    assert_eq!(counts(), [2, 0, 0], "commits, reads, observes");
}

async fn a_try_at_a_held_lock_asks_once_and_leaves_nothing(world: World) {
    let (gate, ann) = (world.gate(), world.client().await);
    let bob = world.client_on(gate.clone(), world.options()).await;
    let _held = answer(mutex(&world, &ann).lock().await);

    assert!(answer(mutex(&world, &bob).try_lock().await).is_none(), "ann has it");

    assert_eq!(gate.count(Verb::Read), 1);
    assert_eq!([gate.count(Verb::Commit), gate.count(Verb::Watch)], [0, 0]);
    assert_eq!(line(&ann, &world.at("lock")).await.len(), 1);
}
