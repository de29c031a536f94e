//! The capacity of a bounded queue: no more items are put, even if requests are concurrent and
//! messages are lost.

use std::num::NonZeroUsize;

use futures_util::future::join_all;
use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_recipes::queue::{PutOptions, Queue};
use synod_testkit::cancel::stop_at;
use synod_testkit::fault::Verb;

use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::recipe::queue::{claimed, put, queue, stored, took};
use crate::world::{World, dropped_enough};

cases![
    "L-Q-10" breaks [CapacityUnguarded] => producers_never_put_more_than_the_capacity,
    "L-Q-10" breaks [CapacityUnguarded] => a_full_queue_makes_a_put_wait_or_refuses_it_as_asked,
    "L-Q-1 L-Q-10 L-X-1" breaks [DroppedTakeLost] => a_take_dropped_at_a_full_queue_loses_no_item,
    "L-Q-10 L-X-7" breaks [CapacityUnguarded] => a_capacity_costs_a_list_for_many_puts,
];

fn bounded(world: &World, client: &Client, capacity: usize) -> Queue<String> {
    queue(world, client).capacity(NonZeroUsize::new(capacity).expect("it is not zero"))
}

async fn producers_never_put_more_than_the_capacity(world: World) {
    const PRODUCERS: usize = 3;
    const ITEMS: usize = 8;
    const CAPACITY: usize = 4;
    let (bob, mut all) = (world.client().await, Vec::new());
    for producer in 0..PRODUCERS {
        let client = world.client().await;
        let queue = bounded(&world, &client, CAPACITY);
        all.push(Waiting::new(async move {
            for number in 0..ITEMS {
                queue.put(&format!("{producer}-{number}")).await?;
            }
            Ok(())
        }));
    }
    let consumer = queue(&world, &bob);
    let count = async || answer(consumer.len().await);
    world.eventually("it is full", async || count().await >= CAPACITY).await;

    let mut had = Vec::new();
    for turn in 0..PRODUCERS * ITEMS {
        assert!(count().await <= CAPACITY);
        if turn % 2 == 0 {
            had.push(took(&world, &consumer).await);
        } else {
            let delivery = claimed(&world, &consumer).await;
            had.push(delivery.item().clone());
            assert!(count().await <= CAPACITY, "with those that are claimed");
            answer(delivery.ack().await);
        }
    }

    join_all(all.into_iter().map(|one| one.gets(&world, "room"))).await;
    had.sort();
    had.dedup();
    assert_eq!(had.len(), PRODUCERS * ITEMS);
    assert_eq!(stored(&world, &bob, "slots").await, [""; 0]);
}

async fn a_full_queue_makes_a_put_wait_or_refuses_it_as_asked(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let (anns, bobs) = (bounded(&world, &ann, 2), queue(&world, &bob));
    let more = async |item: &str, options| answer(anns.try_put(&item.to_owned(), options).await);
    let seven = PutOptions::default().id("7");
    assert_eq!(more("one", PutOptions::default()).await, Some(true));
    assert_eq!(more("two", seven.clone()).await, Some(true));
    assert_eq!(more("three", PutOptions::default()).await, None, "it is full");
    let many = anns.put_many(&["a".into(), "b".into(), "c".into()]).await;
    assert_eq!(failure(many, "three at once").kind(), ErrorKind::TooLarge);
    let puts = anns.clone();
    let mut puts =
        Waiting::new(async move { puts.put_many(&["three".into(), "four".into()]).await });
    puts.waits_for(world.brief(), "it is full").await;

    assert_eq!(took(&world, &bobs).await, "one");
    puts.waits_for(world.brief(), "there is room for one").await;
    // A dead letter does not count for the capacity.
    answer(claimed(&world, &bobs).await.reject("on purpose").await);

    puts.gets(&world, "room").await;
    let dead = answer(bobs.dead().await);
    assert!(!answer(anns.revive(&dead[0]).await), "there is no room for it");
    assert_eq!(took(&world, &bobs).await, "three");
    assert_eq!(more("again", seven.clone()).await, Some(true), "its id is free");
    assert!(!answer(anns.revive(&dead[0]).await), "its id is used");
    assert_eq!([took(&world, &bobs).await, took(&world, &bobs).await], ["four", "again"]);
    assert!(answer(anns.revive(&dead[0]).await));
    assert_eq!(more("again", seven).await, Some(false));
    // A producer without a capacity is not limited.
    put(&bobs, &["five", "six"]).await;
    for item in ["two", "five", "six"] {
        assert_eq!(took(&world, &bobs).await, item);
    }
    assert_eq!(stored(&world, &ann, "slots").await, [""; 0]);
}

async fn a_take_dropped_at_a_full_queue_loses_no_item(world: World) {
    const ITEMS: usize = 30;
    let (ann, bob) = (world.hesitant().await, world.client().await);
    let (consumer, producer) = (queue(&world, &ann), bounded(&world, &bob, 1));
    let puts = Waiting::new(async move {
        for number in 0..ITEMS {
            producer.put(&number.to_string()).await?;
        }
        Ok(())
    });
    let (mut had, mut stopped) = (Vec::new(), 0);
    for round in 0.. {
        if had.len() == ITEMS {
            break;
        }
        let taking = consumer.take();
        match world.in_time("a take", stop_at(1 + round % 5, taking)).await {
            Some(taken) => had.push(answer(taken)),
            None => stopped += 1,
        }
        if round % 3 == 0 && had.len() < ITEMS {
            had.push(took(&world, &consumer).await);
        }
    }

    puts.gets(&world, "room").await;
    dropped_enough(stopped, 3);
    had.sort();
    had.dedup();
    assert_eq!(had.len(), ITEMS, "each is had once");
}

async fn a_capacity_costs_a_list_for_many_puts(world: World) {
    const CAPACITY: usize = 20;
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.options()).await;
    let queue = bounded(&world, &client, CAPACITY);
    put(&queue, &["first"]).await;
    let (commits, reads) = (gate.count(Verb::Commit), gate.count(Verb::Read));

    put(&queue, &["item"; CAPACITY - 1]).await;

    assert_eq!(gate.count(Verb::Commit) - commits, CAPACITY - 1, "a put is one request");
    assert_eq!(gate.count(Verb::Read), reads, "the slots were listed once");
    assert_eq!(answer(queue.try_put(&String::new(), PutOptions::default()).await), None);
    assert_eq!(gate.count(Verb::Read) - reads, 1, "the slots are listed again");
    assert_eq!(stored(&world, &client, "slots").await.len(), CAPACITY);
}
