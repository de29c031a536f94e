//! The limits of the arguments of a queue: ids, names, numbers and delays of any size, nodes of
//! other programs, types that panic.

use std::num::{NonZeroU32, NonZeroUsize};
use std::panic::resume_unwind;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use synod_core::error::{Effect, ErrorKind};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime};
use synod_recipes::queue::{PutOptions, Queue};

use crate::door::{answer, failure};
use crate::recipe::queue::{claimed, put, queue, stored, took};
use crate::world::World;

cases![
    "L-Q-1 L-Q-3" breaks [ClaimsNeverEnd] => an_id_is_refused_by_its_put_or_outlives_all_that_is_done_to_its_item,
    "L-Q-11" breaks [QueueIgnoresOrder] => an_item_of_another_program_that_no_claim_can_take_is_a_dead_letter,
    "L-Q-1 L-Q-6" breaks [QueueIgnoresOrder] => ids_and_slots_that_are_missing_or_never_were_keep_no_item,
    "L-Q-9 L-Q-13" breaks [DelayIgnored] => numbers_and_delays_of_any_size_are_taken,
    "L-Q-11" breaks [ClaimsNeverEnd] => an_item_that_is_buried_leaves_its_id_and_its_slot,
    "L-Q-7 L-Q-11" breaks [QueueIgnoresOrder] => a_dead_letter_that_is_revived_is_the_last_of_its_priority,
    "L-Q-6" breaks [ClaimsNeverEnd] => an_item_is_removed_whatever_became_of_it_since_it_was_listed,
    "L-Q-11" breaks [QueueIgnoresOrder] => an_item_whose_type_panics_is_a_dead_letter,
];

async fn an_id_is_refused_by_its_put_or_outlives_all_that_is_done_to_its_item(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let anns = queue(&world, &ann).capacity(NonZeroUsize::MAX);
    let bobs = queue(&world, &bob);
    let lengths = [1, 119, 120, 121, 122, 190, 198, 205, 206, 255, 2_000];
    let ids = lengths.into_iter().map(|length| "x".repeat(length));
    let mut accepted = 0;
    for id in ids.chain(["/".repeat(40), "/".repeat(41)]) {
        let options = PutOptions::default().id(&id);
        match anns.put_with(&id, options).await {
            Ok(true) => accepted += 1,
            refused => {
                assert_eq!(failure(refused, "a long id").kind(), ErrorKind::Invalid);
                continue;
            }
        }
        answer(claimed(&world, &bobs).await.put_back().await);
        answer(claimed(&world, &bobs).await.put_back_after(Duration::ZERO).await);
        answer(claimed(&world, &bobs).await.reject("on purpose").await);
        let dead = answer(bobs.dead().await);
        assert!(answer(bobs.revive(&dead[0]).await));
        let delivery = claimed(&world, &bobs).await;
        assert_eq!((delivery.item(), delivery.id().as_ref()), (&id, Some(&id)));
        answer(delivery.ack().await);
    }
    assert_eq!(accepted, 4, "1, 119 and 120 bytes, and 40 slashes");
    assert_eq!(answer(bobs.len().await), 0);

    let long = format!("/{}", vec!["x".repeat(200); 9].join("/"));
    let queue = Queue::<String>::new(&ann, Path::new(&long).expect("valid"));
    let refused = [
        failure(queue.put(&"a".to_owned()).await, "a long path"),
        failure(queue.claim().await, "a long path"),
        failure(queue.take().await, "a long path"),
        failure(queue.len().await, "a long path"),
        failure(queue.dead().await, "a long path"),
    ];
    for error in refused {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Invalid, Effect::None), "{error}");
    }
}

async fn an_item_of_another_program_that_no_claim_can_take_is_a_dead_letter(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    let long = format!("entry-100-{}", "x".repeat(245));
    answer(ann.put(&world.at("queue/items").join(&long).expect("valid"), "\"long\"").await);
    put(&anns, &["good"]).await;

    let delivery = claimed(&world, &bobs).await;

    assert_eq!(delivery.item(), "good");
    assert_eq!(stored(&world, &ann, "dead").await, ["\"long\""]);
    answer(delivery.ack().await);
    let another = world.at("queue/items").join(&long.replace("100", "101")).expect("valid");
    answer(ann.put(&another, "\"another\"").await);
    assert_eq!(took(&world, &bobs).await, "another", "a take gives it no other name");
}

async fn ids_and_slots_that_are_missing_or_never_were_keep_no_item(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    let theirs = ["entry-100-order-id-17", "entry-100-+d0s3-x", "entry-100-+d1r1s4-y"];
    let seventeen = PutOptions::default().id("17");
    for claims in [false, true] {
        for name in theirs {
            // A name is used once.
            let name = format!("queue/items/{name}-{claims}");
            answer(ann.put(&world.at(&name), "\"theirs\"").await);
        }
        assert!(answer(anns.put_with(&"own".to_owned(), seventeen.clone()).await));
        for had in 0..4 {
            let item = if claims {
                let delivery = claimed(&world, &bobs).await;
                let item = delivery.item().clone();
                answer(delivery.ack().await);
                item
            } else {
                took(&world, &bobs).await
            };
            assert_eq!(item, if had < 3 { "theirs" } else { "own" });
            if had < 3 {
                let again = anns.put_with(&"again".to_owned(), seventeen.clone()).await;
                assert!(!answer(again), "the id is that of the own one");
            }
        }
        assert_eq!(stored(&world, &ann, "items").await, [""; 0]);
    }

    // An operator has removed the node of an id, and that of a slot.
    let bounded = anns.clone().capacity(NonZeroUsize::MIN);
    for end in 0..3 {
        assert!(answer(bounded.put_with(&"it".to_owned(), seventeen.clone()).await));
        for dir in ["queue/ids", "queue/slots"] {
            for node in answer(ann.children(&world.at(dir)).await) {
                answer(answer(ann.delete(&node.path, Expect::Any).await).required());
            }
        }
        match end {
            0 => assert_eq!(took(&world, &bobs).await, "it"),
            1 => answer(claimed(&world, &bobs).await.reject("on purpose").await),
            _ => assert!(answer(anns.remove(&answer(anns.items().await)[0]).await)),
        }
    }
    assert_eq!(answer(bobs.len().await), 0);
    assert_eq!(stored(&world, &ann, "dead").await, ["\"it\""]);
}

async fn numbers_and_delays_of_any_size_are_taken(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let anns = queue(&world, &ann).capacity(NonZeroUsize::MAX);
    let bobs = queue(&world, &bob).max_deliveries(NonZeroU32::MAX);
    let never = PutOptions::default().after(Duration::MAX);
    assert!(answer(anns.put_with(&"never".to_owned(), never).await));
    put(&anns, &["first"]).await;
    let delivery = claimed(&world, &bobs).await;
    answer(delivery.put_back_after(Duration::MAX).await);
    drop(delivery);
    let all: Vec<String> = (0..100).map(|number| format!("{number:02}")).collect();
    for bunch in all.chunks(10) {
        answer(anns.put_many(bunch).await);
    }

    let mut had = Vec::new();
    while had.len() < all.len() {
        let bunch = world.in_time("a bunch", bobs.take_many(NonZeroUsize::MAX)).await;
        had.extend(answer(bunch));
    }

    assert_eq!(had, all);
    let left = answer(bobs.items().await);
    let left: Vec<_> = left.iter().filter_map(|item| item.item().cloned()).collect();
    assert_eq!(left, ["never", "first"], "their time does not come");
    let item = Bytes::from_static(b"x");
    let bytes = Queue::new_bytes(&ann, world.at("bytes"));
    answer(bytes.put_with(&item, PutOptions::default().after(Duration::ZERO)).await);
    assert_eq!(answer(world.in_time("an item", bytes.take()).await), item);
}

async fn an_item_that_is_buried_leaves_its_id_and_its_slot(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let anns = queue(&world, &ann).capacity(NonZeroUsize::MIN);
    let bobs = queue(&world, &bob).max_deliveries(NonZeroU32::MIN);
    let seven = PutOptions::default().id("7");
    assert!(answer(anns.put_with(&"bad".to_owned(), seven.clone()).await));
    let delivery = claimed(&world, &bobs).await;
    assert!(delivery.is_last());
    answer(delivery.put_back().await);
    put(&queue(&world, &ann), &["next"]).await;

    let next = claimed(&world, &bobs).await;

    assert_eq!(next.item(), "next");
    assert_eq!(stored(&world, &ann, "dead").await, ["\"bad\""]);
    assert_eq!(answer(anns.try_put(&"good".to_owned(), seven).await), Some(true));
    for dir in ["ids", "slots"] {
        assert_eq!(stored(&world, &ann, dir).await.len(), 1, "{dir}");
    }
}

async fn a_dead_letter_that_is_revived_is_the_last_of_its_priority(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    let bounded = anns.clone().capacity(NonZeroUsize::MIN);
    let options = PutOptions::default().id("7");
    assert_eq!(answer(bounded.try_put(&"it".to_owned(), options).await), Some(true));
    for round in 0..3 {
        let delivery = claimed(&world, &bobs).await;
        assert_eq!((delivery.item().as_str(), delivery.delivered()), ("it", 1));
        answer(delivery.reject("on purpose").await);
        let others = ["0", "1", "2", "3", "4", "5"];
        put(&anns, &others).await;
        let dead = answer(anns.dead().await);

        assert!(answer(anns.revive(&dead[0]).await) && !answer(anns.revive(&dead[0]).await));

        let items = answer(anns.items().await);
        let shown: Vec<_> = items.iter().filter_map(|item| item.item().cloned()).collect();
        assert_eq!(shown, [&others[..], &["it"]].concat(), "round {round}");
        assert!(items[6].not_before().is_none(), "it may be had at once");
        // One that has tried an item which another consumer had keeps no strict order for a while.
        let fresh = queue(&world, &ann);
        for other in others {
            assert_eq!(took(&world, &fresh).await, other);
        }
        assert_eq!(stored(&world, &ann, "slots").await, [""; 0], "this is no bounded queue");
    }
    assert_eq!(took(&world, &bobs).await, "it");
    assert_eq!(stored(&world, &ann, "ids").await, [""; 0]);
}

async fn an_item_is_removed_whatever_became_of_it_since_it_was_listed(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    put(&anns, &["one", "two", "three"]).await;
    let items = answer(anns.items().await);
    let claim = claimed(&world, &bobs).await;
    assert!(answer(anns.remove(&items[0]).await), "it was claimed since");
    assert_eq!(failure(claim.ack().await, "it was removed").kind(), ErrorKind::SessionLost);
    answer(claimed(&world, &bobs).await.put_back().await);
    assert!(answer(anns.remove(&items[1]).await), "it was put back since");
    assert_eq!(took(&world, &bobs).await, "three");
    for item in &items {
        assert!(!answer(anns.remove(item).await), "it is gone");
    }
    assert_eq!(answer(anns.len().await), 0);
}

/// Panics as a part of the case, without the report of a panic.
pub(super) fn panics() {
    resume_unwind(Box::new("it was told to"));
}

/// A type that panics when it is read, for one text.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Touchy(String);

impl<'de> Deserialize<'de> for Touchy {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text == "panic" {
            panics();
        }
        Ok(Self(text))
    }
}

async fn an_item_whose_type_panics_is_a_dead_letter(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let strings = queue(&world, &ann);
    put(&strings, &["panic", "one", "panic", "two", "3", "4", "5", "6"]).await;
    let queue = Queue::<Touchy>::new(&bob, world.at("queue"));

    let taken = world.in_time("an item", queue.take()).await;
    assert_eq!(failure(taken, "a panic").kind(), ErrorKind::Corrupt);
    assert_eq!(answer(world.in_time("an item", queue.take()).await), Touchy("one".to_owned()));
    let taken = world.in_time("an item", queue.claim()).await;
    assert_eq!(failure(taken, "a panic").kind(), ErrorKind::Corrupt);
    assert_eq!(answer(queue.items().await).len(), 5, "others are listed");
    let delivery = answer(world.in_time("a delivery", queue.claim()).await);
    assert_eq!(delivery.item(), &Touchy("two".to_owned()));
    answer(delivery.ack().await);
    for item in ["3", "4", "5", "6"] {
        let taken = answer(world.in_time("an item", queue.take()).await);
        assert_eq!(taken, Touchy(item.to_owned()));
    }

    let dead = answer(queue.dead().await);
    assert!(dead.len() == 2 && dead.iter().all(|letter| letter.item().is_none()));
    let other = world.at("unrelated");
    answer(answer(bob.create(&other, "", Lifetime::Session).await).required());
}
