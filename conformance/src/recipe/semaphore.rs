//! The semaphore: a limited number of permits, granted in order, either all requested permits or
//! none.

use std::sync::Arc;

use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::Query;
use synod_recipes::lock::{Claim, Permit, Semaphore};
use synod_testkit::cancel::stop_at;
use synod_testkit::fault::{Actor, Cue, FaultyBackend, Plan, Site, Verb};

use crate::door::gate::{Gate, Way};
use crate::door::{answer, failure};
use crate::recipe::{Waiting, line, many};
use crate::world::World;

cases![
    "L-SEM-1 L-SEM-3" breaks [PermitsMiscounted] => no_more_enter_than_there_are_permits,
    "L-SEM-6 L-SEM-3" breaks [PermitsBarge] => a_request_for_many_permits_is_not_overtaken,
    "L-SEM-6 L-MX-7" breaks [CallUntold] => any_permit_given_back_lets_the_next_one_in,
    "L-MX-8 L-SEM-1" breaks [PermitsMiscounted] => holders_and_waiters_of_permits_are_listed,
    "L-SEM-6 L-MX-7" breaks [TryUntold] => permits_got_by_trying_let_the_next_one_in,
    "L-SEM-1 L-SEM-6" catches [EventDropped] => clients_that_name_different_limits_keep_to_the_smallest,
    "L-SEM-7" breaks [ImpossibleAwaited] => more_than_there_are_is_refused,
    "L-SEM-8 L-SEM-4" breaks [DroppedTicketStays] => clients_that_require_the_same_limit_are_refused_another,
    "L-SEM-2" breaks [LimitRemembered] => more_permits_let_more_in,
    "L-SEM-2 L-SEM-1" breaks [LimitChangeIgnored] => fewer_permits_let_fewer_in,
    "L-SEM-4 L-MX-9" breaks [DroppedTicketStays] => an_acquire_that_failed_holds_no_permit,
    "L-X-7" breaks [LookIgnored] => a_free_permit_is_one_call_and_so_is_its_release,
    "L-MX-14 L-X-7" breaks [WatchesFirst] => a_released_permit_wakes_the_waiter_that_it_serves,
];

fn semaphore(world: &World, client: &Client, permits: u32) -> Semaphore {
    Semaphore::new(client, world.at("pool"), many(permits))
}

/// A waiter for permits, which has become the last of `count` in the wait queue.
async fn queued(
    world: &World,
    client: &Client,
    (semaphore, permits): (Semaphore, u32),
    count: usize,
) -> Waiting<Permit> {
    let waiting = Waiting::new(async move { semaphore.acquire_many(permits).await });
    world.stand(client, &world.at("pool"), count).await;
    waiting
}

async fn no_more_enter_than_there_are_permits(world: World) {
    const CROWD: usize = 8;
    const ROUNDS: usize = 5;
    const PERMITS: u32 = 4;
    let room = Arc::new(tokio::sync::Semaphore::new(PERMITS as usize));
    let mut all = Vec::new();
    for number in 0..CROWD {
        let (client, room) = (world.client().await, room.clone());
        let semaphore = semaphore(&world, &client, PERMITS);
        let random = world.random.fork(number as u64);
        all.push(Waiting::new(async move {
            for _ in 0..ROUNDS {
                let wanted = u32::try_from(1 + random.below(PERMITS.into())).expect("few");
                if random.below(3) == 0 {
                    drop(stop_at(1, semaphore.acquire_many(wanted)).await.transpose()?);
                }
                let permit = semaphore.acquire_many(wanted).await?;
                let taken = room.try_acquire_many(permit.permits().get());
                let taken = taken.expect("as many are free as were given");
                tokio::task::yield_now().await;
                drop(taken);
            }
            Ok(())
        }));
    }
    for one in all {
        one.gets(&world, "permits, in the end").await;
    }
}

async fn a_request_for_many_permits_is_not_overtaken(world: World) {
    let client = world.client().await;
    let pool = semaphore(&world, &client, 3);
    let first = answer(pool.acquire_many(2).await);
    let mut large = queued(&world, &client, (pool.clone(), 3), 2).await;
    assert!(answer(pool.try_acquire().await).is_none(), "there is a waiter");
    let mut small = queued(&world, &client, (pool.clone(), 1), 3).await;
    small.waits_for(world.brief(), "an earlier request waits for many").await;
    large.waits_for(world.brief(), "two of three are taken").await;

    answer(first.release().await);

    let large = large.gets(&world, "all permits").await;
    small.waits_for(world.brief(), "all are taken").await;
    answer(large.release().await);
    let _small = small.gets(&world, "a permit").await;
}

async fn any_permit_given_back_lets_the_next_one_in(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    for keeps in 0..2 {
        let pool = semaphore(&world, &ann, 2);
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(answer(pool.acquire().await));
        }
        let theirs = semaphore(&world, &bob, 2);
        let mut waiting = Vec::new();
        for place in 3..7 {
            waiting.push(queued(&world, &bob, (theirs.clone(), 1), place).await);
        }
        // One holder never releases its permit; the other permit is passed from waiter to waiter.
        let kept = held.remove(keeps);
        let mut moving = held.pop().expect("the other one");
        for next in waiting {
            answer(moving.release().await);
            moving = next.gets(&world, "the permit that was given back").await;
        }
        answer(moving.release().await);
        answer(kept.release().await);
        world.left_alone(&ann, &world.at("pool")).await;
    }
    // All holders keep their permits while earlier holders leave.
    let pool = semaphore(&world, &ann, 2);
    let held = [pool.acquire().await, pool.acquire().await].map(answer);
    let mut waiting = Vec::new();
    for place in 3..5 {
        waiting.push(queued(&world, &bob, (semaphore(&world, &bob, 2), 1), place).await);
    }
    let mut inside = Vec::new();
    for (gone, next) in held.into_iter().rev().zip(waiting) {
        answer(gone.release().await);
        inside.push(next.gets(&world, "the permit that was given back").await);
    }
    assert!(inside.iter().all(Permit::is_held));
}

async fn permits_got_by_trying_let_the_next_one_in(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    // The answer to the create is lost: the listing in it is unknown, so the ticket is searched
    // for, and then the wait queue is listed.
    let plan = Plan::scripted([Cue::new(Site::ReplyLost).of(Verb::Create)]);
    let faulty = FaultyBackend::new(world.harness.backend(), plan.clone(), Actor::new(1));
    let gate = Gate::new(Arc::new(faulty));
    let eve = world.client_on(gate.clone(), world.unhurried()).await;
    let pool = semaphore(&world, &eve, 2);
    gate.set(Way::Holding);
    let trying = Waiting::new(async move { pool.try_acquire().await });
    world.in_time("a look at a free pool", gate.held(1)).await;
    let both = answer(semaphore(&world, &ann, 2).acquire_many(2).await);
    gate.hold_behind(Some((Verb::Read, 1)));
    gate.set(Way::Open);
    world.in_time("the ticket, which is found", gate.held(2)).await;
    // A later waiter relies on the ticket, which was not written.
    let theirs = world.gate();
    let dan = world.client_on(theirs.clone(), world.unhurried()).await;
    let waits = queued(&world, &dan, (semaphore(&world, &dan, 2), 1), 3).await;
    world.in_time("the wait for the predecessor", theirs.answered(Verb::Watch, 1)).await;
    answer(both.release().await);
    world.stand(&bob, &world.at("pool"), 2).await;
    // From now on the session does not read an older state.
    drop(answer(eve.watch(Query::children(world.at("pool")).names_only()).await));

    gate.hold_behind(None);

    let tried = trying.gets(&world, "an answer to the try").await.expect("it is free by now");
    let next = waits.gets(&world, "the other permit").await;
    assert!(tried.is_held() && next.is_held());
    assert_eq!(plan.pending(), 0, "the answer was not lost");
}

async fn holders_and_waiters_of_permits_are_listed(world: World) {
    let client = world.client().await;
    for shared in [false, true] {
        let pool = if shared {
            let pool = Semaphore::shared(&client, world.at("pool"));
            answer(pool.set_permits(3).await);
            pool
        } else {
            semaphore(&world, &client, 3)
        };
        let held = answer(pool.acquire_many(2).await);
        let waits = queued(&world, &client, (pool.clone(), 2), 2).await;
        let waits_too = queued(&world, &client, (pool.clone(), 1), 3).await;

        let told = line(&client, &world.at("pool")).await;

        let told: Vec<_> = told.iter().map(|one| (one.claim, one.holds)).collect();
        let [two, one] = [2, 1].map(Claim::Permits);
        assert_eq!(told, [(two, Some(true)), (two, Some(false)), (one, Some(false))], "{shared}");
        drop((waits, waits_too, held));
        world.stand(&client, &world.at("pool"), 0).await;
    }
}

async fn clients_that_name_different_limits_keep_to_the_smallest(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let of = |client: &Client, permits| semaphore(&world, client, permits);
    let only = answer(of(&ann, 1).acquire().await);
    assert!(answer(of(&bob, 2).try_acquire().await).is_none(), "one of one is taken");
    let mut large = queued(&world, &bob, (of(&bob, 3), 2), 2).await;
    large.waits_for(world.brief(), "one of one is taken").await;
    let listed = line(&ann, &world.at("pool")).await;
    let listed: Vec<_> = listed.iter().map(|one| one.holds).collect();
    assert_eq!(listed, [Some(true), Some(false)], "each by the limit that counts for it");
    answer(only.release().await);
    let large = large.gets(&world, "two of three").await;

    // A smaller limit applies to later requests, even while its owner waits, and any release may
    // grant them.
    let one_more = answer(of(&ann, 3).acquire().await);
    let mut small = queued(&world, &ann, (of(&ann, 2), 1), 3).await;
    let mut last = queued(&world, &bob, (of(&bob, 3), 1), 4).await;
    small.waits_for(world.brief(), "three of two are taken").await;
    answer(large.release().await);
    let small = small.gets(&world, "the second of two").await;
    last.waits_for(world.brief(), "two of two are taken").await;
    assert!(one_more.is_held());
    answer(small.release().await);
    let last = last.gets(&world, "the second of three").await;
    assert!(one_more.is_held() && last.is_held());
}

async fn more_than_there_are_is_refused(world: World) {
    let client = world.client().await;
    let pool = semaphore(&world, &client, 3);
    for permits in [4, u32::MAX] {
        let acquired = world.in_time("a refusal", pool.acquire_many(permits)).await;
        let refused = failure(acquired, "more than there are");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        let tried = failure(pool.try_acquire_many(permits).await, "more than there are");
        assert_eq!(tried.kind(), ErrorKind::Invalid);
    }
    assert_eq!(line(&client, &world.at("pool")).await, []);
    let _all = answer(pool.acquire_many(3).await);
}

async fn clients_that_require_the_same_limit_are_refused_another(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let at = world.at("pool");
    let strict = |client: &Client, permits| semaphore(&world, client, permits).require_same_limit();
    let session = answer(ann.session().await).info().id;
    let held = answer(strict(&ann, 2).acquire().await);
    for other in [1, 3, u32::MAX] {
        let refused = world.in_time("a refusal", strict(&bob, other).acquire()).await;
        let tried = world.in_time("a refusal", strict(&bob, other).try_acquire()).await;
        for error in [failure(refused, "another limit"), failure(tried, "another limit")] {
            assert_eq!(error.kind(), ErrorKind::Refused);
            let text = error.to_string();
            let words = [other.to_string(), "is 2".to_owned(), session.to_string()];
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
        world.stand(&ann, &at, 1).await;
    }
    // The same limit is granted, and a later request with another one fails no earlier request.
    let other_held = answer(strict(&bob, 2).acquire().await);
    let mut waits = queued(&world, &bob, (strict(&bob, 2), 1), 3).await;
    let old = queued(&world, &ann, (semaphore(&world, &ann, 3), 1), 4).await;
    waits.waits_for(world.brief(), "two of two are taken").await;
    answer(held.release().await);
    let granted = waits.gets(&world, "the permit that was given back").await;
    for permit in [other_held, granted] {
        answer(permit.release().await);
    }
    // Of the two limits, that of the earlier ticket counts until its owner leaves.
    let old = old.gets(&world, "one of three").await;
    assert_eq!(line(&ann, &at).await.first().and_then(|one| one.limit), Some(3));
    let refused = world.in_time("a refusal", strict(&bob, 2).acquire()).await;
    assert_eq!(failure(refused, "another limit").kind(), ErrorKind::Refused);
    let shared = |client: &Client| Semaphore::shared(client, world.at("pool")).require_same_limit();
    let refused = failure(shared(&bob).try_acquire().await, "no limit was set");
    assert_eq!(refused.kind(), ErrorKind::Refused);
    answer(old.release().await);
    answer(answer(strict(&bob, 2).acquire().await).release().await);

    // The limit that was set counts, too.
    answer(shared(&ann).set_permits(2).await);
    let refused = failure(strict(&bob, 3).acquire().await, "another limit was set");
    assert!(refused.to_string().contains("set there is 2"), "{refused}");
    let both = [strict(&bob, 2).acquire().await, shared(&ann).acquire().await].map(answer);
    world.stand(&ann, &at, 2).await;
    drop(both);
    world.stand(&ann, &at, 0).await;
}

async fn more_permits_let_more_in(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [pool, theirs] = [&ann, &bob].map(|it| Semaphore::shared(it, world.at("pool")));
    answer(pool.set_permits(1).await);
    assert_eq!(answer(theirs.permits().await), 1);
    let first = answer(pool.acquire().await);
    let mut second = queued(&world, &bob, (theirs.clone(), 1), 2).await;
    let third = queued(&world, &bob, (theirs.clone(), 2), 3).await;
    second.waits_for(world.brief(), "the only permit is taken").await;

    answer(theirs.set_permits(4).await);

    let second = second.gets(&world, "one of four").await;
    let third = third.gets(&world, "two of four").await;
    assert!(answer(pool.try_acquire().await).is_none(), "all four are taken");
    let holding = line(&ann, &world.at("pool")).await;
    assert!(holding.iter().all(|one| one.holds == Some(true)), "{holding:?}");
    for permit in [first, second, third] {
        answer(permit.release().await);
    }
}

async fn fewer_permits_let_fewer_in(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [pool, theirs] = [&ann, &bob].map(|it| Semaphore::shared(it, world.at("pool")));
    answer(pool.set_permits(3).await);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(answer(pool.acquire().await));
    }

    answer(pool.set_permits(2).await);

    assert!(held.iter().all(Permit::is_held), "no permit is lost");
    let mut waits = queued(&world, &bob, (theirs.clone(), 1), 4).await;
    let last = held.pop().expect("three");
    let second = held.pop().expect("two");
    answer(second.release().await);
    waits.waits_for(world.brief(), "two of two are taken").await;
    answer(held.pop().expect("one").release().await);
    let permit = waits.gets(&world, "the second of two").await;
    assert!(last.is_held() && permit.is_held());
    assert!(answer(pool.try_acquire().await).is_none(), "two of two are taken");
}

async fn an_acquire_that_failed_holds_no_permit(world: World) {
    let (ann, (bob, plan)) = (world.client().await, world.scripted([]).await);
    let held = answer(semaphore(&world, &ann, 1).acquire().await);
    plan.cue(Cue::new(Site::Denied).of(Verb::Watch));
    // Deleting the ticket also fails at first: the returned error is still the lack of permits.
    plan.cue(Cue::new(Site::ReplyLost).of(Verb::Delete));

    let theirs = semaphore(&world, &bob, 1);
    let failed = world.in_time("the failure", theirs.acquire()).await;
    let failed = failure(failed, "an acquire that is denied");

    assert_eq!(failed.kind(), ErrorKind::Denied);
    world.stand(&ann, &world.at("pool"), 1).await;
    assert_eq!(plan.pending(), 0);
    answer(held.release().await);
    let _permit = answer(world.in_time("the permit", theirs.acquire()).await);
}

async fn a_free_permit_is_one_call_and_so_is_its_release(world: World) {
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.options()).await;
    let counts = || [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));
    let pool = semaphore(&world, &client, 5);

    let first = answer(pool.acquire_many(2).await);
    let second = answer(pool.acquire_many(3).await);
    assert_eq!(counts(), [2, 0, 0], "commits, reads, observes");
    answer(first.release().await);
    answer(second.release().await);
    assert_eq!(counts(), [4, 0, 0], "commits, reads, observes");
}

async fn a_released_permit_wakes_the_waiter_that_it_serves(world: World) {
    const WAITERS: usize = 5;
    let (ann, gate) = (world.client().await, world.gate());
    let bob = world.client_on(gate.clone(), world.unhurried()).await;
    let pool = semaphore(&world, &ann, 2);
    let held = [pool.acquire().await, pool.acquire().await].map(answer);
    let mut waiting = Vec::new();
    for number in 0..WAITERS {
        let theirs = semaphore(&world, &bob, 2);
        waiting.push(queued(&world, &ann, (theirs, 1), 3 + number).await);
        world.in_time("bob's watch", gate.called(Verb::Watch, number + 1)).await;
    }
    let counts = || [Verb::Commit, Verb::Watch].map(|verb| gate.count(verb));
    // Bob notifies the next waiter, which watches the wait queue from then on.
    let due = counts().map(|count| count + 1);

    let [_kept, given] = held;
    answer(given.release().await);
    let mut rest = waiting.split_off(1);
    let _first = waiting.remove(0).gets(&world, "the permit that was given back").await;
    world.in_time("bob's next watch", gate.called(Verb::Watch, due[1])).await;

    for one in &mut rest {
        one.waits_for(world.brief() / 4, "no permit is left").await;
    }
    assert_eq!(counts(), due, "commits, observes");
}
