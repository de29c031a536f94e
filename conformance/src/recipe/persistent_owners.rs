//! Two owners of one path: each writes and removes only its own node, and both stop writing
//! eventually.

use std::time::Duration;

use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind};
use synod_core::store::{Expect, Lifetime, Node, Revision};
use synod_core::task;
use synod_recipes::presence::{KeptNode, PersistentNode, Presence};
use synod_testkit::fault::Verb;
use synod_testkit::hesitant::HesitantBackend;
use tokio::time::{sleep, timeout};

use crate::door::{answer, done, failure};
use crate::world::World;

cases![
    "L-PE-5" breaks [RemovesByPath] => an_end_removes_no_node_of_another_client,
    "L-PE-5" catches [DeleteIgnoresVersion] => a_node_that_came_after_the_look_is_not_removed,
    "L-PE-1 L-PE-2" breaks [ExistsIsMade] => data_that_went_to_the_node_of_another_client_is_not_taken_for_stored,
    "L-PE-5 L-X-8" breaks [KeptRemovalUnnoticed] => two_owners_that_take_over_come_to_rest,
    "L-OUT-5 L-X-8" breaks [DeadlineIgnored] => an_owner_ends_although_another_client_writes_all_the_time,
    "L-PE-2" breaks [ExistsIsMade] => a_node_whose_owner_was_dropped_can_be_kept_again_at_once,
];

fn node(world: &World, client: &Client) -> PersistentNode {
    PersistentNode::new(client, world.at("node"))
}

async fn kept(world: &World, client: &Client, data: &'static str) -> KeptNode {
    answer(world.in_time("the node", node(world, client).keep(data)).await)
}

async fn stored(world: &World, client: &Client) -> Option<Node> {
    answer(client.get(&world.at("node")).await)
}

async fn created(world: &World, client: &Client) -> Option<Revision> {
    stored(world, client).await.and_then(|node| node.stat).map(|stat| stat.created)
}

/// Replaces the node by an ephemeral node of another client.
async fn replaces(world: &World, client: &Client) -> Option<Revision> {
    let path = world.at("node");
    answer(answer(client.delete(&path, Expect::Any).await).required());
    done(client.create(&path, "theirs", Lifetime::Session).await).stat.map(|stat| stat.created)
}

impl World {
    async fn check_refused(&self, kept: &KeptNode) {
        let refused = async || matches!(kept.presence(), Presence::Refused(_));
        self.eventually("the owner knows that its path is taken", refused).await;
    }
}

async fn an_end_removes_no_node_of_another_client(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    for writes in [0, 1] {
        let ann = world.client_on(gate.clone(), world.options()).await;
        let kept = kept(&world, &ann, "data").await;
        if writes > 0 {
            answer(world.in_time("other data", kept.set("more")).await);
        }
        // Its owner has not been notified yet.
        gate.mute(true);
        let theirs = replaces(&world, &bob).await;

        answer(world.in_time("the end", kept.close()).await);

        assert_eq!(created(&world, &bob).await, theirs, "after {writes} writes");
        gate.mute(false);
        answer(answer(bob.delete(&world.at("node"), Expect::Any).await).required());
    }
}

async fn a_node_that_came_after_the_look_is_not_removed(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.unhurried()).await;
    let kept = kept(&world, &ann, "data").await;
    answer(world.in_time("other data", kept.set("more")).await);
    // The node of the lost session blocks the next one: the owner reads it, and gets the answer
    // late.
    gate.hold_behind([(Verb::Read, gate.count(Verb::Read))]);
    gate.lose();
    world.in_time("its look", gate.held(1)).await;
    let theirs = replaces(&world, &bob).await;
    gate.hold_behind(None);

    world.check_refused(&kept).await;

    assert_eq!(created(&world, &bob).await, theirs);
    answer(world.in_time("the end", kept.close()).await);
    assert_eq!(created(&world, &bob).await, theirs);
}

async fn data_that_went_to_the_node_of_another_client_is_not_taken_for_stored(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let kept = kept(&world, &ann, "data").await;
    world.in_time("its watch", gate.answered(Verb::Watch, 1)).await;
    gate.mute(true);
    // On some stores it has the version of the previous node.
    let theirs = replaces(&world, &bob).await;

    let set = world.in_time("other data", kept.set("more")).await;

    assert!(failure(set, "a set that cannot be stored").has_unknown_effect());
    world.check_refused(&kept).await;
    assert!(!kept.is_there());
    assert_eq!(created(&world, &bob).await, theirs);
    answer(answer(bob.delete(&world.at("node"), Expect::Any).await).required());
    let is_back = async || stored(&world, &bob).await.is_some_and(|node| node.data == "more");
    world.eventually("the path is free again", is_back).await;
    gate.mute(false);
    answer(world.in_time("the end", kept.close()).await);
}

async fn two_owners_that_take_over_come_to_rest(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let taken = async |client| {
        let node = node(&world, client).take_over();
        answer(world.in_time("the node", node.keep("data")).await)
    };
    let first = taken(&ann).await;
    let second = taken(&bob).await;

    world.check_refused(&first).await;

    world.eventually("the second one has it", async || second.is_there()).await;
    let theirs = created(&world, &ann).await;
    sleep(world.brief()).await;
    assert_eq!(created(&world, &ann).await, theirs, "they take it from each other");
    answer(world.in_time("the end of the second", second.close()).await);
    world.eventually("the path is free for the first", async || first.is_there()).await;
    answer(world.in_time("the end", first.close()).await);
}

async fn an_owner_ends_although_another_client_writes_all_the_time(world: World) {
    const PAUSE: Duration = Duration::from_millis(4);
    let (backend, bob) = (world.harness.backend(), world.client().await);
    let slow = HesitantBackend::new(backend).pausing(PAUSE);
    let ann = world.client_on(slow, world.options()).await;
    let kept = kept(&world, &ann, "ours").await;
    let (path, writer) = (world.at("node"), world.client().await);
    let writing = task::spawn(async move {
        loop {
            let _there_or_not = writer.set(&path, "theirs", Expect::Any).await;
            sleep(PAUSE / 4).await;
        }
    });
    sleep(PAUSE * 50).await;

    let closed = world.in_time("the end", kept.close()).await;

    // Each request to remove the node may find that it was written since. The removal continues in
    // the background.
    assert!(closed.as_ref().map_or_else(Error::has_unknown_effect, |()| true), "{closed:?}");
    drop(writing);
    let gone = async || stored(&world, &bob).await.is_none();
    world.eventually("it is gone", gone).await;
}

async fn a_node_whose_owner_was_dropped_can_be_kept_again_at_once(world: World) {
    let slow = HesitantBackend::new(world.harness.backend()).pausing(Duration::from_millis(4));
    let (ann, bob) = (world.client_on(slow, world.options()).await, world.client().await);
    let mut last = None;
    for round in 0..5 {
        // A dropped call also leaves its node to the next call.
        let first = node(&world, &ann);
        let dropped = first.keep("dropped");
        drop(timeout(Duration::from_millis(round * 5), dropped).await);
        drop(last.take());
        let kept = kept(&world, &ann, "data").await;
        let there = stored(&world, &bob).await.expect("it is kept");
        assert_eq!(there.data, "data");
        last = Some(kept);
    }
    let kept = last.expect("there is one");
    let refused = world.in_time("a second owner", node(&world, &ann).keep("other")).await;
    let refused = failure(refused, "a second owner");
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.to_string().contains("of this client"), "{refused}");
    answer(world.in_time("the end", kept.close()).await);
    assert_eq!(stored(&world, &bob).await, None);
}
