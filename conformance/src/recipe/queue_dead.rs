//! Dead letters: each has its reason and its number of deliveries.

use std::cell::Cell;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use synod_core::clock;
use synod_core::store::{Expect, Txn};
use synod_recipes::Held as _;
use synod_recipes::queue::{Delivery, PutOptions, QueuedItem};
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::sync::Notify;

use crate::door::answer;
use crate::recipe::queue::{claimed, put, queue, stored, took};
use crate::world::World;

cases![
    "L-Q-15 L-Q-11" breaks [TransactionRunsAgain] => a_rejected_item_keeps_its_reason_as_long_as_it_is_a_dead_letter,
    "L-Q-15 L-Q-11" breaks [FailedWorkAcknowledged] => the_reason_of_work_that_failed_too_often_is_its_last_error,
    "L-Q-15 L-Q-4" breaks [FailedWorkAcknowledged] => the_failures_of_an_item_are_kept_until_it_leaves,
    "L-Q-15 L-Q-3" breaks [TransactionRunsAgain] => a_failure_whose_answer_is_lost_is_kept_once,
    "L-Q-15 L-Q-11" breaks [ClaimsNeverEnd] => an_item_that_no_consumer_can_receive_has_that_reason,
];

/// The reasons and the deliveries of dead letters.
fn shown(dead: &[QueuedItem<String>]) -> Vec<(Option<&str>, u32)> {
    dead.iter().map(|letter| (letter.reason(), letter.delivered())).collect()
}

async fn a_rejected_item_keeps_its_reason_as_long_as_it_is_a_dead_letter(world: World) {
    let (bob, (ann, plan)) = (world.client().await, world.scripted([]).await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    // The longest reason that is kept ends within a character.
    let long = format!("a{}", "\u{e9}".repeat(1_000));
    for (site, reason) in [
        (Site::ReplyLost, ""),
        (Site::RequestLost, "no such user"),
        (Site::AppliedLate, "a\nb\0c"),
        (Site::Unsent, &long),
    ] {
        assert!(answer(bobs.put_with(&"it".to_owned(), PutOptions::default().id("7")).await));
        answer(claimed(&world, &anns).await.put_back().await);
        let delivery = claimed(&world, &anns).await;
        plan.cue(Cue::new(site).of(Verb::Delete));
        answer(world.in_time("a rejection", delivery.reject(reason)).await);
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");

        let dead = answer(bobs.dead().await);
        let kept = if reason == long { &long[..999] } else { reason };
        assert_eq!(shown(&dead), [(Some(kept), 2)], "{site:?}");
        assert!(answer(bobs.items().await).is_empty());
        assert!(answer(bobs.change(&dead[0], &"other".to_owned()).await));
        let dead = answer(bobs.dead().await);
        assert_eq!(shown(&dead), [(Some(kept), 2)], "its data is changed");

        // It is revived with no reason, and rejected again with another one.
        assert!(answer(bobs.revive(&dead[0]).await));
        assert_eq!(stored(&world, &bob, "failures").await, [""; 0], "{site:?}");
        let items = answer(bobs.items().await);
        assert_eq!(shown(&items), [(None, 0)]);
        answer(claimed(&world, &anns).await.reject("another").await);
        let dead = answer(bobs.dead().await);
        assert_eq!(shown(&dead), [(Some("another"), 1)]);
        assert!(answer(anns.remove(&dead[0]).await) && !answer(anns.remove(&dead[0]).await));
        assert_eq!(stored(&world, &bob, "failures").await, [""; 0], "{site:?}");
    }
    // Letters without a reason, as another program may write them.
    for name in ["entry-100-a", "entry-100-b"] {
        answer(bob.put(&world.at(&format!("queue/dead/{name}")), "\"old\"").await);
    }
    put(&bobs, &["new"]).await;
    answer(claimed(&world, &anns).await.reject("new").await);
    let dead = answer(anns.dead().await);
    let mut reasons = shown(&dead);
    reasons.sort_unstable();
    assert_eq!(reasons, [(None, 0), (None, 0), (Some("new"), 1)]);
    for letter in &dead[..2] {
        assert!(answer(anns.revive(letter).await));
    }
    assert!(answer(anns.remove(&dead[2]).await));
    for _ in 0..2 {
        assert_eq!(took(&world, &bobs).await, "old");
    }
}

async fn the_reason_of_work_that_failed_too_often_is_its_last_error(world: World) {
    let client = world.client().await;
    let times = NonZeroU32::new(3).expect("not zero");
    let queue =
        queue(&world, &client).backoff(Duration::ZERO, Duration::ZERO).max_deliveries(times);
    put(&queue, &["fails", "is rejected", "is done"]).await;
    let (stop, one, ended) = (Notify::new(), NonZeroUsize::MIN, Cell::new(0));
    let work = async |delivery: Arc<Delivery<String>>| {
        if delivery.item() != "fails" || delivery.is_last() {
            ended.set(ended.get() + 1);
        }
        if ended.get() == 3 {
            stop.notify_one();
        }
        if delivery.item() == "is rejected" {
            answer(delivery.reject("the first word").await);
            // The delivery has ended already.
            return Err("the last word".to_owned());
        }
        if delivery.item() == "is done" { Ok(()) } else { Err(format!("{}", delivery.delivered())) }
    };

    answer(world.in_time("the end", queue.consume(one, stop.notified(), work)).await);

    let dead = answer(queue.dead().await);
    let shown: Vec<_> = dead.iter().map(|it| (it.item().map(|it| &**it), it.reason())).collect();
    assert_eq!(shown, [(Some("fails"), Some("3")), (Some("is rejected"), Some("the first word"))]);
    assert_eq!(dead.iter().map(QueuedItem::delivered).collect::<Vec<_>>(), [3, 1]);
}

/// The deliveries that failed, with their reasons.
fn failures(item: &QueuedItem<String>) -> Vec<(u32, &str)> {
    item.failures().iter().map(|failure| (failure.delivered, &*failure.reason)).collect()
}

async fn the_failures_of_an_item_are_kept_until_it_leaves(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    let anns = anns.backoff(Duration::ZERO, Duration::ZERO);
    let begin = clock::date() - Duration::from_secs(1);
    // Each item fails twice, and then leaves in another way.
    let ends = ["ack", "ack_with", "take", "remove", "reject", "revive", "spent"];
    for end in ends {
        let options = PutOptions::default().id("7").priority(5);
        let bounded = bobs.clone().capacity(NonZeroUsize::MIN);
        assert!(answer(bounded.put_with(&end.to_owned(), options).await));
        answer(claimed(&world, &anns).await.fail("one", Duration::ZERO).await);
        // A delivery without a reason, and a change of the data.
        answer(claimed(&world, &bobs).await.put_back().await);
        let item = answer(bobs.items().await).remove(0);
        assert!(answer(bobs.change(&item, &"changed".to_owned()).await));
        let (stop, one) = (Notify::new(), NonZeroUsize::MIN);
        let work = async |_item| {
            stop.notify_one();
            Err::<(), _>("three")
        };
        answer(world.in_time("the end", anns.consume(one, stop.notified(), work)).await);

        let item = answer(bobs.items().await).remove(0);
        assert_eq!(failures(&item), [(1, "one"), (3, "three")], "{end}");
        assert_eq!((item.reason(), item.delivered()), (Some("three"), 3));
        assert!(item.failures().iter().all(|failure| failure.date > begin));
        match end {
            "ack" => answer(claimed(&world, &anns).await.ack().await),
            "ack_with" => {
                let done = answer(claimed(&world, &anns).await.ack_with(Txn::new()).await);
                assert!(done.is_committed());
            }
            "take" => assert_eq!(took(&world, &anns).await, "changed"),
            "remove" => assert!(answer(anns.remove(&item).await)),
            _ => {
                let reason = if end == "spent" {
                    let anns = anns.clone().max_deliveries(NonZeroU32::new(3).expect("not zero"));
                    assert!(answer(world.in_time("a try", anns.try_claim()).await).is_none());
                    (3, "it has reached the maximum number of deliveries")
                } else {
                    answer(claimed(&world, &bobs).await.reject("four").await);
                    (4, "four")
                };
                let dead = answer(anns.dead().await).remove(0);
                assert_eq!(failures(&dead), [(1, "one"), (3, "three"), reason], "{end}");
                assert_eq!(stored(&world, &bob, "failures").await.len(), 1, "its own alone");
                if end == "revive" {
                    assert!(answer(bobs.revive(&dead).await));
                    let item = answer(bobs.items().await).remove(0);
                    assert_eq!((failures(&item), item.delivered()), (vec![], 0));
                    answer(claimed(&world, &anns).await.ack().await);
                } else {
                    assert!(answer(anns.remove(&dead).await));
                }
            }
        }
        for dir in ["items", "claimed", "dead", "failures", "ids", "slots"] {
            assert_eq!(stored(&world, &bob, dir).await, [""; 0], "{end} leaves nothing in {dir}");
        }
    }

    // More failures than are kept, and a node that an operator has removed.
    put(&bobs, &["it"]).await;
    for number in 1..=12 {
        answer(claimed(&world, &anns).await.fail(number.to_string(), Duration::ZERO).await);
    }
    let last = |item: &QueuedItem<String>| failures(item).last().map(|last| last.1.to_owned());
    let item = answer(bobs.items().await).remove(0);
    assert_eq!((failures(&item)[0], item.failures().len()), ((3, "3"), 10));
    assert_eq!(last(&item).as_deref(), Some("12"));
    for node in answer(bob.children(&world.at("queue/failures")).await) {
        answer(answer(bob.delete(&node.path, Expect::Any).await).required());
    }
    let delivery = claimed(&world, &anns).await;
    answer(delivery.fail("13", Duration::ZERO).await);
    let item = answer(bobs.items().await).remove(0);
    assert_eq!(failures(&item), [(13, "13")]);
    for node in answer(bob.children(&world.at("queue/failures")).await) {
        answer(answer(bob.delete(&node.path, Expect::Any).await).required());
    }
    answer(claimed(&world, &anns).await.ack().await);
    assert_eq!(answer(bobs.len().await), 0);
}

async fn a_failure_whose_answer_is_lost_is_kept_once(world: World) {
    let (bob, (ann, plan)) = (world.client().await, world.scripted([]).await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    // The largest item, with the longest history.
    let largest = "x".repeat(answer(ann.session().await).info().limits.data - 2);
    let reason = "\0".repeat(1_000);
    put(&bobs, &[&largest]).await;
    let sites = [Site::ReplyLost, Site::RequestLost, Site::AppliedLate, Site::Unsent];
    for (number, site) in (1..).zip(sites) {
        let delivery = claimed(&world, &anns).await;
        assert_eq!((delivery.item().len(), delivery.delivered()), (largest.len(), number));
        plan.cue(Cue::new(site).of(Verb::Delete));
        let failing = delivery.fail(&reason, Duration::from_millis(1));
        answer(world.in_time("a failure", failing).await);
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        let item = answer(bobs.items().await).remove(0);
        assert_eq!(failures(&item), [(number, &*reason)], "the last one alone has room");
    }
    answer(claimed(&world, &anns).await.reject(reason).await);
    assert_eq!(answer(bobs.dead().await)[0].delivered(), 5);
}

async fn an_item_that_no_consumer_can_receive_has_that_reason(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    answer(bob.put(&world.at("queue/items/entry-100-a"), "no JSON").await);
    let taken = world.in_time("an item", anns.take()).await;
    assert!(taken.is_err(), "no JSON");
    let dead = answer(bobs.dead().await);
    let reason = dead[0].reason().expect("a reason");
    assert!(!reason.is_empty() && dead[0].delivered() == 0, "{reason}");
    assert!(answer(bobs.remove(&dead[0]).await));

    // Its claim is removed after each of its deliveries.
    let anns = anns.max_deliveries(NonZeroU32::MIN);
    put(&bobs, &["spent"]).await;
    let delivery = answer(world.in_time("a delivery", anns.claim()).await);
    answer(answer(bob.delete(delivery.path(), Expect::Any).await).required());
    drop(delivery);
    let is_back = async || stored(&world, &bob, "items").await == ["\"spent\""];
    world.eventually("the item waits again", is_back).await;
    assert!(answer(world.in_time("a try", anns.try_claim()).await).is_none());
    let dead = answer(bobs.dead().await);
    assert_eq!(shown(&dead), [(Some("it has reached the maximum number of deliveries"), 1)]);
}
