//! Takes and claims that do not wait: each gets an item, or there was none to deliver.

use std::time::{Duration, SystemTime};

use futures_util::future::{join, join_all};
use synod_core::clock;
use synod_core::error::ErrorKind;
use synod_recipes::queue::{Delivery, PutOptions};
use synod_testkit::cancel::stop_at;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::recipe::queue::{put, queue, stored};
use crate::world::{World, dropped_enough};

cases![
    "L-Q-14 L-Q-9" breaks [DelayIgnored] => a_try_has_what_was_put_before_it_or_there_is_nothing_to_deliver,
    "L-Q-14 L-Q-5" catches [DeleteOfMissingSucceeds] => consumers_that_try_until_there_is_none_have_each_item_once,
    "L-Q-14 L-Q-6" breaks [ClaimIgnored] => of_two_tries_for_one_item_one_has_it,
    "L-Q-14 L-Q-1" breaks [TransactionRunsAgain] => a_try_whose_answer_is_lost_has_its_item,
    "L-Q-14 L-X-1" breaks [DroppedTakeLost] => a_try_that_is_dropped_loses_no_item,
    "L-Q-9 L-Q-14" breaks [DelayIgnored] => an_item_waits_for_its_date_whatever_the_date,
    "L-Q-9 L-Q-7" breaks [DelayIgnored] => items_whose_dates_have_come_are_had_by_date_before_the_others,
    "L-Q-14 L-OUT-1" breaks [QueueIgnoresOrder] => a_try_during_an_outage_fails_and_does_not_say_that_there_is_none,
];

const HOUR: Duration = Duration::from_secs(60 * 60);

async fn a_try_has_what_was_put_before_it_or_there_is_nothing_to_deliver(world: World) {
    let (ann, bob, eve) = (world.client().await, world.client().await, world.client().await);
    let [anns, bobs, eves] = [&ann, &bob, &eve].map(|client| queue(&world, client));
    let try_take = async || answer(world.in_time("a try", anns.try_take()).await);
    let try_claim = async || answer(world.in_time("a try", eves.try_claim()).await);
    assert!(try_take().await.is_none() && try_claim().await.is_none(), "nothing was put yet");

    // Even an item that was not reported to the consumer yet is taken.
    for round in 0..10 {
        let item = round.to_string();
        put(&bobs, &[&item, "next"]).await;
        let taken = try_take().await.expect("it was put before");
        let delivery = try_claim().await.expect("it was put before");
        // After a lost race a consumer chooses among several items.
        let mut both = [taken.as_str(), delivery.item()];
        both.sort_unstable();
        assert_eq!((both, delivery.delivered()), ([item.as_str(), "next"], 1));
        let claimed = delivery.item().clone();
        assert!(try_take().await.is_none() && try_claim().await.is_none(), "it is claimed");
        answer(delivery.put_back().await);
        assert_eq!(try_take().await, Some(claimed), "it was put back");
        assert!(try_take().await.is_none() && try_claim().await.is_none(), "it is gone");
    }
    // A consumer that starts only now.
    put(&bobs, &["one", "two"]).await;
    let late = world.client().await;
    let first = answer(world.in_time("a try", queue(&world, &late).try_take()).await);
    assert_eq!(first.as_deref(), Some("one"));

    let delayed = PutOptions::default().priority(1).after(HOUR);
    assert!(answer(bobs.put_with(&"later".to_owned(), delayed).await));
    assert_eq!(try_take().await.as_deref(), Some("two"), "the other is not delivered yet");
    assert!(try_take().await.is_none() && try_claim().await.is_none(), "not before its time");
    let soon = PutOptions::default().after(world.brief());
    assert!(answer(bobs.put_with(&"soon".to_owned(), soon).await));
    let comes = async || try_take().await.as_deref() == Some("soon");
    world.eventually("an item whose time has come", comes).await;

    answer(bob.put(&world.at("queue/items/entry-100-a"), "no JSON").await);
    let tried = world.in_time("a try", anns.try_take()).await;
    assert_eq!(failure(tried, "no JSON").kind(), ErrorKind::Corrupt);
    assert!(try_take().await.is_none() && try_claim().await.is_none(), "it is a dead letter");
}

async fn consumers_that_try_until_there_is_none_have_each_item_once(world: World) {
    const CONSUMERS: usize = 3;
    const ITEMS: usize = 45;
    let bob = world.client().await;
    put(&queue(&world, &bob), &["item"; ITEMS]).await;
    let mut all = Vec::new();
    for number in 0..CONSUMERS {
        let client = world.client().await;
        let consumer = queue(&world, &client);
        all.push(Waiting::new(async move {
            let mut had = 0;
            if number == 0 {
                while let Some(delivery) = consumer.try_claim().await? {
                    delivery.ack().await?;
                    had += 1;
                }
            }
            while consumer.try_take().await?.is_some() {
                had += 1;
            }
            Ok(had)
        }));
    }

    let had: Vec<usize> = join_all(all.into_iter().map(|one| one.gets(&world, "none"))).await;

    assert_eq!(had.iter().sum::<usize>(), ITEMS, "each item was there before: {had:?}");
    assert_eq!(stored(&world, &bob, "items").await, [""; 0]);
}

async fn of_two_tries_for_one_item_one_has_it(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    for other in [&anns, &bobs] {
        for round in 0..5 {
            put(&bobs, &["one"]).await;
            let both = join(anns.try_claim(), other.try_claim());
            let (first, second) = world.in_time("two tries", both).await;
            let had: Vec<Delivery<String>> =
                [answer(first), answer(second)].into_iter().flatten().collect();
            assert_eq!(had.len(), 1, "round {round}");
            for delivery in had {
                answer(delivery.ack().await);
            }
        }
    }
}

async fn a_try_whose_answer_is_lost_has_its_item(world: World) {
    let (client, plan) = world.scripted([]).await;
    let queue = queue(&world, &client);
    put(&queue, &["first"]).await;
    assert_eq!(answer(world.in_time("a try", queue.try_take()).await).as_deref(), Some("first"));
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate, Site::Unsent] {
        let item = format!("{site:?}");
        put(&queue, &[&item, &item]).await;
        plan.cue(Cue::new(site).of(Verb::Delete));
        let taken = answer(world.in_time("a try", queue.try_take()).await);
        assert_eq!((taken.as_ref(), plan.pending()), (Some(&item), 0), "{site:?}");

        plan.cue(Cue::new(site).of(Verb::Delete));
        let delivery = answer(world.in_time("a try", queue.try_claim()).await);
        assert_eq!(plan.pending(), 0, "{site:?}");
        answer(delivery.expect("it is there").ack().await);
        assert!(answer(world.in_time("a try", queue.try_take()).await).is_none(), "{site:?}");
    }
}

async fn a_try_that_is_dropped_loses_no_item(world: World) {
    const ROUNDS: usize = 12;
    let (ann, bob) = (world.hesitant().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    put(&bobs, &["item"; ROUNDS]).await;
    let (mut had, mut stopped) = (0, 0);
    for awaits in 1..=ROUNDS {
        match stop_at(awaits, anns.try_take()).await {
            Some(taken) => had += usize::from(answer(taken).is_some()),
            None => stopped += 1,
        }
    }

    dropped_enough(stopped, 2);
    let left = vec!["\"item\""; ROUNDS - had];
    let there = async || stored(&world, &bob, "items").await == left;
    world.eventually("what was dropped is there", there).await;
}

async fn an_item_waits_for_its_date_whatever_the_date(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    let (now, second) = (clock::date(), Duration::from_secs(1));
    let (epoch, year) = (SystemTime::UNIX_EPOCH, HOUR * 24 * 365);
    for past in [now - second, epoch + second, epoch, epoch - second] {
        let options = PutOptions::default().after(HOUR).at(past);
        assert!(answer(bobs.put_with(&"at once".to_owned(), options).await));
        let taken = answer(world.in_time("a try", anns.try_take()).await);
        assert_eq!(taken.as_deref(), Some("at once"), "{past:?}");
    }
    for future in [now + HOUR, now + 2 * year, epoch + 50_000 * year] {
        let options = PutOptions::default().after(Duration::ZERO).at(future);
        assert!(answer(bobs.put_with(&"later".to_owned(), options).await));
        assert!(answer(world.in_time("a try", anns.try_take()).await).is_none(), "{future:?}");
        let item = answer(bobs.items().await).remove(0);
        let least = future.min(epoch + 3_000 * year) - second;
        assert!(item.not_before() >= Some(least), "{:?}", item.not_before());
        assert!(answer(bobs.remove(&item).await));
    }
    let soon = PutOptions::default().at(clock::date() + world.brief());
    assert!(answer(bobs.put_with(&"soon".to_owned(), soon).await));
    assert_eq!(answer(world.in_time("its date", anns.take()).await), "soon");
}

async fn items_whose_dates_have_come_are_had_by_date_before_the_others(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    // The items of the first round are listed, the others are reported.
    for (begin, wait) in [(SystemTime::UNIX_EPOCH, Duration::ZERO), in_a_while(&world)] {
        let options = PutOptions::default;
        let at = |millis| options().at(begin + Duration::from_millis(millis));
        for (item, options) in [
            ("third", at(30)),
            ("fifth", options()),
            ("first", at(10)),
            ("sixth", options().after(Duration::ZERO)),
            ("second", at(20)),
            ("seventh", options().priority(101).at(SystemTime::UNIX_EPOCH)),
            ("fourth", at(30)),
        ] {
            assert!(answer(bobs.put_with(&item.to_owned(), options).await));
        }
        if !wait.is_zero() {
            let next = answer(world.in_time("what has no date", anns.claim()).await);
            // The machine may have been slow.
            if clock::date() < begin {
                assert_eq!(next.item(), "fifth", "the dates have not come");
            }
            answer(next.put_back().await);
        }
        clock::sleep(wait).await;
        // Where time is paused the wall clock stands still, and none of these dates comes.
        if clock::date() < begin {
            return;
        }

        for item in ["first", "second", "third", "fourth", "fifth", "sixth", "seventh"] {
            let mut delivery = answer(world.in_time("an item", anns.claim()).await);
            if wait.is_zero() {
                answer(delivery.put_back().await);
                delivery = answer(world.in_time("the same item", anns.claim()).await);
            }
            assert_eq!(delivery.item(), item);
            answer(delivery.ack().await);
        }
    }
}

/// A date that comes after all reports, and the time until then.
fn in_a_while(world: &World) -> (SystemTime, Duration) {
    let wait = world.brief() * 4;
    (clock::date() + wait, wait + Duration::from_secs(1))
}

async fn a_try_during_an_outage_fails_and_does_not_say_that_there_is_none(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let options = world.unhurried().timeout(world.brief() * 5);
    let ann = world.client_on(gate.clone(), options).await;
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    assert!(answer(world.in_time("a try", anns.try_take()).await).is_none());
    gate.set(Way::Shut);
    let items = ["1", "2", "3", "4", "5", "6"];
    put(&bobs, &items).await;

    for _ in 0..2 {
        let tried = world.in_time("a try", anns.try_claim()).await;
        assert_eq!(failure(tried, "an outage").kind(), ErrorKind::Unreachable);
    }

    gate.set(Way::Open);
    for item in items {
        let delivery = answer(world.in_time("a try", anns.try_claim()).await);
        let delivery = delivery.expect("it was put before");
        assert_eq!(delivery.item(), item);
        answer(delivery.ack().await);
    }
}
