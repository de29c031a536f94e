//! Tickets in a wait queue: created, read, released, and removed by other clients.

use std::time::{Duration, SystemTime};

use synod_core::client::Client;
use synod_core::store::{Expect, Lifetime};
use synod_recipes::lock::Mutex;
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::time::timeout;

use crate::door::answer;
use crate::recipe::{Waiting, line};
use crate::world::World;

cases![
    "L-MX-10 L-MX-9" breaks [DroppedTicketStays] => a_waiter_that_timed_out_is_not_granted_later,
    "L-MX-8 L-MX-9" breaks [DroppedTicketStays] => a_place_that_is_dropped_is_given_up,
    "L-SEQ-8 L-MX-7" breaks [BlindRepeat] => a_lost_answer_makes_no_second_ticket,
    "L-SEQ-8 L-MX-7" breaks [LooksWithoutSync] => a_ticket_whose_answer_was_lost_is_looked_for_as_of_now,
    "L-MX-11" breaks [TicketWithoutId] => a_release_removes_its_own_ticket_alone,
    "L-MX-7 L-MX-9" breaks [RemovalUnnoticed] => a_waiter_whose_ticket_is_deleted_takes_another,
    "L-MX-1 L-MX-2" breaks [MissingIsFirst] => a_waiter_that_lost_its_ticket_is_not_granted_out_of_turn,
    "L-MX-8" breaks [SinceUntold] => contenders_are_listed_with_the_time_of_their_request,
    "L-MX-8" breaks [SortsByName] => contenders_are_listed_in_order,
];

fn mutex(world: &World, client: &Client) -> Mutex {
    Mutex::new(client, world.at("lock"))
}

async fn a_waiter_that_timed_out_is_not_granted_later(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let held = answer(mutex(&world, &ann).lock().await);

    let late = timeout(world.brief(), mutex(&world, &bob).lock()).await;

    assert!(late.is_err(), "ann holds it");
    let late = answer(mutex(&world, &bob).lock_within(world.brief()).await);
    assert!(late.is_none(), "ann holds it still");
    world.stand(&ann, &world.at("lock"), 1).await;
    answer(held.release().await);
    world.left_alone(&ann, &world.at("lock")).await;
    let guard = answer(mutex(&world, &ann).try_lock().await).expect("it is free");
    answer(guard.release().await);
    let guard = answer(mutex(&world, &bob).lock_within(world.profile.patience).await);
    assert!(guard.is_some_and(|guard| guard.is_held()), "it is free");
}

async fn a_place_that_is_dropped_is_given_up(world: World) {
    let client = world.client().await;
    let lock = mutex(&world, &client);
    let [first, second, third] =
        [lock.enqueue().await, lock.enqueue().await, lock.enqueue().await].map(answer);
    assert_eq!(answer(third.ahead().await).map(|ahead| ahead.len()), Some(2));
    assert_eq!(answer(first.ahead().await).map(|ahead| ahead.len()), Some(0));

    drop(second);

    let one_ahead = async || answer(third.ahead().await).is_some_and(|ahead| ahead.len() == 1);
    world.eventually("there is one before it", one_ahead).await;
    let guard = answer(world.in_time("its turn", first.wait()).await);
    answer(guard.release().await);
    let _guard = answer(world.in_time("its turn", third.wait()).await);
}

async fn a_lost_answer_makes_no_second_ticket(world: World) {
    for site in [Site::ReplyLost, Site::RequestLost, Site::Unsent] {
        let (client, plan) = world.scripted([Cue::new(site).of(Verb::Create)]).await;

        let guard = answer(world.in_time("the lock", mutex(&world, &client).lock()).await);

        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        let owner = answer(client.session().await).info().id;
        let all = line(&client, &world.at("lock")).await;
        assert_eq!(all.iter().map(|one| one.owner).collect::<Vec<_>>(), [Some(owner)], "{site:?}");
        answer(guard.release().await);
        world.left_alone(&client, &world.at("lock")).await;
    }
}

async fn a_ticket_whose_answer_was_lost_is_looked_for_as_of_now(world: World) {
    let gate = world.gate();
    let lost = Cue::new(Site::ReplyLost).of(Verb::Create);
    let (client, plan) = world.scripted_on(gate.clone(), world.options(), [lost]).await;
    gate.blind_local_reads();

    let guard = answer(world.in_time("the lock", mutex(&world, &client).lock()).await);

    assert_eq!(plan.pending(), 0);
    let all = line(&client, &world.at("lock")).await;
    assert_eq!(all.into_iter().map(|one| one.token).collect::<Vec<_>>(), [guard.token()]);
}

async fn a_release_removes_its_own_ticket_alone(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    for _ in 0..20 {
        let stale = answer(mutex(&world, &ann).lock().await);
        let removed = bob.delete(stale.path(), Expect::Any).await;
        assert!(answer(removed).is_committed());
        let guard = answer(mutex(&world, &bob).lock().await);

        answer(stale.release().await);

        let all = line(&ann, &world.at("lock")).await;
        assert_eq!(all.into_iter().map(|one| one.token).collect::<Vec<_>>(), [guard.token()]);
        answer(guard.release().await);
    }
}

async fn a_waiter_whose_ticket_is_deleted_takes_another(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let held = answer(mutex(&world, &ann).lock().await);
    let lock = mutex(&world, &bob);
    let mut waits = Waiting::new(async move { lock.lock().await });
    world.stand(&ann, &world.at("lock"), 2).await;
    let first = line(&ann, &world.at("lock")).await.pop().expect("bob waits");

    let removed = ann.delete(&first.path, Expect::Any).await;

    assert!(answer(removed).is_committed());
    // This happens before the predecessor leaves.
    let again = async || {
        let last = line(&ann, &world.at("lock")).await.pop();
        last.is_some_and(|last| last.token > first.token)
    };
    world.eventually("bob has a new ticket", again).await;
    waits.waits_for(world.brief(), "ann holds it").await;
    assert!(held.is_held());
    answer(held.release().await);
    let guard = waits.gets(&world, "the lock").await;
    assert!(guard.token() > first.token);
}

async fn a_waiter_that_lost_its_ticket_is_not_granted_out_of_turn(world: World) {
    let (ann, eve) = (world.client().await, world.client().await);
    let bob = world.unhurried_client().await;
    let held = answer(mutex(&world, &ann).lock().await);
    let lock = mutex(&world, &bob);
    let mut waits = Waiting::new(async move { lock.lock().await });
    world.stand(&ann, &world.at("lock"), 2).await;
    let first = line(&ann, &world.at("lock")).await.pop().expect("bob waits");
    let next = answer(mutex(&world, &eve).enqueue().await);

    let removed = ann.delete(&first.path, Expect::Any).await;
    assert!(answer(removed).is_committed());
    answer(held.release().await);

    let theirs = answer(world.in_time("the lock", next.wait()).await);
    waits.waits_for(world.brief(), "bob has a new ticket, after eve's").await;
    answer(theirs.release().await);
    let _guard = waits.gets(&world, "the lock").await;
}

async fn contenders_are_listed_in_order(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let held = answer(mutex(&world, &ann).label("ann").lock().await);
    let mut places = Vec::new();
    for name in ["1", "2", "3", "4", "5"] {
        places.push(answer(mutex(&world, &bob).label(name).enqueue().await));
    }

    let all = line(&ann, &world.at("lock")).await;

    let labels: Vec<_> = all.iter().map(|one| String::from_utf8_lossy(&one.label)).collect();
    assert_eq!(labels, ["ann", "1", "2", "3", "4", "5"]);
    let holding: Vec<_> = all.iter().map(|one| one.holds == Some(true)).collect();
    assert_eq!(holding, [true, false, false, false, false, false]);
    assert_eq!((all[0].token, &all[0].path), (held.token(), held.path()));
    assert!(all.is_sorted_by_key(|one| one.token));
    let owners = [answer(ann.session().await), answer(bob.session().await)].map(|it| it.info().id);
    assert_eq!([all[0].owner, all[1].owner], owners.map(Some));
}

async fn contenders_are_listed_with_the_time_of_their_request(world: World) {
    // Another host's clock may be wrong; here there is only one host, whose clock is not changed by
    // that much during the test.
    const LONG: Duration = Duration::from_secs(3600);
    #[expect(clippy::disallowed_methods, reason = "the reported time is of this clock")]
    let now = SystemTime::now();
    let (client, bob) = (world.client().await, world.bob().await);
    let held = answer(mutex(&world, &client).lock().await);
    let place = answer(mutex(&world, &client).enqueue().await);
    bob.draw(&world.at("lock/strange-lock-"), Lifetime::Session).await;

    let all = line(&client, &world.at("lock")).await;

    for own in &all[..2] {
        let since = own.since.expect("synod's tickets contain it");
        assert!(since > now - LONG && since < now + LONG, "{since:?}");
    }
    assert!(all[2..].iter().all(|strange| strange.since.is_none()));
    drop((held, place));
}
