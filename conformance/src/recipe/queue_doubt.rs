//! Requests of a queue with an unknown effect at the end of their session: no item is lost or
//! doubled.

use std::num::{NonZeroU32, NonZeroUsize};
use std::pin::pin;
use std::time::{Duration, SystemTime};

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Query};
use synod_recipes::queue::PutOptions;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::answer;
use crate::door::gate::Gate;
use crate::recipe::Waiting;
use crate::recipe::queue::{claimed, put, queue, stored, took};
use crate::world::World;

cases![
    "L-Q-1 L-Q-5" needs [Expiry] breaks [TransactionRunsAgain] => a_take_in_doubt_when_its_session_is_lost_has_its_item,
    "L-Q-1 L-X-1" needs [Expiry] breaks [DroppedTakeLost] => a_take_given_up_in_doubt_when_its_session_is_lost_puts_its_item_back,
    "L-Q-1" breaks [DroppedTakeLost] => an_item_whose_return_is_refused_once_is_put_back_all_the_same,
    "L-Q-1 L-Q-3 L-Q-10" breaks [DroppedTakeLost] => an_item_on_its_way_back_gives_way_to_a_new_one_of_its_id_and_slot,
    "L-Q-3" needs [Expiry] breaks [TransactionRunsAgain] => a_put_in_doubt_when_its_session_is_lost_makes_one_item,
    "L-Q-4 L-Q-6" needs [Expiry] breaks [TransactionRunsAgain] => an_acknowledgement_in_doubt_when_its_session_is_lost_is_found_out,
    "L-Q-11 L-X-1" breaks [ClaimsNeverEnd] => a_claim_without_its_caller_is_no_delivery,
    "L-Q-1 L-Q-6" breaks [ClaimsNeverEnd] => marks_that_others_remove_cost_a_request_and_no_item,
    "L-X-5" breaks [TransactionMarkStays] => no_mark_is_left_by_a_client_that_is_closed_nor_for_long_by_one_that_was_killed,
    "L-Q-1" breaks [OwnWriteIdIsOld] => a_mark_in_use_stays_whatever_the_wall_clock_says,
];

/// Makes a call whose commit is applied but not answered, and then drops the call.
async fn given_up<T>(
    gate: &Gate,
    call: impl Future<Output = T>,
    is_applied: impl Future<Output = ()>,
) {
    gate.hold_behind([(Verb::Commit, gate.count(Verb::Commit))]);
    let (call, is_applied) = (pin!(call), pin!(is_applied));
    let either = select(call, is_applied).await;
    assert!(matches!(either, Either::Right(_)), "its answer was held back");
}

/// Waits until a directory of the queue has exactly these items.
async fn becomes(world: &World, client: &Client, dir: &str, items: &[&str]) {
    let is_there = async || stored(world, client, dir).await == items;
    world.eventually(&format!("{dir} has {items:?}"), is_there).await;
}

/// Ends the session of a client at the server. The held answers are released when the client has
/// noticed the end.
async fn loses_its_session(world: &World, gate: &Gate, client: &Client) {
    let session = answer(client.session().await);
    world.expire(session.info().id).await;
    world.in_time("the loss", session.lost()).await;
    gate.hold_behind(None);
}

async fn a_take_in_doubt_when_its_session_is_lost_has_its_item(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let client = world.client_on(gate.clone(), world.options()).await;
    let consumer = queue(&world, &client);
    put(&consumer, &["first"]).await;
    assert_eq!(took(&world, &consumer).await, "first");
    put(&queue(&world, &bob), &["second", "third"]).await;
    gate.hold_behind([(Verb::Commit, gate.count(Verb::Commit))]);
    let taking = consumer.clone();
    let taking = Waiting::new(async move { taking.take().await });
    gate.held(1).await;

    loses_its_session(&world, &gate, &client).await;

    assert_eq!(taking.gets(&world, "its item").await, "second");
    assert_eq!(took(&world, &consumer).await, "third", "the second was taken once");
    assert_eq!(stored(&world, &bob, "items").await, [""; 0]);
}

async fn a_take_given_up_in_doubt_when_its_session_is_lost_puts_its_item_back(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let client = world.client_on(gate.clone(), world.options()).await;
    let [anns, bobs] = [&client, &bob].map(|client| queue(&world, client));
    for round in 1..=3 {
        // The nodes that a session creates once exist.
        put(&bobs, &["warm"]).await;
        assert_eq!(took(&world, &anns).await, "warm");
        let item = format!("{round}");
        put(&bobs, &[&item]).await;
        given_up(&gate, anns.take(), becomes(&world, &bob, "items", &[])).await;

        loses_its_session(&world, &gate, &client).await;

        // The consumer that dropped its call may take it, like any other.
        assert_eq!(took(&world, if round == 1 { &anns } else { &bobs }).await, item);
    }
}

async fn an_item_whose_return_is_refused_once_is_put_back_all_the_same(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let (client, plan) = world.scripted_on(gate.clone(), world.options(), []).await;
    let [anns, bobs] = [&client, &bob].map(|client| queue(&world, client));
    // Storage may be exhausted for a while, and permissions may be withdrawn for a while.
    for refusal in [Site::Broken, Site::Denied] {
        put(&bobs, &["warm"]).await;
        assert_eq!(took(&world, &anns).await, "warm");
        put(&bobs, &["it"]).await;
        given_up(&gate, anns.take(), becomes(&world, &bob, "items", &[])).await;

        plan.cue(Cue::new(refusal).of(Verb::Commit));
        gate.hold_behind(None);

        becomes(&world, &bob, "items", &["\"it\""]).await;
        assert_eq!(took(&world, &bobs).await, "it", "{refusal:?}");
        assert_eq!(plan.pending(), 0, "its return was refused");
    }
}

async fn an_item_on_its_way_back_gives_way_to_a_new_one_of_its_id_and_slot(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let client = world.client_on(gate.clone(), world.options()).await;
    let [anns, bobs] = [&client, &bob].map(|client| queue(&world, client));
    let one = bobs.clone().capacity(NonZeroUsize::MIN);
    let enter = async |item: &str, id: &str| {
        let options = PutOptions::default().id(id);
        answer(one.try_put(&item.to_owned(), options).await)
    };
    for id in ["7", "8"] {
        // The client then has a write id for the next take.
        put(&bobs, &["warm"]).await;
        assert_eq!(took(&world, &anns).await, "warm");
        assert_eq!(enter("old", "7").await, Some(true));
        given_up(&gate, anns.take(), becomes(&world, &bob, "items", &[])).await;
        assert_eq!(enter("new", id).await, Some(true), "it is taken");

        gate.hold_behind(None);

        let both = async || stored(&world, &bob, "items").await.len() == 2;
        world.eventually("both are there", both).await;
        // What a consumer knows may be older, and then it keeps no strict order.
        let fresh = queue(&world, &bob);
        assert_eq!(took(&world, &fresh).await, "old", "it has its place");
        assert_eq!(enter("more", "9").await, None, "it has no slot");
        assert_eq!(took(&world, &fresh).await, "new");
        for dir in ["items", "ids", "slots", "dead"] {
            assert_eq!(stored(&world, &bob, dir).await, [""; 0], "{dir}");
        }
    }
}

async fn a_put_in_doubt_when_its_session_is_lost_makes_one_item(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let client = world.client_on(gate.clone(), world.options()).await;
    let anns = queue(&world, &client);
    put(&anns, &["first"]).await;
    gate.hold_behind([(Verb::Commit, gate.count(Verb::Commit))]);
    let putting = anns.clone();
    let putting = Waiting::new(async move { putting.put(&"second".to_owned()).await });
    gate.held(1).await;
    let bobs = queue(&world, &bob);
    assert_eq!([took(&world, &bobs).await, took(&world, &bobs).await], ["first", "second"]);

    loses_its_session(&world, &gate, &client).await;

    putting.gets(&world, "an answer").await;
    put(&anns, &["third"]).await;
    assert_eq!(took(&world, &bobs).await, "third", "the second was put once");
    assert_eq!(stored(&world, &bob, "items").await, [""; 0]);
}

async fn an_acknowledgement_in_doubt_when_its_session_is_lost_is_found_out(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let client = world.client_on(gate.clone(), world.options()).await;
    let [anns, bobs] = [&client, &bob].map(|client| queue(&world, client));
    put(&bobs, &["first", "second"]).await;
    let delivery = claimed(&world, &anns).await;
    gate.hold_behind([(Verb::Commit, gate.count(Verb::Commit))]);
    let acks = Waiting::new(async move { delivery.ack().await });
    gate.held(1).await;

    loses_its_session(&world, &gate, &client).await;

    acks.gets(&world, "an acknowledgement that was applied").await;
    assert_eq!(took(&world, &bobs).await, "second");
    assert_eq!(answer(bobs.len().await), 0);
}

async fn a_claim_without_its_caller_is_no_delivery(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let client = world.client_on(gate.clone(), world.unhurried()).await;
    let [anns, bobs] = [&client, &bob].map(|client| queue(&world, client));
    // The first claim of a client creates another node.
    put(&bobs, &["warm"]).await;
    answer(claimed(&world, &anns).await.ack().await);
    let options = PutOptions::default().id("7");
    assert!(answer(bobs.put_with(&"it".to_owned(), options).await));
    put(&bobs, &["next"]).await;
    let once = anns.clone().max_deliveries(NonZeroU32::MIN);
    for _ in 0..2 {
        given_up(&gate, once.claim(), becomes(&world, &bob, "claimed", &["\"it\""])).await;
        gate.hold_behind(None);
        let both = async || stored(&world, &bob, "items").await.len() == 2;
        world.eventually("it is put back", both).await;
    }

    let mut both = [claimed(&world, &once).await, claimed(&world, &once).await];
    both.sort_by_key(|delivery| delivery.item().clone());
    let [it, next] = both;
    assert_eq!((it.item().as_str(), it.delivered(), next.delivered()), ("it", 1, 1));
    assert_eq!(it.id().as_deref(), Some("7"));
    answer(it.put_back().await);
    answer(next.ack().await);
    put(&bobs, &["last"]).await;
    assert_eq!(claimed(&world, &once).await.item(), "last", "the other was delivered once");
    becomes(&world, &bob, "dead", &["\"it\""]).await;
}

async fn marks_that_others_remove_cost_a_request_and_no_item(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let (ann, plan) = world.scripted_on(gate.clone(), world.options(), []).await;
    let queue = queue(&world, &ann);
    let marks = world.at("queue/marks");
    let removes = async || {
        let nodes = answer(bob.children(&marks).await);
        for node in &nodes {
            answer(answer(bob.delete(&node.path, Expect::Any).await).required());
        }
        assert!(!nodes.is_empty(), "there was one");
    };
    put(&queue, &["one", "two"]).await;
    removes().await;
    put(&queue, &["three"]).await;
    removes().await;
    let delivery = claimed(&world, &queue).await;
    removes().await;
    answer(delivery.ack().await);
    let delivery = claimed(&world, &queue).await;
    removes().await;
    answer(delivery.put_back().await);
    removes().await;
    assert_eq!(took(&world, &queue).await, "two");

    // Without its write id, the item shows the effect of an unanswered take.
    plan.cue(Cue::new(Site::RequestLost).of(Verb::Delete));
    removes().await;
    assert_eq!(took(&world, &queue).await, "three");
    assert_eq!(answer(queue.len().await), 0);
}

async fn no_mark_is_left_by_a_client_that_is_closed_nor_for_long_by_one_that_was_killed(
    world: World,
) {
    let (ann, bob, eve) = (world.client().await, world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    let marks = async || stored_marks(&world, &eve).await;
    put(&queue(&world, &ann), &["zero"]).await;
    let left_alone = async || marks().await.is_empty();
    world.eventually("the mark of a value that was dropped is removed", left_alone).await;
    assert_eq!(took(&world, &anns).await, "zero");
    assert!(!marks().await.is_empty());
    answer(ann.close().await);
    assert_eq!(marks().await, [""; 0], "its values are still there");
    drop(anns);

    for (name, data) in [
        ("queue-old", written("3", 25)),
        ("queue-void", written("void", 25)),
        ("queue-recent", written("3", 23)),
        ("queue-other", "no date".to_owned()),
    ] {
        let created = eve.create(&mark(&world, name), data, Lifetime::Persistent).await;
        answer(answer(created).required());
    }
    put(&bobs, &["two"]).await;
    let own = marks().await.len() - 4;
    assert_eq!(took(&world, &bobs).await, "two");

    let left = async || marks().await.len() == own + 2;
    world.eventually("the old ones are removed", left).await;
    let left = marks().await;
    for name in ["queue-recent", "queue-other"] {
        assert!(left.iter().any(|mark| mark == name), "{name}: {left:?}");
    }
}

async fn a_mark_in_use_stays_whatever_the_wall_clock_says(world: World) {
    let (ann, eve) = (world.client().await, world.client().await);
    let [idle, consumer] = [(); 2].map(|()| queue(&world, &ann));
    put(&idle, &["one"]).await;
    let marks = async || stored_marks(&world, &eve).await;
    let own = marks().await.pop().expect("a transaction made one");
    // It becomes old when the wall clock of its client is set to a later date.
    let set = eve.set(&mark(&world, &own), written("1", 25), Expect::Any).await;
    answer(answer(set).required());
    let old = eve.create(&mark(&world, "queue-old"), written("1", 25), Lifetime::Persistent).await;
    answer(answer(old).required());

    assert_eq!(took(&world, &consumer).await, "one");

    let removed = async || !marks().await.contains(&"queue-old".to_owned());
    world.eventually("the one of a killed process is removed", removed).await;
    assert!(marks().await.contains(&own), "a transaction in doubt would need it");
}

async fn stored_marks(world: &World, client: &Client) -> Vec<String> {
    let view = answer(client.read(Query::children(world.at("queue/marks"))).await);
    view.nodes.into_iter().map(|node| node.path.name().to_owned()).collect()
}

fn mark(world: &World, name: &str) -> Path {
    world.at(&format!("queue/marks/{name}"))
}

/// The data of a mark that was written some hours ago.
fn written(state: &str, hours_ago: u64) -> String {
    let date = clock::date() - Duration::from_secs(hours_ago * 60 * 60);
    let since_1970 = date.duration_since(SystemTime::UNIX_EPOCH).expect("it is later");
    format!("{state} {}", since_1970.as_millis())
}
