//! Dead letters: each has its reason and its number of deliveries.

use std::cell::Cell;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use synod_core::store::Expect;
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
        assert_eq!(stored(&world, &bob, "reasons").await, [""; 0], "{site:?}");
        let items = answer(bobs.items().await);
        assert_eq!(shown(&items), [(None, 0)]);
        answer(claimed(&world, &anns).await.reject("another").await);
        let dead = answer(bobs.dead().await);
        assert_eq!(shown(&dead), [(Some("another"), 1)]);
        assert!(answer(anns.remove(&dead[0]).await) && !answer(anns.remove(&dead[0]).await));
        assert_eq!(stored(&world, &bob, "reasons").await, [""; 0], "{site:?}");
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
