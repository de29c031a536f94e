//! The queue: no item is lost, invented or doubled, even if messages are lost, and items are taken
//! in order.

use std::num::{NonZeroU32, NonZeroUsize};
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, join_all, select};
use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime, Txn};
use synod_recipes::Held as _;
use synod_recipes::queue::{Delivery, PutOptions, Queue};
use synod_testkit::cancel::stop_at;
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::time::Instant;

use crate::door::gate::{Gate, Way};
use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::world::{World, dropped_enough};

cases![
    "L-Q-7 L-Q-8 L-Q-2" breaks [QueueIgnoresOrder] => items_are_had_in_the_order_of_their_puts,
    "L-Q-3" breaks [TransactionRunsAgain] => a_put_whose_answer_is_lost_makes_one_item,
    "L-Q-3" catches [CreateOverwrites] => an_item_of_the_same_id_is_put_once,
    "L-Q-1 L-Q-5" breaks [TransactionRunsAgain] => a_take_whose_answer_is_lost_has_its_item,
    "L-Q-1 L-X-1 L-X-5" breaks [DroppedTakeLost] => a_take_dropped_at_any_await_loses_no_item,
    "L-Q-6" breaks [ClaimIgnored] => an_item_that_is_claimed_is_had_by_no_other,
    "L-Q-6 L-Q-4" breaks [ClaimIgnored] => an_item_is_held_after_a_claim_of_it_that_never_arrived,
    "L-Q-6 L-Q-4" catches [DeleteOfMissingSucceeds] => a_stale_consumer_acknowledges_nothing,
    "L-Q-4" needs [Expiry] breaks [ClaimsNeverEnd] => the_item_of_a_dead_consumer_is_delivered_again,
    "L-Q-4 L-Q-1" breaks [TransactionRunsAgain] => what_is_written_with_an_acknowledgement_happens_once,
    "L-Q-6 L-KV-9" catches [AppliesHalf] => an_acknowledgement_whose_operations_are_rejected_changes_nothing,
    "L-Q-11" breaks [QueueIgnoresOrder] => what_is_rejected_or_cannot_be_read_is_a_dead_letter,
    "L-Q-11 L-Q-4" breaks [ClaimsNeverEnd] => an_item_that_is_delivered_too_often_is_a_dead_letter,
    "L-Q-9" breaks [DelayIgnored] => an_item_waits_for_its_time_and_keeps_none_waiting,
    "L-Q-7 L-Q-3" catches [SizeUnchecked] => a_bunch_is_put_whole_or_not_at_all,
    "L-Q-12" needs [Expiry] breaks [OutageUnread] => a_consumer_gets_what_was_put_while_it_was_cut_off,
    "L-Q-13 L-X-7" breaks [EventReadsAll] => an_item_costs_a_request_to_put_and_one_to_take,
    "L-Q-13 L-X-8" breaks [ConsumersHerd] => consumers_that_wait_seldom_ask_for_the_same_item,
];

pub(super) fn queue(world: &World, client: &Client) -> Queue<String> {
    Queue::new(client, world.at("queue"))
}

pub(super) async fn put(queue: &Queue<String>, items: &[&str]) {
    for item in items {
        answer(queue.put(&(*item).to_owned()).await);
    }
}

pub(super) async fn took(world: &World, queue: &Queue<String>) -> String {
    answer(world.in_time("an item", queue.take()).await)
}

pub(super) async fn claimed(world: &World, queue: &Queue<String>) -> Delivery<String> {
    answer(world.in_time("a delivery", queue.claim()).await)
}

/// The data of the nodes in a directory of the queue.
pub(super) async fn stored(world: &World, client: &Client, dir: &str) -> Vec<String> {
    let nodes = answer(client.children(&world.at(&format!("queue/{dir}"))).await);
    let data = nodes.iter().map(|node| String::from_utf8_lossy(&node.data).into_owned());
    let mut data: Vec<_> = data.collect();
    data.sort();
    data
}

async fn items_are_had_in_the_order_of_their_puts(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let producer = queue(&world, &ann);
    let all: Vec<String> = (0..20).map(|number| format!("{number:02}")).collect();
    put(&producer, &all.iter().map(|item| &**item).collect::<Vec<_>>()).await;
    for (item, priority) in [("later", 101), ("first", 0), ("second", 1)] {
        let options = PutOptions::default().priority(priority);
        assert!(answer(producer.put_with(&item.to_owned(), options).await));
    }
    let consumer = queue(&world, &bob);

    let mut had = Vec::new();
    for turn in 0..23 {
        if turn % 2 == 0 {
            had.push(took(&world, &consumer).await);
        } else {
            let delivery = claimed(&world, &consumer).await;
            had.push(delivery.item().clone());
            answer(delivery.ack().await);
        }
    }

    let expected = [&["first".to_owned(), "second".to_owned()], &all[..], &["later".to_owned()]];
    assert_eq!(had, expected.concat());
    assert_eq!(stored(&world, &ann, "items").await, [""; 0]);
    let refused = producer.put_with(&String::new(), PutOptions::default().priority(1_000)).await;
    assert_eq!(failure(refused, "a priority").kind(), ErrorKind::Invalid);
}

/// The ways in which an answer is lost.
const LOST: [Site; 4] = [Site::ReplyLost, Site::RequestLost, Site::AppliedLate, Site::Unsent];

async fn a_put_whose_answer_is_lost_makes_one_item(world: World) {
    let (client, plan) = world.scripted([]).await;
    let queue = queue(&world, &client);
    put(&queue, &["first"]).await;
    for site in LOST {
        plan.cue(Cue::new(site).of(Verb::Set));
        let item = format!("{site:?}");
        answer(world.in_time("a put", queue.put(&item)).await);
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
    }

    let mut all: Vec<_> = LOST.map(|site| format!("\"{site:?}\"")).into();
    all.push("\"first\"".to_owned());
    all.sort();
    assert_eq!(stored(&world, &client, "items").await, all);
}

async fn an_item_of_the_same_id_is_put_once(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [first, second] = [&ann, &bob].map(|client| queue(&world, client));
    let put = async |queue: &Queue<String>, item: &str| {
        let options = PutOptions::default().id("order 7/2");
        answer(queue.put_with(&item.to_owned(), options).await)
    };
    assert!(put(&first, "one").await);
    assert!(!put(&second, "two").await, "it is there");
    let delivery = claimed(&world, &first).await;
    assert_eq!((delivery.item().as_str(), delivery.delivered()), ("one", 1));
    assert_eq!(delivery.id().as_deref(), Some("order 7/2"));
    assert!(!put(&second, "three").await, "it is claimed");
    answer(delivery.ack().await);

    assert!(put(&second, "four").await, "it is done");

    assert_eq!(took(&world, &first).await, "four");
    let nothing = PutOptions::default().id("");
    let refused = first.put_with(&String::new(), nothing).await;
    assert_eq!(failure(refused, "an empty id").kind(), ErrorKind::Invalid);
}

async fn a_take_whose_answer_is_lost_has_its_item(world: World) {
    let (client, plan) = world.scripted([]).await;
    let queue = queue(&world, &client);
    put(&queue, &["first"]).await;
    assert_eq!(took(&world, &queue).await, "first");
    for site in LOST {
        let item = format!("{site:?}");
        put(&queue, &[&item]).await;
        plan.cue(Cue::new(site).of(Verb::Delete));

        assert_eq!(took(&world, &queue).await, item);
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
    }
    assert_eq!(stored(&world, &client, "items").await, [""; 0]);
}

async fn a_take_dropped_at_any_await_loses_no_item(world: World) {
    const ROUNDS: usize = 12;
    const ITEMS: usize = 4 * ROUNDS;
    const TWO: NonZeroUsize = NonZeroUsize::new(2).expect("it is two");
    let (ann, bob) = (world.hesitant().await, world.client().await);
    let (consumer, producer) = (queue(&world, &ann), queue(&world, &bob));
    put(&producer, &["item"; ITEMS]).await;
    let (mut had, mut stopped) = (0, 0);
    for awaits in 1..=ROUNDS {
        // At one of its awaits, and then after some time.
        let taken = stop_at(1 + awaits % 3, consumer.take_many(TWO)).await;
        let pauses = pin!(world.think_for(awaits));
        let later = match select(pin!(consumer.take()), pauses).await {
            Either::Left((taken, _)) => Some(taken),
            Either::Right(_) => None,
        };
        stopped += usize::from(taken.is_none()) + usize::from(later.is_none());
        had += taken.map_or(0, |taken| answer(taken).len());
        had += later.map_or(0, |taken| usize::from(!answer(taken).is_empty()));
    }

    dropped_enough(stopped, 2);
    // Items that were not taken are still queued, or are put back.
    let left = vec!["\"item\""; ITEMS - had];
    let there = async || stored(&world, &bob, "items").await == left;
    world.eventually("what was dropped is there", there).await;
    for _ in had..ITEMS {
        assert_eq!(took(&world, &consumer).await, "item");
    }
}

async fn an_item_that_is_claimed_is_had_by_no_other(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    put(&anns, &["one"]).await;
    let delivery = claimed(&world, &anns).await;
    assert!(delivery.is_held());

    let mut takes = Waiting::new(async move { bobs.take().await });
    takes.waits_for(world.brief(), "it is claimed").await;
    assert!(delivery.is_held());
    answer(delivery.put_back().await);

    assert_eq!(takes.gets(&world, "what was put back").await, "one");
}

async fn an_item_is_held_after_a_claim_of_it_that_never_arrived(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let options = world.unhurried().timeout(world.brief() * 5);
    let (ann, plan) = world.scripted_on(gate.clone(), options, []).await;
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    put(&bobs, &["first", "second"]).await;
    let first = claimed(&world, &anns).await;

    let (consumer, sent) = (anns.clone(), gate.count(Verb::Commit));
    plan.cue(Cue::new(Site::RequestLost).of(Verb::Commit));
    gate.set(Way::Shut);
    let claims = Waiting::new(async move { consumer.claim().await });
    let is_sent_again = async || gate.count(Verb::Commit) > sent + 1;
    world.eventually("the claim in doubt is sent again", is_sent_again).await;
    assert_eq!(plan.pending(), 0, "its request was lost");
    gate.set(Way::Open);

    let second = claims.gets(&world, "the item that was not claimed").await;
    assert_eq!(second.item(), "second");
    let mut takes = Waiting::new(async move { bobs.take().await });
    takes.waits_for(world.brief(), "both are claimed").await;
    assert!(answer(bob.exists(second.path()).await), "it is claimed");
    assert_eq!(second.delivered(), 1, "the claim that never arrived is no delivery");
    drop(first);
    assert_eq!(takes.gets(&world, "what was put back").await, "first");
    assert!(second.is_held());
}

async fn a_stale_consumer_acknowledges_nothing(world: World) {
    let (ann, bob, eve) = (world.client().await, world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    put(&anns, &["one"]).await;
    let stale = claimed(&world, &anns).await;

    answer(answer(eve.delete(stale.path(), Expect::Any).await).required());
    let next = claimed(&world, &bobs).await;

    assert!(next.token() > stale.token() && next.delivered() == 2);
    let effect = world.at("effect");
    let write = Txn::new().create(&effect, "stale", Lifetime::Persistent);
    let late = failure(stale.ack_with(write).await, "a claim that is lost");
    assert_eq!(late.kind(), ErrorKind::SessionLost);
    assert!(!answer(eve.exists(&effect).await));
    assert_eq!(failure(stale.ack().await, "a claim that is lost").kind(), ErrorKind::SessionLost);
    assert!(next.is_held(), "it took nothing with it");
    answer(next.ack().await);
    assert_eq!(stored(&world, &eve, "items").await, [""; 0]);
}

async fn the_item_of_a_dead_consumer_is_delivered_again(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    put(&anns, &["one", "two"]).await;
    let dead = claimed(&world, &anns).await;
    assert_eq!(took(&world, &bobs).await, "two");
    let waits = Waiting::new(async move { bobs.claim().await });
    let session = answer(ann.session().await).info().id;

    gate.die_after(0);
    world.expire(session).await;

    let next = waits.gets(&world, "the item of the dead").await;
    assert_eq!((next.item().as_str(), next.delivered()), ("one", 2));
    assert!(next.token() > dead.token());
    answer(next.ack().await);
    gate.revive();
}

async fn what_is_written_with_an_acknowledgement_happens_once(world: World) {
    let (client, plan) = world.scripted([]).await;
    let queue = queue(&world, &client);
    let effects = world.at("effects");
    for (number, site) in LOST.into_iter().enumerate() {
        put(&queue, &["one"]).await;
        let delivery = claimed(&world, &queue).await;
        plan.cue(Cue::new(site).of(Verb::Delete));
        let effect = effects.join(&number.to_string()).expect("valid");

        let write = Txn::new().create(effect, "", Lifetime::Persistent);
        let done = world.in_time("an acknowledgement", delivery.ack_with(write)).await;

        assert!(answer(done).is_committed(), "{site:?}");
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        assert!(!delivery.is_held(), "it is done");
    }
    assert_eq!(stored(&world, &client, "items").await, [""; 0]);
    assert_eq!(answer(client.children(&effects).await).len(), LOST.len());
}

async fn an_acknowledgement_whose_operations_are_rejected_changes_nothing(world: World) {
    let client = world.client().await;
    let queue = queue(&world, &client);
    put(&queue, &["one"]).await;
    let delivery = claimed(&world, &queue).await;
    let (missing, effect) = (world.at("missing"), world.at("effect"));

    let write = Txn::new().create(&effect, "", Lifetime::Persistent).set(&missing, "", Expect::Any);
    let outcome = answer(delivery.ack_with(write).await);

    let no = outcome.rejected().expect("one of its nodes is missing");
    assert_eq!((no.index, &no.path), (1, &missing));
    assert!(delivery.is_held() && !answer(client.exists(&effect).await));
    assert_eq!(stored(&world, &client, "claimed").await, ["\"one\""]);
    let write = Txn::new().create(&effect, "", Lifetime::Persistent);
    assert!(answer(delivery.ack_with(write).await).is_committed());
    for dir in ["items", "claimed", "claims"] {
        assert_eq!(stored(&world, &client, dir).await, [""; 0], "{dir}");
    }
}

async fn what_is_rejected_or_cannot_be_read_is_a_dead_letter(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    for (name, data) in
        [("entry-100-z", "no JSON"), ("entry-100-y", "{"), ("entry-100-a", "\"good\"")]
    {
        answer(ann.put(&world.at(&format!("queue/items/{name}")), data).await);
    }

    let taken = world.in_time("an item", bobs.take()).await;
    assert_eq!(failure(taken, "no JSON").kind(), ErrorKind::Corrupt);
    let taken = world.in_time("an item", anns.claim()).await;
    assert_eq!(failure(taken, "no JSON").kind(), ErrorKind::Corrupt);
    let good = claimed(&world, &bobs).await;
    assert_eq!(good.item(), "good");
    answer(good.reject("on purpose").await);

    let options = PutOptions::default().id("bad");
    assert!(answer(anns.put_with(&"bad".to_owned(), options.clone()).await));
    answer(claimed(&world, &bobs).await.reject("on purpose").await);
    assert_eq!(stored(&world, &ann, "items").await, [""; 0]);
    assert_eq!(stored(&world, &ann, "dead").await, ["\"bad\"", "\"good\"", "no JSON", "{"]);
    assert!(answer(anns.put_with(&"again".to_owned(), options).await), "the id is free");
    assert_eq!(took(&world, &bobs).await, "again");
}

async fn a_consumer_gets_what_was_put_while_it_was_cut_off(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    // There are items and a consumer all the time.
    put(&bobs, &["kept", "first"]).await;
    let later = PutOptions::default().after(Duration::from_secs(1_000));
    assert!(answer(bobs.put_with(&"later".to_owned(), later).await));
    let _kept = claimed(&world, &bobs).await;
    assert_eq!(took(&world, &anns).await, "first");
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

        assert_eq!(takes.gets(&world, "what was put").await, item);
    }
}

async fn an_item_costs_a_request_to_put_and_one_to_take(world: World) {
    const ITEMS: usize = 10;
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let bobs = Queue::<Bytes>::new_bytes(&bob, world.at("queue"));
    let anns = Queue::<Bytes>::new_bytes(&ann, world.at("queue"));
    let (item, commits) = (Bytes::from_static(b"\xff"), |gate: &Gate| gate.count(Verb::Commit));
    // The waiting items.
    for _ in 0..30 {
        answer(bobs.put(&item).await);
    }
    answer(anns.put(&item).await);
    assert_eq!(answer(world.in_time("an item", anns.take()).await), item);
    answer(answer(world.in_time("a delivery", anns.claim()).await).ack().await);
    let (before, observed) = (commits(&gate), gate.count(Verb::Watch));
    assert_eq!(observed, 2, "it follows the items and the consumers");

    let read = gate.count(Verb::Read);
    for _ in 0..ITEMS {
        answer(anns.put(&item).await);
    }
    assert_eq!(commits(&gate) - before, ITEMS, "a put is one request");
    for _ in 0..ITEMS {
        assert_eq!(answer(world.in_time("an item", anns.take()).await), item);
    }
    assert_eq!(commits(&gate) - before, 2 * ITEMS, "a take is one request");
    for _ in 0..ITEMS {
        answer(answer(world.in_time("a delivery", anns.claim()).await).ack().await);
    }

    assert_eq!(
        commits(&gate) - before,
        4 * ITEMS,
        "a claim is one request, and so is the end of it"
    );
    assert_eq!(gate.count(Verb::Watch), observed);
    // A store that keeps few events for a reader must list again now and then.
    let (lists, reads) = (gate.lists() - observed, gate.count(Verb::Read) - read);
    let most = world.at_most(2, 10) * ITEMS;
    assert!(lists < most && reads <= most, "{lists} lists, {reads} reads");
}

async fn consumers_that_wait_seldom_ask_for_the_same_item(world: World) {
    const CONSUMERS: usize = 6;
    const ITEMS: usize = 30;
    let bob = world.client().await;
    let producer = queue(&world, &bob);
    let (mut gates, mut all) = (Vec::new(), Vec::new());
    for _ in 0..CONSUMERS {
        let gate = world.gate();
        let client = world.client_on(gate.clone(), world.options()).await;
        let consumer = queue(&world, &client);
        gates.push(gate);
        all.push(Waiting::new(async move {
            let mut had = 0;
            while consumer.take().await? != "end" {
                had += 1;
            }
            Ok(had)
        }));
    }

    for number in 0..ITEMS {
        put(&producer, &[&number.to_string()]).await;
        let gone = async || stored(&world, &bob, "items").await.is_empty();
        world.eventually("it is taken", gone).await;
    }
    let asked: usize = gates.iter().map(|gate| gate.count(Verb::Commit)).sum();
    put(&producer, &["end"; CONSUMERS]).await;

    let had = join_all(all.into_iter().map(|one| one.gets(&world, "the end"))).await;
    assert_eq!(had.iter().sum::<usize>(), ITEMS);
    let most = ITEMS * world.at_most(5, CONSUMERS + 2);
    assert!(asked < most, "{asked} requests for {ITEMS} items");
}

async fn an_item_that_is_delivered_too_often_is_a_dead_letter(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let queue = queue(&world, &ann);
    put(&queue, &["bad"]).await;
    let twice = queue.clone().max_deliveries(NonZeroU32::new(2).expect("not zero"));

    for delivered in [1, 2] {
        let delivery = claimed(&world, &twice).await;
        assert_eq!((delivery.item().as_str(), delivery.delivered()), ("bad", delivered));
        answer(delivery.put_back().await);
    }
    let claims = Waiting::new(async move { twice.claim().await });

    let dead = async || stored(&world, &bob, "dead").await == ["\"bad\""];
    world.eventually("it is dead", dead).await;
    put(&queue, &["good"]).await;
    assert_eq!(claims.gets(&world, "the next item").await.item(), "good");
}

async fn an_item_waits_for_its_time_and_keeps_none_waiting(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    let delay = world.brief() * 4;
    // The wall clock continues while time is paused.
    let least = delay / 2;
    let options = PutOptions::default().priority(1).after(delay);
    let since = Instant::now();
    assert!(answer(anns.put_with(&"late".to_owned(), options).await));
    put(&anns, &["soon"]).await;

    assert_eq!(took(&world, &bobs).await, "soon");
    let late = claimed(&world, &bobs).await;
    assert_eq!(late.item(), "late");
    assert!(since.elapsed() >= least, "{:?}", since.elapsed());

    let since = Instant::now();
    answer(late.put_back_after(delay).await);
    put(&anns, &["other"]).await;
    assert_eq!(took(&world, &bobs).await, "other");
    let late = claimed(&world, &bobs).await;
    assert_eq!((late.item().as_str(), late.delivered()), ("late", 2));
    assert!(since.elapsed() >= least, "{:?}", since.elapsed());
    answer(late.ack().await);
}

async fn a_bunch_is_put_whole_or_not_at_all(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    let bunch = |from: u32, to: u32| (from..to).map(|it| it.to_string()).collect::<Vec<_>>();
    answer(anns.put_many(&bunch(0, 10)).await);
    let before = gate.count(Verb::Commit);

    answer(anns.put_many(&bunch(10, 30)).await);

    assert_eq!(gate.count(Verb::Commit) - before, 1);
    answer(anns.put_many(&[]).await);
    let many = bunch(0, 20_000);
    assert_eq!(failure(anns.put_many(&many).await, "too many").kind(), ErrorKind::TooLarge);
    assert_eq!(answer(bobs.len().await), 30);
    for item in bunch(0, 30) {
        assert_eq!(took(&world, &bobs).await, item);
    }
}
