//! Locks without a wait queue, and locks with one ticket for several holders.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::join_all;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::held::{Release, Token};
use synod_core::store::{Expect, Lifetime};
use synod_recipes::lock::{CohortMutex, Mutex, UnfairLock};
use synod_testkit::cancel::stop_at;
use synod_testkit::fault::Verb;
use tokio::sync::Semaphore;

use crate::door::answer;
use crate::recipe::{Waiting, line};
use crate::world::World;

cases![
    "L-MX-1 L-MX-3" breaks [UnfairUnlooked] => an_unfair_lock_excludes_like_any,
    "L-X-7 L-MX-9" breaks [LookIgnored] => an_unfair_lock_is_one_call_and_its_waiters_have_no_ticket,
    "L-MX-12 L-MX-3 L-X-7" breaks [TurnUncounted] => tasks_of_one_process_pass_a_lock_on,
    "L-MX-7" breaks [TurnUncounted] => a_waiter_of_another_process_gets_its_turn,
    "L-MX-5" breaks [TxnUnguarded] => a_guard_that_made_a_transaction_is_not_passed_on,
    "L-MX-9 L-MX-7" breaks [DroppedTicketStays] => a_lock_passed_on_to_a_dropped_waiter_is_released,
    "L-MX-12 L-X-7 L-MX-9" breaks [TriesByDrawing] => a_try_at_a_lock_that_is_passed_on_never_waits,
];

fn passing(world: &World, client: &Client, most: u32) -> CohortMutex {
    let most = NonZeroU32::new(most).expect("more than none");
    CohortMutex::new(client, world.at("lock"), most)
}

async fn an_unfair_lock_excludes_like_any(world: World) {
    const CROWD: usize = 6;
    const ROUNDS: usize = 4;
    let inside = Arc::new(Semaphore::new(1));
    let mut all = Vec::new();
    for number in 0..CROWD {
        let (client, inside) = (world.client().await, inside.clone());
        let unfair = UnfairLock::new(&client, world.at("lock"));
        let fair = Mutex::new(&client, world.at("lock"));
        all.push(Waiting::new(async move {
            let mut last = None;
            for _ in 0..ROUNDS {
                last = Some(if number == 0 {
                    alone(&inside, last, fair.lock().await?).await?
                } else {
                    alone(&inside, last, unfair.lock().await?).await?
                });
            }
            Ok(())
        }));
    }
    for one in all {
        one.gets(&world, "the lock, in the end").await;
    }
}

/// Releases a guard after a while in which no other task has one, and returns its token.
async fn alone(inside: &Semaphore, last: Option<Token>, guard: impl Release) -> Result<Token> {
    let alone = inside.try_acquire().expect("there is no other holder");
    assert!(guard.is_held() && Some(guard.token()) > last);
    let token = guard.token();
    tokio::task::yield_now().await;
    drop(alone);
    guard.release().await?;
    Ok(token)
}

async fn an_unfair_lock_is_one_call_and_its_waiters_have_no_ticket(world: World) {
    let (gate, ann) = (world.gate(), world.client().await);
    let bob = world.client_on(gate.clone(), world.options()).await;
    let counts = || [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));
    let lock = UnfairLock::new(&bob, world.at("lock"));
    let guard = answer(lock.lock().await);
    answer(guard.release().await);
    assert_eq!(counts(), [2, 0, 0], "commits, reads, observes");

    let held = answer(UnfairLock::new(&ann, world.at("lock")).lock().await);
    assert!(answer(lock.try_lock().await).is_none(), "ann has it");
    let mut waits = Waiting::new(async move { lock.lock().await });
    world.in_time("bob's watch", gate.called(Verb::Watch, 1)).await;

    waits.waits_for(world.brief(), "ann has it").await;
    assert_eq!(line(&ann, &world.at("lock")).await.len(), 1);
    assert_eq!(counts(), [4, 1, 1], "a waiter sends no request");
    answer(held.release().await);
    let _guard = waits.gets(&world, "the lock").await;
}

async fn tasks_of_one_process_pass_a_lock_on(world: World) {
    const TASKS: usize = 8;
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.options()).await;
    let mutex = passing(&world, &client, 3);
    let inside = Arc::new(Semaphore::new(1));
    let last = Arc::new(std::sync::Mutex::new(None));
    let task = async |_| {
        let guard = answer(mutex.lock().await);
        let alone = inside.try_acquire().expect("there is no other holder");
        let before = last.lock().expect("no thread panicked").replace(guard.token());
        assert!(Some(guard.token()) > before, "{} after {before:?}", guard.token());
        tokio::task::yield_now().await;
        drop(alone);
        answer(guard.release().await);
    };

    world.in_time("all have it", join_all((0..TASKS).map(task))).await;

    // Four holders use one ticket: it is created, passed on three times, and deleted.
    assert_eq!(gate.count(Verb::Commit), 4);
    world.left_alone(&client, &world.at("lock")).await;
}

async fn a_waiter_of_another_process_gets_its_turn(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let mutex = passing(&world, &ann, 2);
    let first = answer(mutex.lock().await);
    let theirs = Mutex::new(&bob, world.at("lock"));
    let mut waits = Waiting::new(async move { theirs.lock().await });
    world.stand(&ann, &world.at("lock"), 2).await;
    let (mut greedy, turns) = (Vec::new(), Arc::new(AtomicUsize::new(0)));
    let over = Arc::new(AtomicBool::new(false));
    for _ in 0..3 {
        let (mutex, turns, over) = (mutex.clone(), turns.clone(), over.clone());
        greedy.push(Waiting::new(async move {
            // As soon as one of these tasks has the lock, another wants it. Virtual time passes
            // only when all have ended.
            for _ in 0..200 {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let guard = mutex.lock().await?;
                turns.fetch_add(1, Ordering::Relaxed);
                guard.release().await?;
            }
            Ok(())
        }));
    }
    waits.waits_for(world.brief(), "ann has it").await;

    answer(first.release().await);

    // The others wait only while bob holds the lock.
    let guard = waits.gets(&world, "the lock, among many tasks that pass it on").await;
    greedy[0].waits_for(world.brief(), "bob has it").await;
    let turns = turns.load(Ordering::Relaxed);
    assert!(turns <= 2, "it was passed on {turns} times");
    answer(guard.release().await);
    over.store(true, Ordering::Relaxed);
    for one in greedy {
        one.gets(&world, "the lock").await;
    }
}

async fn a_guard_that_made_a_transaction_is_not_passed_on(world: World) {
    let client = world.client().await;
    let data = world.at("data");
    assert!(answer(client.create(&data, "0", Lifetime::Persistent).await).is_committed());
    let mutex = passing(&world, &client, 10);
    let guard = answer(mutex.lock().await);
    let late = guard.txn().set(data.clone(), "late", Expect::Any);
    let next = mutex.clone();
    let mut waits = Waiting::new(async move { next.lock().await });
    waits.waits_for(world.brief(), "another task has it").await;

    answer(guard.release().await);

    let guard = waits.gets(&world, "the lock").await;
    assert!(guard.is_held());
    assert!(answer(client.commit(late).await).rejected().is_some(), "another task has it");
}

async fn a_lock_passed_on_to_a_dropped_waiter_is_released(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let mutex = passing(&world, &ann, 10);
    let guard = answer(mutex.lock().await);
    let mut next = Box::pin(mutex.lock());
    assert!(stop_at(1, &mut next).await.is_none(), "another task has it");

    // It is passed on to the waiter, which is dropped before it notices.
    answer(guard.release().await);
    drop(next);

    let theirs = Mutex::new(&bob, world.at("lock"));
    let _guard = answer(world.in_time("the free lock", theirs.lock()).await);
}

async fn a_try_at_a_lock_that_is_passed_on_never_waits(world: World) {
    let (gate, ann) = (world.gate(), world.client().await);
    let bob = world.client_on(gate.clone(), world.options()).await;
    let counts = || [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));
    let (theirs, mutex) = (Mutex::new(&ann, world.at("lock")), passing(&world, &bob, 3));
    let held = answer(theirs.lock().await);

    assert!(answer(mutex.try_lock().await).is_none(), "ann has it");
    assert_eq!(counts(), [0, 1, 0], "commits, reads, observes");
    assert_eq!(line(&ann, &world.at("lock")).await.len(), 1);

    answer(held.release().await);
    let first = answer(mutex.try_lock().await).expect("it is free");
    assert_eq!(counts(), [1, 2, 0], "commits, reads, observes");
    let next = mutex.clone();
    let mut waits = Waiting::new(async move { next.lock().await });
    waits.waits_for(world.brief(), "another task has it").await;
    assert!(answer(mutex.try_lock().await).is_none(), "another task has it");
    assert_eq!(counts(), [1, 2, 0], "the store is not asked");

    // A lock that was acquired by a try is passed on like any other, and a try does not overtake a
    // task that waits.
    let token = first.token();
    answer(first.release().await);
    let second = waits.gets(&world, "the lock").await;
    assert!(second.token() > token, "{} after {token}", second.token());
    assert!(answer(mutex.try_lock().await).is_none(), "another task has it");
    answer(second.release().await);
    world.left_alone(&ann, &world.at("lock")).await;
}
