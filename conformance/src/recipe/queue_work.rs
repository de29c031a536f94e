//! Several items of a queue at once: taken in batches, and worked on.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{join, join_all, pending};
use synod_core::error::ErrorKind;
use synod_core::store::Txn;
use synod_recipes::Held as _;
use synod_recipes::queue::{Delivery, WorkOutcome};
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::sync::{Notify, Semaphore};

use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::recipe::queue::{claimed, put, queue, stored, took};
use crate::recipe::queue_edges::panics;
use crate::world::World;

cases![
    "L-Q-7 L-Q-13 L-X-7" breaks [QueueIgnoresOrder] => a_bunch_is_taken_in_one_request_and_in_order,
    "L-Q-7" breaks [QueueIgnoresOrder] => many_items_that_come_while_none_is_taken_are_had_in_their_order,
    "L-Q-1 L-Q-5" catches [DeleteOfMissingSucceeds] => consumers_that_take_bunches_have_each_item_once,
    "L-Q-1 L-Q-4" breaks [FailedWorkAcknowledged] => work_is_done_by_so_many_at_once_until_it_succeeds,
    "L-Q-4" breaks [ClaimsNeverEnd] => work_that_is_dropped_puts_its_items_back,
    "L-Q-9" breaks [DelayIgnored] => an_item_whose_work_fails_keeps_no_other_waiting,
    "L-Q-4 L-Q-9 L-Q-15" breaks [FailedWorkAcknowledged] => work_says_whether_its_item_is_done_retried_or_rejected,
    "L-Q-4 L-Q-7" breaks [ClaimsNeverEnd] => an_item_that_is_put_back_is_the_next_one_before_the_store_reports_it,
    "L-Q-4 L-Q-13" breaks [QueueIgnoresOrder] => work_that_ends_its_delivery_itself_costs_no_more,
    "L-Q-1 L-OUT-1" breaks [QueueIgnoresOrder] => one_hand_that_is_refused_ends_the_others_when_their_work_is_done,
];

fn count(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).expect("it is not zero")
}

async fn a_bunch_is_taken_in_one_request_and_in_order(world: World) {
    const BUNCH: usize = 20;
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    let all: Vec<String> = (0..=BUNCH + 5).map(|number| format!("{number:02}")).collect();
    put(&bobs, &all.iter().map(|item| &**item).collect::<Vec<_>>()).await;
    assert_eq!(took(&world, &anns).await, all[0]);
    let before = gate.count(Verb::Commit);

    let bunch = answer(world.in_time("a bunch", anns.take_many(count(BUNCH))).await);

    assert_eq!(bunch, all[1..=BUNCH]);
    assert_eq!(gate.count(Verb::Commit) - before, 1, "it is one request");
    answer(bob.put(&world.at("queue/items/entry-100-z"), "no JSON").await);
    put(&bobs, &["last"]).await;
    let mut rest = Vec::new();
    while rest.len() < 5 {
        let bunch = answer(world.in_time("the rest", anns.take_many(count(BUNCH))).await);
        rest.extend(bunch);
    }
    assert_eq!(rest, all[BUNCH + 1..], "up to what cannot be read");
    let taken = world.in_time("an item", anns.take_many(count(BUNCH))).await;
    assert_eq!(failure(taken, "no JSON").kind(), ErrorKind::Corrupt);
    let last = answer(world.in_time("the last", anns.take_many(count(1_000))).await);
    assert_eq!(last, ["last"]);
}

async fn many_items_that_come_while_none_is_taken_are_had_in_their_order(world: World) {
    // More items than are read at once if events have no data.
    const BUNCHES: usize = 6;
    const BUNCH: usize = 20;
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    for item in ["listed", "reported"] {
        put(&bobs, &[item]).await;
        assert_eq!(took(&world, &anns).await, item);
    }
    let all: Vec<String> = (0..BUNCHES * BUNCH).map(|number| format!("{number:03}")).collect();
    for bunch in all.chunks(BUNCH) {
        answer(bobs.put_many(bunch).await);
    }

    let mut had = Vec::new();
    while had.len() < all.len() {
        had.push(took(&world, &anns).await);
    }

    assert_eq!(had, all);
}

async fn consumers_that_take_bunches_have_each_item_once(world: World) {
    const CONSUMERS: usize = 3;
    const ITEMS: usize = 60;
    let bob = world.client().await;
    let producer = queue(&world, &bob);
    put(&producer, &["item"; ITEMS]).await;
    let mut all = Vec::new();
    for _ in 0..CONSUMERS {
        let client = world.client().await;
        let consumer = queue(&world, &client);
        all.push(Waiting::new(async move {
            let mut had = 0;
            loop {
                let bunch = consumer.take_many(count(7)).await?;
                if bunch.iter().any(|item| item == "end") {
                    return Ok(had);
                }
                had += bunch.len();
            }
        }));
    }

    let gone = async || stored(&world, &bob, "items").await.is_empty();
    world.eventually("all are taken", gone).await;
    for _ in 0..CONSUMERS {
        put(&producer, &["end"]).await;
        world.eventually("an end is taken", gone).await;
    }

    let had = join_all(all.into_iter().map(|one| one.gets(&world, "the end"))).await;
    assert_eq!(had.iter().sum::<usize>(), ITEMS, "{had:?}");
}

async fn work_is_done_by_so_many_at_once_until_it_succeeds(world: World) {
    const ITEMS: usize = 12;
    const HANDS: usize = 3;
    let client = world.client().await;
    let queue = queue(&world, &client).backoff(Duration::ZERO, Duration::ZERO);
    let stop = Notify::new();
    let items: Vec<String> = (0..ITEMS).map(|number| number.to_string()).collect();
    answer(queue.put_many(&items).await);
    let (now, most) = (Cell::new(0), Cell::new(0));
    let tries = RefCell::new(BTreeMap::new());
    let work = async |delivery: Arc<Delivery<String>>| {
        now.set(now.get() + 1);
        most.set(most.get().max(now.get()));
        while most.get() < HANDS {
            world.think().await;
        }
        world.think_for(5).await;
        now.set(now.get() - 1);
        let mut tries = tries.borrow_mut();
        let number = tries.entry(delivery.item().clone()).or_insert(0);
        *number += 1;
        if *number == 1 && delivery.item().len() == 2 {
            return Err("not yet");
        }
        if tries.values().sum::<i32>() == 14 {
            stop.notify_one();
        }
        Ok(())
    };

    let consuming = queue.consume(count(HANDS), stop.notified(), work);

    answer(world.in_time("the end", consuming).await);
    assert_eq!((now.get(), most.get()), (0, HANDS));
    let expected =
        items.into_iter().map(|item| (item.clone(), if item.len() == 2 { 2 } else { 1 }));
    assert_eq!(tries.take(), expected.collect());
    assert_eq!(stored(&world, &client, "items").await, [""; 0], "all are acknowledged");
}

async fn work_that_is_dropped_puts_its_items_back(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    put(&anns, &["one", "two", "three", "last"]).await;
    assert_eq!(took(&world, &bobs).await, "one");
    let begun = Arc::new(Semaphore::new(0));
    let begins = begun.clone();
    let consuming = Waiting::new(async move {
        let work = |delivery: Arc<Delivery<String>>| {
            begins.add_permits(1);
            async move {
                let _held = delivery;
                pending::<Result<(), &str>>().await
            }
        };
        anns.consume(count(2), pending(), work).await
    });
    let both = world.in_time("the work", begun.acquire_many(2)).await;
    drop(both.expect("it stays open"));
    let mut deliveries = pin!(bobs.deliveries());
    let last = answer(world.in_time("the last", deliveries.next()).await.expect("it never ends"));
    assert_eq!(last.item(), "last");

    drop(consuming);

    // Either may be put back first.
    let mut again = Vec::new();
    for _ in 0..2 {
        let next = world.in_time("what was put back", deliveries.next()).await;
        let delivery = answer(next.expect("it never ends"));
        again.push((delivery.item().clone(), delivery.delivered()));
        answer(delivery.ack().await);
    }
    again.sort();
    assert_eq!(again, [("three".to_owned(), 2), ("two".to_owned(), 2)]);
    answer(last.ack().await);
    assert_eq!(answer(bobs.len().await), 0);
}

async fn an_item_whose_work_fails_keeps_no_other_waiting(world: World) {
    const GOOD: usize = 20;
    const HOUR: Duration = Duration::from_secs(60 * 60);
    let (ann, bob) = (world.client().await, world.client().await);
    let anns = queue(&world, &ann).backoff(HOUR, HOUR);
    put(&anns, &["bad", "panics"]).await;
    put(&anns, &["good"; GOOD]).await;
    let (stop, good, bad) = (Notify::new(), Cell::new(0), Cell::new(0));
    let work = async |delivery: Arc<Delivery<String>>| {
        world.think().await;
        if delivery.item() == "good" {
            good.set(good.get() + 1);
            if good.get() == GOOD {
                stop.notify_one();
            }
            return Ok(());
        }
        bad.set(bad.get() + 1);
        if delivery.item() == "panics" {
            panics();
        }
        Err("it is bad")
    };

    let consuming = anns.consume(count(2), stop.notified(), work);

    answer(world.in_time("all good ones", consuming).await);
    assert_eq!((good.get(), bad.get()), (GOOD, 2), "each bad one was tried once");
    let left = answer(queue(&world, &bob).items().await);
    let mut left: Vec<_> =
        left.iter().filter_map(|it| Some((it.item()?.as_str(), it.delivered()))).collect();
    // Their dates differ at random.
    left.sort_unstable();
    assert_eq!(left, [("bad", 1), ("panics", 1)]);
    let items = answer(anns.items().await);
    let soon = synod_core::clock::date() + HOUR / 2;
    assert!(items.iter().all(|item| item.not_before() > Some(soon)), "they come later");
}

async fn work_says_whether_its_item_is_done_retried_or_rejected(world: World) {
    const HOUR: Duration = Duration::from_secs(60 * 60);
    const DELIVERIES: usize = 7;
    let client = world.client().await;
    let times = NonZeroU32::new(2).expect("not zero");
    let queue = queue(&world, &client).backoff(HOUR, HOUR).max_deliveries(times);
    put(&queue, &["done", "later", "never", "bad", "again", "fails"]).await;
    let (stop, had) = (Notify::new(), RefCell::new(Vec::new()));
    let work = async |delivery: Arc<Delivery<String>>| {
        let item = delivery.item().clone();
        had.borrow_mut().push((item.clone(), delivery.delivered()));
        if had.borrow().len() == DELIVERIES {
            stop.notify_one();
        }
        Ok(match &*item {
            "later" => WorkOutcome::RetryAfter(2 * HOUR),
            "never" => WorkOutcome::RetryAfter(Duration::MAX),
            "bad" => WorkOutcome::Reject("it is bad".to_owned()),
            "again" => WorkOutcome::RetryAfter(Duration::ZERO),
            "fails" => return Err("it fails"),
            _ => WorkOutcome::Done,
        })
    };

    let consuming = queue.consume(count(1), stop.notified(), work);
    answer(world.in_time("the end", consuming).await);

    let mut had = had.take();
    had.sort();
    let expected: [_; DELIVERIES] = [
        ("again", 1),
        ("again", 2),
        ("bad", 1),
        ("done", 1),
        ("fails", 1),
        ("later", 1),
        ("never", 1),
    ];
    assert_eq!(had, expected.map(|(item, times)| (item.to_owned(), times)));
    let (dead, left) = (answer(queue.dead().await), answer(queue.items().await));
    let mut dead: Vec<_> =
        dead.iter().map(|it| (it.item().map(|it| &**it), it.reason(), it.delivered())).collect();
    dead.sort_unstable();
    let retried = "its work requested a retry, and it has reached the maximum number of deliveries";
    assert_eq!(dead, [(Some("again"), Some(retried), 2), (Some("bad"), Some("it is bad"), 1)]);
    let after = |hours: u32| Some(synod_core::clock::date() + HOUR * hours);
    let date_of = |name: &str| {
        let item = left.iter().find(|it| it.item().is_some_and(|it| it == name));
        item.expect("it is left").not_before()
    };
    assert_eq!(left.len(), 3);
    assert!(date_of("fails") <= after(1), "the backoff is an hour");
    assert!(date_of("later") > after(1) && date_of("later") <= after(2), "it said so");
    assert!(date_of("never") > after(1_000_000));
}

async fn an_item_that_is_put_back_is_the_next_one_before_the_store_reports_it(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    put(&bobs, &["first", "second"]).await;
    let [first, second] = [claimed(&world, &anns).await, claimed(&world, &anns).await];
    gate.mute(true);

    for delivery in [second, first] {
        answer(delivery.put_back().await);
    }

    let again = [claimed(&world, &anns).await, claimed(&world, &anns).await];
    assert_eq!(again.each_ref().map(|delivery| delivery.item().as_str()), ["first", "second"]);
    gate.mute(false);
    for delivery in again {
        answer(delivery.ack().await);
    }
    assert_eq!(answer(bobs.len().await), 0);
}

async fn work_that_ends_its_delivery_itself_costs_no_more(world: World) {
    const ITEMS: usize = 12;
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.unhurried()).await;
    let queue = queue(&world, &client);
    put(&queue, &["first"]).await;
    answer(answer(world.in_time("a delivery", queue.claim()).await).ack().await);
    let items: Vec<String> = (0..ITEMS).map(|number| number.to_string()).collect();
    put(&queue, &items.iter().map(|item| &**item).collect::<Vec<_>>()).await;
    let (stop, done, had) = (Notify::new(), Cell::new(0), RefCell::new(Vec::new()));
    let work = async |delivery: Arc<Delivery<String>>| {
        done.set(done.get() + 1);
        had.borrow_mut().push(delivery.item().clone());
        if done.get() == ITEMS {
            stop.notify_one();
        }
        let ended = match done.get() % 3 {
            0 => delivery.ack_with(Txn::new()).await.map(drop),
            1 => delivery.reject("on purpose").await,
            _ => delivery.put_back_after(Duration::from_secs(60 * 60)).await,
        };
        assert!(ended.is_ok() && !delivery.is_held());
        if done.get() % 2 == 0 { Err("what it says now is too late") } else { Ok(()) }
    };
    let before = gate.count(Verb::Commit);

    let consuming = queue.consume(count(1), stop.notified(), work);
    answer(world.in_time("the end", consuming).await);

    assert_eq!(had.take(), items, "each was delivered once");
    assert_eq!(gate.count(Verb::Commit) - before, 2 * ITEMS, "a claim and its end");
    let (dead, left) = (answer(queue.dead().await).len(), answer(queue.len().await));
    assert_eq!((dead, left), (ITEMS / 3, ITEMS / 3));
}

async fn one_hand_that_is_refused_ends_the_others_when_their_work_is_done(world: World) {
    let bob = world.client().await;
    let (ann, plan) = world.scripted([]).await;
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    let items = ["1", "2", "3", "4", "5", "6"];
    put(&bobs, &items).await;
    let (begun, refused) = (Notify::new(), Notify::new());
    let done = Cell::new(0);
    let work = async |_delivery: Arc<Delivery<String>>| {
        begun.notify_one();
        refused.notified().await;
        done.set(done.get() + 1);
        Ok::<(), String>(())
    };
    for item in &items[..5] {
        assert_eq!(took(&world, &anns).await, *item);
    }
    let consuming = anns.consume(count(2), pending(), work);
    let others = async {
        begun.notified().await;
        plan.cue(Cue::new(Site::Denied).of(Verb::Delete));
        put(&bobs, &["7", "8"]).await;
        world.eventually("a claim is refused", async || plan.pending() == 0).await;
        refused.notify_one();
    };

    let (ended, ()) = world.in_time("its end", join(consuming, others)).await;

    assert_eq!(failure(ended, "a refusal").kind(), ErrorKind::Denied);
    assert_eq!(done.get(), 1, "the work in hand was done, and no other begun");
    assert_eq!(answer(bobs.len().await), 2, "the others wait");
}
