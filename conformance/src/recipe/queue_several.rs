//! More than one of everything: queues in one session, clients of one queue in one process, claims
//! that others remove.

use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use synod_core::client::Client;
use synod_core::store::Expect;
use synod_recipes::Held as _;
use synod_recipes::queue::{Delivery, PutOptions, Queue};
use synod_testkit::fault::Verb;
use tokio::sync::Notify;

use crate::door::answer;
use crate::recipe::Waiting;
use crate::recipe::queue::{claimed, put, queue, stored, took};
use crate::recipe::queue_edges::panics;
use crate::world::World;

cases![
    "L-Q-1 L-Q-5 L-Q-6" breaks [ClaimsNeverEnd] => queues_in_one_session_have_nothing_in_common,
    "L-Q-4" breaks [ClaimsNeverEnd] => an_item_whose_claim_another_client_removed_is_delivered_again_to_the_same_consumer,
    "L-Q-6" breaks [ClaimsNeverEnd] => a_claim_counts_only_while_its_session_is_certain,
    "L-Q-1 L-Q-8 L-Q-11" breaks [FailedWorkAcknowledged] => items_with_ids_priorities_and_failures_are_each_done_or_a_dead_letter,
];

fn named(world: &World, client: &Client, name: &str) -> Queue<String> {
    Queue::new(client, world.at(name))
}

async fn queues_in_one_session_have_nothing_in_common(world: World) {
    let client = world.client().await;
    let [left, right, twin] = ["left", "right", "left"].map(|name| named(&world, &client, name));
    let seven = PutOptions::default().id("7");
    for (queue, item) in [(&left, "l"), (&right, "r")] {
        assert!(answer(queue.put_with(&item.to_owned(), seven.clone()).await), "{item}");
        put(queue, &[&format!("{item}2"), &format!("{item}3")]).await;
    }
    assert!(!answer(twin.put_with(&"other".to_owned(), seven).await), "it is the same queue");

    let (lefts, rights) = (claimed(&world, &left).await, claimed(&world, &right).await);
    assert_eq!((lefts.item().as_str(), rights.item().as_str()), ("l", "r"));
    let twins = claimed(&world, &twin).await;
    assert_eq!(twins.item(), "l2", "the other value of the queue has the first");
    answer(rights.ack().await);
    assert!(lefts.is_held() && twins.is_held());
    drop((left, lefts));
    let is_back = async || answer(twin.items().await)[0].claim().is_none();
    world.eventually("it is put back", is_back).await;

    let again = claimed(&world, &twin).await;
    assert_eq!((again.item().as_str(), again.id().as_deref()), ("l", Some("7")));
    assert!(twins.is_held(), "it is of another value");
    answer(twins.ack().await);
    answer(again.ack().await);
    assert_eq!([took(&world, &right).await, took(&world, &right).await], ["r2", "r3"]);
    assert_eq!(took(&world, &twin).await, "l3");
    assert_eq!((answer(twin.len().await), answer(right.len().await)), (0, 0));
}

async fn an_item_whose_claim_another_client_removed_is_delivered_again_to_the_same_consumer(
    world: World,
) {
    let (ann, bob) = (world.client().await, world.client().await);
    let queue = queue(&world, &ann);
    put(&queue, &["one"]).await;
    for (round, notices) in [true, false, true].into_iter().enumerate() {
        let delivery = claimed(&world, &queue).await;
        assert_eq!(usize::try_from(delivery.delivered()), Ok(round + 1));
        answer(answer(bob.delete(delivery.path(), Expect::Any).await).required());
        if notices {
            world.in_time("the loss", delivery.lost()).await;
            drop(delivery);
        } else {
            drop(delivery);
        }
        // No other process searches for it.
        let back = async || stored(&world, &bob, "items").await == ["\"one\""];
        world.eventually("it is put back", back).await;
    }
    answer(claimed(&world, &queue).await.ack().await);
}

async fn a_claim_counts_only_while_its_session_is_certain(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.starve();
    let ann = world.client_on(gate.clone(), world.options()).await;
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    let session = answer(ann.session().await);
    let uncertain = async || !session.is_certain();
    world.eventually("its session is uncertain", uncertain).await;
    put(&bobs, &["one"]).await;

    let mut claims = Waiting::new(async move { anns.claim().await });

    claims.waits_for(world.brief() * 3, "its session is uncertain").await;
    assert!(gate.count(Verb::Commit) > 2, "it has tried");
    claims.stop().await;
    let delivery = claimed(&world, &bobs).await;
    assert_eq!((delivery.item().as_str(), delivery.delivered()), ("one", 1));
}

/// Returns `true` if the work on an item succeeds.
fn is_good(item: &str) -> bool {
    !item.starts_with("bad")
}

async fn items_with_ids_priorities_and_failures_are_each_done_or_a_dead_letter(world: World) {
    const ITEMS: usize = 30;
    let (ann, bob) = (world.client().await, world.client().await);
    let three = NonZeroUsize::new(3).expect("not zero");
    let twice = NonZeroU32::new(2).expect("not zero");
    let consumer = |client: &Client| {
        let queue = queue(&world, client).max_deliveries(twice);
        queue.backoff(Duration::ZERO, Duration::ZERO)
    };
    let [anns, bobs] = [&ann, &bob].map(consumer);
    for number in 0..ITEMS {
        let kind = if number % 5 == 0 { "bad" } else { "good" };
        let priority = u16::try_from(100 + number % 3).expect("small");
        let options = PutOptions::default().id(number.to_string()).priority(priority);
        let item = format!("{kind}-{number}");
        let options = if number % 4 == 0 { options.after(Duration::ZERO) } else { options };
        assert!(answer(anns.put_with(&item, options.clone()).await));
        assert!(!answer(anns.put_with(&item, options).await), "its id is used");
    }
    let done = std::cell::RefCell::new((BTreeSet::new(), 0));
    let stop = Notify::new();
    let work = async |delivery: Arc<Delivery<String>>| {
        world.think().await;
        if !is_good(delivery.item()) {
            done.borrow_mut().1 += 1;
            if delivery.item() == "bad-10" {
                panics();
            }
            return Err("it is bad");
        }
        assert!(done.borrow_mut().0.insert(delivery.item().clone()), "{}", delivery.item());
        Ok(())
    };
    let is_over = async || answer(anns.len().await) == 0;
    let stops = async {
        world.eventually("all are done or dead", is_over).await;
        stop.notify_waiters();
    };

    let both = join(
        anns.consume(three, stop.notified(), work),
        bobs.consume(three, stop.notified(), work),
    );
    let ((first, second), ()) = join(both, stops).await;

    answer(first);
    answer(second);
    let (good, failures) = done.take();
    assert_eq!((good.len(), failures), (ITEMS * 4 / 5, 2 * ITEMS / 5));
    let dead = answer(anns.dead().await);
    assert!(dead.iter().all(|letter| letter.item().is_some_and(|item| !is_good(item))));
    assert_eq!(dead.len(), ITEMS / 5);
    // Those items are delivered again.
    for letter in &dead {
        assert!(answer(anns.revive(letter).await));
    }
    let mut ids = BTreeSet::new();
    for _ in 0..ITEMS / 5 {
        let delivery = claimed(&world, &bobs).await;
        assert_eq!(delivery.delivered(), 1);
        ids.extend(delivery.id());
        answer(delivery.ack().await);
    }
    assert_eq!(ids.len(), ITEMS / 5);
    for dir in ["items", "claimed", "claims", "ids", "dead"] {
        assert_eq!(stored(&world, &bob, dir).await, [""; 0], "{dir}");
    }
}
