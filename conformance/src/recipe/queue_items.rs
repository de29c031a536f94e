//! The items of a queue and its dead letters, as tools read and change them.

use std::time::Duration;

use synod_core::clock::date;
use synod_core::error::ErrorKind;
use synod_core::store::Txn;
use synod_recipes::queue::{PutOptions, Queue, QueueStats};

use crate::door::{answer, failure};
use crate::recipe::queue::{claimed, put, queue, took};
use crate::world::World;

cases![
    "L-Q-6 L-Q-11" catches [OwnerUntold] => what_is_in_the_queue_is_listed_removed_and_moved_back,
    "L-Q-1 L-Q-4 L-Q-11" breaks [ClaimsNeverEnd] => items_are_counted_by_their_states,
    "L-Q-2 L-Q-7 L-Q-6" breaks [QueueIgnoresOrder] => an_item_is_changed_in_its_place_unless_it_is_claimed,
];

async fn what_is_in_the_queue_is_listed_removed_and_moved_back(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    put(&anns, &["one", "two"]).await;
    let options = PutOptions::default().id("7").priority(1);
    assert!(answer(anns.put_with(&"first".to_owned(), options.clone()).await));
    let first = claimed(&world, &bobs).await;

    let items = answer(anns.items().await);

    let shown = items.iter().filter_map(|it| Some((it.item()?.as_str(), it.priority())));
    let shown: Vec<_> = shown.collect();
    assert_eq!(shown, [("first", 1), ("one", 100), ("two", 100)]);
    let owner = answer(bob.session().await).info().id;
    let (claim, put) = (items[0].claim().expect("it is claimed"), items[0].since());
    assert_eq!((claim.session, items[0].delivered()), (owner, 1));
    assert!(put.is_some() && put <= claim.since && claim.since <= Some(date()));
    assert_eq!((items[0].id().as_deref(), items[1].claim()), (Some("7"), None));
    assert!(answer(anns.remove(&items[1]).await) && !answer(anns.remove(&items[1]).await));
    assert!(answer(anns.remove(&items[0]).await), "whatever its claim");
    let late = failure(first.ack_with(Txn::new()).await, "it was removed");
    assert_eq!(late.kind(), ErrorKind::SessionLost);

    assert!(answer(anns.put_with(&"again".to_owned(), options).await), "its id is free");
    let again = async || answer(anns.items().await).iter().any(|it| it.id().is_some());
    world.eventually("it is there", again).await;
    let all = [claimed(&world, &bobs).await, claimed(&world, &bobs).await];
    let (again, two): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.id().is_some());
    for delivery in again {
        answer(delivery.reject("on purpose").await);
    }
    let dead = answer(anns.dead().await);
    assert_eq!(dead.len(), 1);
    assert!(answer(anns.revive(&dead[0]).await) && !answer(anns.revive(&dead[0]).await));
    assert_eq!((answer(anns.dead().await).len(), answer(anns.len().await)), (0, 2));
    let again = claimed(&world, &bobs).await;
    assert_eq!((again.item().as_str(), again.delivered()), ("again", 1));
    answer(again.ack().await);
    drop(two);
    assert_eq!(took(&world, &anns).await, "two");
    assert_eq!(answer(anns.len().await), 0);
}

async fn items_are_counted_by_their_states(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    assert_eq!(answer(anns.stats().await), QueueStats::default(), "there is no node");
    let begin = date();
    put(&bobs, &["one", "two", "three", "four"]).await;
    let hour = Duration::from_secs(60 * 60);
    for options in [PutOptions::default().after(hour), PutOptions::default().at(begin - hour)] {
        assert!(answer(bobs.put_with(&"dated".to_owned(), options).await));
    }
    // A node that is no item, and an item of another program, whose age is not known.
    for name in ["other", "entry-101-other"] {
        answer(ann.put(&world.at(&format!("queue/items/{name}")), "\"other\"").await);
    }
    let counts = async |queue: &Queue<String>| {
        let QueueStats { ready, delayed, claimed, dead, .. } = answer(queue.stats().await);
        [ready, delayed, claimed, dead]
    };
    assert_eq!(counts(&anns).await, [6, 1, 0, 0]);
    let [first, second] = [claimed(&world, &anns).await, claimed(&world, &bobs).await];
    assert_eq!(counts(&anns).await, [4, 1, 2, 0]);
    answer(first.put_back_after(hour).await);
    answer(second.put_back().await);
    assert_eq!(counts(&anns).await, [5, 2, 0, 0]);
    answer(claimed(&world, &anns).await.reject("on purpose").await);
    assert_eq!(counts(&bobs).await, [4, 2, 0, 1]);
    let oldest = answer(bobs.stats().await).oldest.expect("an own item is left");
    assert!(oldest >= begin - Duration::from_secs(1) && oldest <= date(), "{oldest:?}");
    for _ in 0..4 {
        took(&world, &anns).await;
    }
    let left = answer(bobs.stats().await);
    assert_eq!((left.ready, left.delayed, left.dead, left.oldest), (0, 2, 1, None));
}

async fn an_item_is_changed_in_its_place_unless_it_is_claimed(world: World) {
    let (ann, bob, eve) = (world.client().await, world.client().await, world.client().await);
    let [anns, bobs, eves] = [&ann, &bob, &eve].map(|client| queue(&world, client));
    put(&anns, &["first", "two", "three", "four"]).await;
    assert_eq!(took(&world, &bobs).await, "first");
    let change = async |item, to: &str| answer(anns.change(item, &to.to_owned()).await);
    let items = answer(anns.items().await);
    assert!(change(&items[0], "once").await);
    assert!(!change(&items[0], "stale").await, "it is another one by now");
    let items = answer(anns.items().await);
    assert!(change(&items[0], "twice").await);

    assert_eq!(took(&world, &eves).await, "twice", "it has its place");
    let items = answer(anns.items().await);
    assert!(change(&items[0], "four").await);
    // The change is reported as two events, between which another item is the first.
    for _ in 0..2 {
        let delivery = claimed(&world, &bobs).await;
        assert_eq!(delivery.item(), "four", "what it was before is not delivered");
        answer(delivery.ack().await);
    }
    put(&anns, &["five"]).await;
    let delivery = claimed(&world, &bobs).await;
    let items = answer(anns.items().await);
    assert!(!change(&items[0], "claimed").await);
    answer(delivery.reject("on purpose").await);

    let dead = answer(anns.dead().await);
    assert!(change(&dead[0], "mended").await && !change(&dead[0], "stale").await);
    assert!(!answer(anns.revive(&dead[0]).await), "it has other data by now");
    let dead = answer(anns.dead().await);
    assert!(answer(anns.revive(&dead[0]).await));
    assert_eq!(took(&world, &bobs).await, "mended");
}
