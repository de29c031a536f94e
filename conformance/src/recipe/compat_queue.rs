//! The queue of another library: no item is lost, invented or doubled, and items are taken in the
//! order of that library.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime};
use synod_recipes::queue::{CompatQueue, ItemPlace, QueueLayout};
use synod_testkit::cancel::stop_at;
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::time::Instant;

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::world::{World, dropped_enough};

cases![
    "L-Q-2 L-Q-7 L-Q-8" breaks [QueueIgnoresOrder] => items_are_taken_in_the_order_of_the_other_library,
    "L-Q-2 L-Q-7" catches [TextOnly] => items_in_one_node_are_taken_together_and_other_data_stays,
    "L-Q-3" breaks [TransactionRunsAgain] => a_put_whose_answer_is_lost_makes_one_node,
    "L-Q-1 L-Q-5" breaks [TransactionRunsAgain] => a_take_whose_answer_is_lost_has_its_items,
    "L-Q-1 L-X-1 L-X-5" breaks [DroppedTakeLost] => a_take_dropped_at_any_await_puts_its_item_back,
    "L-Q-6" catches [EventDropped] => what_the_other_library_has_locked_is_not_taken,
    "L-Q-9" breaks [DelayIgnored] => a_delayed_item_waits_for_its_time_and_keeps_none_waiting,
    "L-Q-12" needs [Expiry] breaks [OutageUnread] => what_was_put_during_an_outage_is_taken,
    "L-Q-14 L-Q-6 L-Q-9" breaks [DelayIgnored] => a_try_takes_what_is_there_and_waits_for_nothing,
];

/// Layouts with one item in a node, whose items have no priority unless one is given.
const PLAIN: [QueueLayout; 4] = [
    QueueLayout::CuratorSimple,
    QueueLayout::CuratorItems,
    QueueLayout::KazooLocking,
    QueueLayout::EtcdRecipe,
];

fn queue(world: &World, client: &Client, layout: QueueLayout) -> CompatQueue {
    CompatQueue::new(client, world.at(&name(layout)), layout)
}

fn name(layout: QueueLayout) -> String {
    format!("{layout:?}").to_lowercase()
}

async fn put(queue: &CompatQueue, items: &[&str]) {
    for item in items {
        answer(queue.put((*item).to_owned()).await);
    }
}

async fn took(world: &World, queue: &CompatQueue) -> Vec<String> {
    let items = answer(world.in_time("an item", queue.take()).await);
    items.iter().map(|item| String::from_utf8_lossy(item).into_owned()).collect()
}

/// The names of the nodes in a directory.
async fn names(world: &World, client: &Client, dir: &str) -> Vec<String> {
    let nodes = answer(client.children(&world.at(dir)).await);
    nodes.iter().map(|node| node.path.name().to_owned()).collect()
}

async fn items_are_taken_in_the_order_of_the_other_library(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let all: Vec<String> = (0..12).map(|number| format!("{number:02}")).collect();
    for layout in PLAIN {
        let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client, layout));
        put(&anns, &all.iter().map(|item| &**item).collect::<Vec<_>>()).await;
        for item in &all {
            assert_eq!(took(&world, &bobs).await, [item.as_str()], "{layout:?}");
        }
    }
    for layout in [QueueLayout::CuratorPriority, QueueLayout::KazooLocking] {
        let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client, layout));
        for (item, priority) in [("last", 700), ("b", 7), ("first", 1), ("c", 7)] {
            answer(anns.put_at(&[item.into()], ItemPlace::default().priority(priority)).await);
        }
        for item in ["first", "b", "c", "last"] {
            assert_eq!(took(&world, &bobs).await, [item], "{layout:?}");
        }
    }
    let plain = queue(&world, &ann, QueueLayout::CuratorSimple);
    let refused = plain.put_at(&["x".into()], ItemPlace::default().priority(1)).await;
    assert_eq!(failure(refused, "a priority").kind(), ErrorKind::Invalid);
}

async fn items_in_one_node_are_taken_together_and_other_data_stays(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client, QueueLayout::CuratorItems));
    let dir = name(QueueLayout::CuratorItems);
    for other in ["queue-", "other"] {
        answer(bob.put(&world.at(&format!("{dir}/{other}")), "no items").await);
    }
    let bytes = [Bytes::from_static(b"\xff\x00"), Bytes::new(), Bytes::from_static(b"\x02")];
    answer(anns.put_at(&bytes, ItemPlace::default()).await);
    put(&anns, &["next"]).await;

    assert_eq!(answer(world.in_time("items", bobs.take()).await), bytes);
    assert_eq!(took(&world, &bobs).await, ["next"]);

    assert_eq!(names(&world, &ann, &dir).await, ["other", "queue-"], "these are not taken");
    let simple = queue(&world, &ann, QueueLayout::CuratorSimple);
    let two = ["one".into(), "two".into()];
    let refused = simple.put_at(&two, ItemPlace::default()).await;
    assert_eq!(failure(refused, "two in a node").kind(), ErrorKind::Invalid);
}

/// The ways in which an answer is lost.
const LOST: [Site; 4] = [Site::ReplyLost, Site::RequestLost, Site::AppliedLate, Site::Unsent];

async fn a_put_whose_answer_is_lost_makes_one_node(world: World) {
    let (client, plan) = world.scripted([]).await;
    for layout in [QueueLayout::CuratorSimple, QueueLayout::EtcdRecipe] {
        let queue = queue(&world, &client, layout);
        put(&queue, &["first"]).await;
        for (number, site) in LOST.into_iter().enumerate() {
            plan.cue(Cue::new(site).of(Verb::Set));
            answer(world.in_time("a put", queue.put(format!("{site:?}"))).await);
            assert_eq!(plan.pending(), 0, "{site:?} did not fire");
            let there = names(&world, &client, &name(layout)).await;
            assert_eq!(there.len(), number + 2, "{layout:?}, {site:?}: {there:?}");
        }
        for item in ["first".to_owned()].into_iter().chain(LOST.map(|site| format!("{site:?}"))) {
            assert_eq!(took(&world, &queue).await, [item], "{layout:?}");
        }
    }
}

async fn a_take_whose_answer_is_lost_has_its_items(world: World) {
    let (client, plan) = world.scripted([]).await;
    let layout = QueueLayout::CuratorSimple;
    let queue = queue(&world, &client, layout);
    put(&queue, &["first"]).await;
    assert_eq!(took(&world, &queue).await, ["first"]);
    for site in LOST {
        let item = format!("{site:?}");
        put(&queue, &[&item]).await;
        plan.cue(Cue::new(site).of(Verb::Delete));

        assert_eq!(took(&world, &queue).await, [item]);
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
    }
    assert_eq!(names(&world, &client, &name(layout)).await, [""; 0]);
}

async fn a_take_dropped_at_any_await_puts_its_item_back(world: World) {
    const ROUNDS: usize = 12;
    const ITEMS: usize = 2 * ROUNDS;
    let (ann, bob) = (world.hesitant().await, world.client().await);
    let layout = QueueLayout::CuratorItems;
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client, layout));
    put(&bobs, &["item"; ITEMS]).await;
    let (mut had, mut stopped) = (0, 0);
    for awaits in 1..=ROUNDS {
        // At one of its awaits, and then after some time.
        let taken = stop_at(1 + awaits % 3, anns.take()).await;
        let pauses = pin!(world.think_for(awaits));
        let later = match select(pin!(anns.take()), pauses).await {
            Either::Left((taken, _)) => Some(taken),
            Either::Right(_) => None,
        };
        for taken in [taken, later] {
            stopped += usize::from(taken.is_none());
            had += taken.map_or(0, |taken| answer(taken).len());
        }
    }

    dropped_enough(stopped, 2);
    // Items that were not taken are still queued, or are put back.
    let there = async || names(&world, &bob, &name(layout)).await.len() == ITEMS - had;
    world.eventually("what was dropped is there", there).await;
    for _ in had..ITEMS {
        assert_eq!(took(&world, &anns).await, ["item"]);
    }
}

async fn what_the_other_library_has_locked_is_not_taken(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let theirs = world.at("locks");
    let curators = |client: &Client| {
        let layout = QueueLayout::CuratorItems;
        CompatQueue::locked_at(client, world.at("items"), layout, &theirs)
    };
    let kazoo = QueueLayout::KazooLocking;
    for (queue, items, locks) in [
        (curators(&ann), world.at("items"), theirs.clone()),
        (
            queue(&world, &ann, kazoo),
            world.at(&format!("{}/entries", name(kazoo))),
            world.at(&format!("{}/taken", name(kazoo))),
        ),
    ] {
        put(&queue, &["one", "two"]).await;
        let nodes = answer(bob.children(&items).await);
        let [first, second] = [0, 1].map(|index| locks.join(nodes[index].path.name()));
        let lock = first.expect("valid");
        answer(answer(bob.create(&lock, "theirs", Lifetime::Session).await).required());
        assert_eq!(took(&world, &queue).await, ["two"], "{items}");

        let mut takes = Waiting::new(async move { queue.take().await });
        takes.waits_for(world.brief(), "it is locked").await;
        // The lock of a removed item has no effect.
        let late = second.expect("valid");
        answer(answer(bob.create(&late, "theirs", Lifetime::Session).await).required());
        answer(answer(bob.delete(&lock, Expect::Any).await).required());

        assert_eq!(takes.gets(&world, "what is free again").await, ["one"]);
    }
}

async fn a_delayed_item_waits_for_its_time_and_keeps_none_waiting(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client, QueueLayout::CuratorDelay));
    let delay = world.brief() * 4;
    // The wall clock continues while time is paused.
    let least = delay / 2;
    let (late, soon) = (ItemPlace::default().after(delay), ItemPlace::default());
    let since = Instant::now();
    answer(anns.put_at(&["late".into()], late).await);
    answer(anns.put_at(&["soon".into()], soon.after(Duration::ZERO)).await);

    assert_eq!(took(&world, &bobs).await, ["soon"]);
    assert_eq!(took(&world, &bobs).await, ["late"]);
    assert!(since.elapsed() >= least, "{:?}", since.elapsed());
}

async fn a_try_takes_what_is_there_and_waits_for_nothing(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let tried = async |queue: &CompatQueue| answer(world.in_time("a try", queue.try_take()).await);
    for layout in [&PLAIN[..], &[QueueLayout::CuratorDelay, QueueLayout::CuratorPriority]].concat()
    {
        let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client, layout));
        assert!(tried(&anns).await.is_none(), "{layout:?}: nothing was put yet");
        for round in 0..3 {
            let place = ItemPlace::default();
            let place = match layout {
                QueueLayout::CuratorDelay => place.after(Duration::ZERO),
                QueueLayout::CuratorPriority => place.priority(1),
                _ => place,
            };
            answer(bobs.put_at(&["one".into()], place).await);
            let taken = tried(&anns).await;
            assert_eq!(taken, Some(vec!["one".into()]), "{layout:?}, round {round}");
            assert!(tried(&anns).await.is_none(), "{layout:?}: it is gone");
        }
    }
    let delayed = queue(&world, &ann, QueueLayout::CuratorDelay);
    let hour = ItemPlace::default().after(Duration::from_secs(60 * 60));
    answer(delayed.put_at(&["later".into()], hour).await);
    assert!(tried(&delayed).await.is_none(), "not before its time");
    let items = queue(&world, &ann, QueueLayout::CuratorItems);
    let other = world.at(&format!("{}/queue-x", name(QueueLayout::CuratorItems)));
    answer(bob.put(&other, "no items").await);
    assert!(tried(&items).await.is_none(), "it cannot be read");

    // Consumers that start now; one of them does not know the lock.
    let layout = QueueLayout::KazooLocking;
    put(&queue(&world, &bob, layout), &["locked"]).await;
    let node = names(&world, &bob, &format!("{}/entries", name(layout))).await.remove(0);
    let lock = world.at(&format!("{}/taken/{node}", name(layout)));
    answer(answer(bob.create(&lock, "theirs", Lifetime::Session).await).required());
    let (late, eve) = (world.client().await, queue(&world, &ann, layout));
    let lates = queue(&world, &late, layout);
    assert!(tried(&lates).await.is_none() && tried(&eve).await.is_none(), "it is locked");
    answer(answer(bob.delete(&lock, Expect::Any).await).required());
    assert_eq!(tried(&lates).await, Some(vec!["locked".into()]), "it is free again");
}

async fn what_was_put_during_an_outage_is_taken(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client, QueueLayout::KazooLocking));
    // There are both items and locks.
    put(&bobs, &["kept"]).await;
    let dir = name(QueueLayout::KazooLocking);
    let kept = names(&world, &bob, &format!("{dir}/entries")).await;
    let lock = world.at(&format!("{dir}/taken")).join(&kept[0]).expect("valid");
    answer(answer(bob.create(&lock, "theirs", Lifetime::Session).await).required());
    put(&bobs, &["first"]).await;
    assert_eq!(took(&world, &anns).await, ["first"]);
    for round in 0..2 {
        let takes = anns.clone();
        let mut takes = Waiting::new(async move { takes.take().await });
        takes.waits_for(world.brief(), "there is nothing").await;
        let session = answer(ann.session().await);
        gate.set(Way::Shut);
        world.expire(session.info().id).await;
        world.in_time("the loss", session.lost()).await;
        let item = format!("{round}");
        put(&bobs, &[&item]).await;

        gate.set(Way::Open);

        assert_eq!(takes.gets(&world, "what was put").await, [item]);
    }
}
