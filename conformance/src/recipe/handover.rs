//! Hand-over: the waiter that is notified, the event that notifies it, and the cost in requests.

use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::retry::Retry;
use synod_core::store::{Expect, Lifetime, Txn};
use synod_recipes::lock::Mutex;
use synod_testkit::cancel::stop_at;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::recipe::{Waiting, line};
use crate::world::{World, dropped_enough};

cases![
    "L-MX-6 L-WAT-1" breaks [WaitsForTheAbsent] => a_predecessor_that_leaves_before_the_watch_is_not_waited_for,
    "L-MX-6" breaks [WaitsForTheAbsent] => a_ticket_that_is_deleted_and_created_again_is_later,
    "L-MX-6 L-WAT-2" breaks [WatchesInTwoCalls] => a_predecessor_that_leaves_during_the_read_is_not_waited_for,
    "L-MX-14 L-X-7" breaks [WatchesFirst] => a_release_wakes_one_waiter_which_reads_once,
    "L-MX-1 L-MX-8" breaks [LostReadIsEmpty] => a_line_that_cannot_be_read_is_not_empty,
    "L-MX-15 L-MX-7" breaks [RemovalGivesUp] => a_release_whose_answer_is_lost_is_done,
    "L-MX-15 L-MX-9" breaks [RemovalNeedsItsCaller] => a_release_that_is_dropped_goes_on,
    "L-OUT-7 L-MX-7" breaks [RefusalSwallowed] => a_refusal_is_returned_and_the_next_try_works,
];

fn mutex(world: &World, client: &Client) -> Mutex {
    Mutex::new(client, world.at("lock"))
}

async fn a_predecessor_that_leaves_before_the_watch_is_not_waited_for(world: World) {
    let (ann, gate) = (world.client().await, world.gate());
    let bob = world.client_on(gate.clone(), world.options()).await;
    let held = answer(mutex(&world, &ann).lock().await);
    gate.set(Way::Holding);
    let lock = mutex(&world, &bob);
    let waits = Waiting::new(async move { lock.lock().await });

    // Bob's ticket is created, and bob has seen that ann's is before it.
    world.in_time("the draw", gate.held(1)).await;
    answer(held.release().await);
    gate.set(Way::Open);

    let _guard = waits.gets(&world, "the lock of the holder that left").await;
}

/// A create does the same when it is repeated after its answer was lost and its ticket was removed.
async fn a_ticket_that_is_deleted_and_created_again_is_later(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let name = world.at("lock/_c_00000000-0000-0000-0000-000000000001-lock-");
    let draw = || Txn::new().create_sequential(name.clone(), "", Lifetime::Session);
    let drawn = answer(ann.commit(draw()).await).ok().expect("the name is free");
    let place = answer(mutex(&world, &bob).enqueue().await);

    // Bob has seen ann's ticket before its own, and reads it next.
    answer(ann.delete(&drawn.results[0].path, Expect::Any).await).ok().expect("it is there");
    answer(ann.commit(draw()).await).ok().expect("the name is free");

    let waits = Waiting::new(async move { place.wait().await });
    let _guard = waits.gets(&world, "the lock, as the first").await;
}

async fn a_predecessor_that_leaves_during_the_read_is_not_waited_for(world: World) {
    let (ann, gate) = (world.client().await, world.gate());
    let bob = world.client_on(gate.clone(), world.options()).await;
    let held = answer(mutex(&world, &ann).lock().await);
    let place = answer(mutex(&world, &bob).enqueue().await);
    gate.set(Way::Holding);
    let waits = Waiting::new(async move { place.wait().await });

    // Bob's requests about ann's ticket are answered, and the answers are held back.
    world.in_time("the read of the predecessor", gate.held(1)).await;
    answer(held.release().await);
    gate.set(Way::Open);

    let _guard = waits.gets(&world, "the lock of the holder that left").await;
}

async fn a_release_wakes_one_waiter_which_reads_once(world: World) {
    const WAITERS: usize = 6;
    let (ann, gate) = (world.client().await, world.gate());
    let held = answer(mutex(&world, &ann).lock().await);
    let bob = world.client_on(gate.clone(), world.unhurried()).await;
    let mut waiting = Vec::new();
    for waiter in 0..WAITERS {
        let lock = mutex(&world, &bob);
        waiting.push(Waiting::new(async move { lock.lock().await }));
        world.stand(&ann, &world.at("lock"), waiter + 2).await;
        world.in_time("bob's watch", gate.called(Verb::Watch, waiter + 1)).await;
    }
    let counts = || [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));
    assert_eq!(counts(), [WAITERS, 0, WAITERS], "commits, reads, observes");

    answer(held.release().await);
    let mut rest = waiting.split_off(1);
    let first = waiting.pop().expect("many wait");
    let guard = first.gets(&world, "the lock, when it is free").await;

    for one in &mut rest {
        one.waits_for(world.brief() / 4, "it is another's turn").await;
    }
    assert_eq!(counts(), [WAITERS, 1, WAITERS], "commits, reads, observes");
    assert!(guard.is_held());
}

async fn a_line_that_cannot_be_read_is_not_empty(world: World) {
    let (ann, options) = (world.client().await, world.options().retry(Retry::Never));
    let (bob, plan) = world.scripted_on(world.harness.backend(), options, []).await;
    let held = answer(mutex(&world, &ann).lock().await);
    let between = answer(mutex(&world, &ann).enqueue().await);
    let lock = mutex(&world, &bob);
    let mut waits = Waiting::new(async move { lock.lock().await });
    world.stand(&ann, &world.at("lock"), 3).await;
    for _ in 0..3 {
        plan.cue(Cue::new(Site::Unsent).of(Verb::Read));
    }

    // The predecessor leaves, so that bob reads again.
    drop(between);
    world.eventually("bob has read the line", async || plan.pending() == 0).await;

    waits.waits_for(world.brief(), "ann holds it").await;
    answer(held.release().await);
    let _guard = waits.gets(&world, "the lock").await;
}

async fn a_release_whose_answer_is_lost_is_done(world: World) {
    for site in [Site::Unsent, Site::RequestLost, Site::ReplyLost] {
        let (client, plan) = world.scripted([]).await;
        let guard = answer(mutex(&world, &client).lock().await);
        plan.cue(Cue::new(site).of(Verb::Delete));

        answer(world.in_time("the release", guard.release()).await);

        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        assert_eq!(line(&client, &world.at("lock")).await, [], "{site:?}");
        let _guard = answer(mutex(&world, &client).try_lock().await).expect("it was released");
    }
}

async fn a_release_that_is_dropped_goes_on(world: World) {
    let client = world.hesitant().await;
    for waits in 1.. {
        let guard = answer(mutex(&world, &client).lock().await);
        let ended = stop_at(waits, guard.release()).await;
        world.left_alone(&client, &world.at("lock")).await;
        if let Some(released) = ended {
            answer(released);
            dropped_enough(waits, 1);
            break;
        }
    }
}

async fn a_refusal_is_returned_and_the_next_try_works(world: World) {
    let (client, plan) = world.scripted([Cue::new(Site::Denied).of(Verb::Create)]).await;

    let refused = world.in_time("the refusal", mutex(&world, &client).lock()).await;

    assert_eq!(failure(refused, "a lock that is denied").kind(), ErrorKind::Denied);
    assert_eq!(plan.pending(), 0);
    let _guard = answer(world.in_time("the lock", mutex(&world, &client).lock()).await);
}
