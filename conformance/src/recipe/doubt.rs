//! Creates with an unknown effect: the create was sent twice, and on a store that does not extend
//! names, the first request may create the ticket again after another client removed it. The new
//! ticket has none of the rights of the old one.

use std::num::NonZeroU32;

use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::held::Held;
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Txn};
use synod_recipes::election::Election;
use synod_recipes::lock::{Mutex, RwLock, Semaphore, request_release};
use synod_testkit::fault::{Cue, Plan, Site, Verb};

use crate::door::{answer, failure};
use crate::recipe::{Waiting, line};
use crate::world::World;

cases![
    "L-MX-5 L-OUT-2" breaks [LateTwinTrusted] => a_draw_that_comes_late_guards_nothing,
    "L-MX-5 L-EL-10" breaks [LateTwinTrusted] => a_leader_drawn_in_doubt_guards_after_its_own_writes_only,
    "L-MX-5 L-SEM-1" breaks [LateTwinTrusted] => permits_drawn_in_doubt_guard_while_they_are_held,
    "L-MX-5 L-RW-1" breaks [LateTwinTrusted] => a_writer_drawn_in_doubt_guards_after_its_downgrade,
    "L-MX-5" breaks [LateTwinTrusted] => a_holder_that_was_asked_back_still_guards,
    "L-MX-3 L-MX-8" catches [EventDropped] => a_draw_that_comes_late_is_no_place_of_before,
    "L-SEM-6 L-MX-7" breaks [DoubtUntold] => a_waiter_after_permits_drawn_in_doubt_gets_its_own,
];

/// A client whose next create is sent twice, because the first request was lost.
async fn doubtful(world: &World) -> (Client, Plan) {
    let lost = Cue::new(Site::RequestLost).of(Verb::Create);
    world.scripted_on(world.harness.backend(), world.unhurried(), [lost]).await
}

/// Creates the node that transactions write, and returns its path.
async fn data(world: &World, client: &Client) -> Path {
    let data = world.at("data");
    answer(client.create(&data, "", Lifetime::Persistent).await).ok().expect("it is new");
    data
}

/// Returns `true` if a transaction under the guard commits.
async fn guards(guard: &impl Held, client: &Client, data: &Path) -> bool {
    let write = guard.txn().set(data.clone(), "ann's", Expect::Any);
    answer(client.commit(write).await).is_committed()
}

/// Delivers the first request of a create.
async fn arrives_late(client: &Client, ticket: &Path) {
    let late = Txn::new().create_sequential(ticket.clone(), "", Lifetime::Session);
    let session = answer(client.session().await);
    answer(session.commit(late).await).ok().expect("the name is free");
}

async fn take_away(client: &Client, ticket: &Path) {
    answer(client.delete(ticket, Expect::Any).await).ok().expect("it is there");
}

async fn a_draw_that_comes_late_guards_nothing(world: World) {
    let ((ann, plan), bob) = (doubtful(&world).await, world.client().await);
    let data = data(&world, &bob).await;
    let held = answer(Mutex::new(&ann, world.at("lock")).lock().await);
    assert_eq!(plan.pending(), 0, "it was sent twice");
    assert!(guards(&held, &ann, &data).await, "she has the lock");

    take_away(&bob, held.path()).await;
    let next = answer(Mutex::new(&bob, world.at("lock")).lock().await);
    arrives_late(&ann, held.path()).await;

    assert!(!guards(&held, &ann, &data).await, "bob has the lock");
    assert!(next.is_held());
}

async fn a_leader_drawn_in_doubt_guards_after_its_own_writes_only(world: World) {
    let ((ann, plan), bob) = (doubtful(&world).await, world.client().await);
    let data = data(&world, &bob).await;
    let leader = answer(Election::new(&ann, world.at("elect")).campaign("ann").await);
    assert_eq!(plan.pending(), 0, "it was sent twice");
    for value in ["first", "second"] {
        answer(leader.proclaim(value).await);
        assert!(guards(&leader, &ann, &data).await, "she leads, and said {value}");
    }

    take_away(&bob, leader.path()).await;
    let next = answer(Election::new(&bob, world.at("elect")).campaign("bob").await);
    arrives_late(&ann, leader.path()).await;

    assert!(!guards(&leader, &ann, &data).await, "bob leads");
    let refused = failure(leader.proclaim("third").await, "what only a leader may say");
    assert_eq!(refused.kind(), ErrorKind::SessionLost);
    assert!(next.is_held());
}

async fn permits_drawn_in_doubt_guard_while_they_are_held(world: World) {
    let ((ann, plan), bob) = (doubtful(&world).await, world.client().await);
    let (data, one) = (data(&world, &bob).await, NonZeroU32::MIN);
    let pool = |client| Semaphore::new(client, world.at("pool"), one);
    let first = answer(pool(&bob).acquire().await);
    let (anns, bobs) = (pool(&ann), pool(&bob));
    let anns = Waiting::new(async move { anns.acquire().await });
    world.stand(&bob, &world.at("pool"), 2).await;
    assert_eq!(plan.pending(), 0, "it was sent twice");
    let bobs = Waiting::new(async move { bobs.acquire().await });
    world.stand(&bob, &world.at("pool"), 3).await;

    // A granted waiter notifies later waiters.
    answer(first.release().await);
    let permit = anns.gets(&world, "the permit, as the next").await;
    assert!(guards(&permit, &ann, &data).await, "she has the permit");
    take_away(&bob, permit.path()).await;
    let next = bobs.gets(&world, "the permit that was taken away").await;
    arrives_late(&ann, permit.path()).await;

    assert!(!guards(&permit, &ann, &data).await, "bob has the permit");
    assert!(next.is_held());
}

async fn a_writer_drawn_in_doubt_guards_after_its_downgrade(world: World) {
    let ((ann, plan), bob) = (doubtful(&world).await, world.client().await);
    let data = data(&world, &bob).await;
    let writing = answer(RwLock::new(&ann, world.at("lock")).write().await);
    assert_eq!(plan.pending(), 0, "it was sent twice");
    let reading = answer(writing.downgrade().await);
    assert!(guards(&reading, &ann, &data).await, "she reads");

    take_away(&bob, reading.path()).await;
    let next = answer(RwLock::new(&bob, world.at("lock")).write().await);
    arrives_late(&ann, reading.path()).await;

    assert!(!guards(&reading, &ann, &data).await, "bob writes");
    assert!(next.is_held());
}

async fn a_holder_that_was_asked_back_still_guards(world: World) {
    let ((ann, plan), bob) = (doubtful(&world).await, world.client().await);
    let data = data(&world, &bob).await;
    let held = answer(Mutex::new(&ann, world.at("lock")).lock().await);
    assert_eq!(plan.pending(), 0, "it was sent twice");

    assert!(answer(request_release(&bob, held.path()).await), "she has it");
    answer(world.in_time("being asked", held.release_requested()).await);
    assert!(guards(&held, &ann, &data).await, "she did not give it back");

    take_away(&bob, held.path()).await;
    arrives_late(&ann, held.path()).await;
    assert!(!guards(&held, &ann, &data).await, "it was taken away");
}

async fn a_draw_that_comes_late_is_no_place_of_before(world: World) {
    let ((ann, plan), bob) = (doubtful(&world).await, world.client().await);
    let dir = world.at("lock");
    let lock = |client| RwLock::new(client, dir.clone());
    let first = answer(lock(&bob).write().await);
    let (anns, bobs) = (lock(&ann), lock(&bob));
    let anns = Waiting::new(async move { anns.write().await });
    world.stand(&bob, &dir, 2).await;
    assert_eq!(plan.pending(), 0, "it was sent twice");
    let place = line(&bob, &dir).await.remove(1).path;

    // Ann watches its predecessor. Ann's ticket is removed, and the first request creates one after
    // bob's.
    take_away(&bob, &place).await;
    let bobs = Waiting::new(async move { bobs.write().await });
    world.stand(&bob, &dir, 2).await;
    arrives_late(&ann, &place).await;
    answer(first.release().await);

    let before = bobs.gets(&world, "the lock, as the next").await;
    let token = before.token();
    answer(before.release().await);
    let guard = anns.gets(&world, "the lock, in the end").await;
    assert!(guard.token() > token, "it is later than bob's");
}

async fn a_waiter_after_permits_drawn_in_doubt_gets_its_own(world: World) {
    let ((ann, plan), bob) = (doubtful(&world).await, world.client().await);
    let (one, two) = (NonZeroU32::MIN, NonZeroU32::MIN.saturating_add(1));
    let pool = |client| Semaphore::new(client, world.at("pool"), two);
    let both = answer(pool(&bob).acquire_many(2).await);
    let mut waiting = Vec::new();
    for (place, client) in [&ann, &bob, &bob].into_iter().enumerate() {
        let (pool, wanted) = (pool(client), if place == 2 { two } else { one });
        waiting.push(Waiting::new(async move { pool.acquire_many(wanted.get()).await }));
        world.stand(&bob, &world.at("pool"), place + 2).await;
    }
    assert_eq!(plan.pending(), 0, "it was sent twice");

    answer(both.release().await);

    let mut waiting = waiting.into_iter();
    let mut gets = async |what| waiting.next().expect("three").gets(&world, what).await;
    let (anns, bobs) = (gets("one of two").await, gets("the other").await);
    answer(bobs.release().await);
    answer(anns.release().await);
    let _both = gets("both, in the end").await;
}
