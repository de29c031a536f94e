//! The data of a persistent node at its limits, and the reports of an owner after an outage.

use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Node};
use synod_recipes::presence::{Group, KeptNode, PersistentNode};
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::time::{sleep, timeout};

use crate::door::gate::{Gate, Way};
use crate::door::{answer, failure};
use crate::world::World;

cases![
    "L-PE-1 L-PE-3" breaks [SetWhileAwayForgotten] => data_that_is_refused_while_there_is_no_node_leaves_the_data_before,
    "L-PE-3" catches [SizeUnchecked] => data_that_was_set_stays_when_later_data_is_refused,
    "L-PE-3 L-GM-1" catches [LimitsOffByOne] => data_and_names_of_the_greatest_size_are_stored,
    "L-PE-4 L-OUT-3" breaks [CloseForgetsCreate] => a_create_in_doubt_is_over_when_a_later_session_has_outlived_its_own,
];

async fn kept(world: &World, client: &Client, data: &'static str) -> KeptNode {
    let node = PersistentNode::new(client, world.at("node"));
    answer(world.in_time("the node", node.keep(data)).await)
}

async fn stored(world: &World, client: &Client) -> Option<Node> {
    answer(client.get(&world.at("node")).await)
}

/// The maximum data of a node.
async fn limit(client: &Client) -> usize {
    answer(client.session().await).info().limits.data
}

impl World {
    async fn until_data(&self, client: &Client, data: &str) {
        let has = async || stored(self, client).await.is_some_and(|node| node.data == data);
        self.eventually(&format!("the node has {data}"), has).await;
    }
}

/// Ends the session of an owner and removes its node. The owner gets no new session before the gate
/// is open.
async fn go_away(world: &World, gate: &Gate, client: &Client, kept: &KeptNode) {
    let session = answer(client.session().await);
    gate.set(Way::Shut);
    gate.lose();
    world.in_time("the loss", session.lost()).await;
    world.eventually("its owner knows", async || !kept.presence().is_there()).await;
}

async fn data_that_is_refused_while_there_is_no_node_leaves_the_data_before(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.options()).await;
    let (kept, large) = (kept(&world, &ann, "old").await, limit(&ann).await + 1);
    go_away(&world, &gate, &ann, &kept).await;

    // The first two values cannot be stored now, and are recorded.
    drop(timeout(world.brief(), kept.set("good")).await);
    drop(timeout(world.brief(), kept.set(vec![0; large])).await);
    let (last, ()) = tokio::join!(kept.set(vec![0; large]), async { gate.set(Way::Open) });

    assert_eq!(failure(last, "what is too large").kind(), ErrorKind::TooLarge);
    world.until_data(&bob, "good").await;
    world.eventually("its owner knows of it", async || kept.is_there()).await;
    answer(world.in_time("other data", kept.set("newer")).await);
    answer(world.in_time("the end", kept.close()).await);
}

async fn data_that_was_set_stays_when_later_data_is_refused(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let (kept, large) = (kept(&world, &ann, "old").await, limit(&ann).await + 1);

    let (good, refused, again) =
        tokio::join!(kept.set("good"), kept.set(vec![0; large]), kept.set(vec![0; large + 1]));

    for refused in [refused, again] {
        assert_eq!(failure(refused, "what is too large").kind(), ErrorKind::TooLarge);
    }
    answer(good);
    assert_eq!(stored(&world, &bob).await.expect("it is there").data, "good");
    answer(world.in_time("the end", kept.close()).await);
}

async fn data_and_names_of_the_greatest_size_are_stored(world: World) {
    let ann = world.client().await;
    let limit = limit(&ann).await;
    let group = Group::new(&ann, world.at("group"));
    for (name, bytes) in [("n".repeat(255), 0), ("m".to_owned(), limit)] {
        let joined = world.in_time("joining", group.join_as(&name, vec![0; bytes])).await;
        let member = answer(joined);
        let listed = answer(group.members().await);
        assert_eq!((listed[0].name.len(), listed[0].data.len()), (name.len(), bytes));
        answer(world.in_time("the most data", member.set(vec![1; limit])).await);
        let refused = world.in_time("more", member.set(vec![1; limit + 1])).await;
        assert_eq!(failure(refused, "more").kind(), ErrorKind::TooLarge);
        answer(world.in_time("leaving", member.leave()).await);
    }
    for (name, bytes, kind) in [
        ("n".repeat(256), 0, ErrorKind::Invalid),
        (String::new(), 0, ErrorKind::Invalid),
        ("m".to_owned(), limit + 1, ErrorKind::TooLarge),
    ] {
        let refused = world.in_time("joining", group.join_as(&name, vec![0; bytes])).await;
        assert_eq!(failure(refused, "what does not fit").kind(), kind);
    }
    assert!(answer(group.members().await).is_empty(), "nothing is left");
}

async fn a_create_in_doubt_is_over_when_a_later_session_has_outlived_its_own(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    for is_later in [false, true] {
        let (ann, plan) = world.scripted_on(gate.clone(), world.options(), []).await;
        let kept = kept(&world, &ann, "data").await;
        let session = answer(ann.session().await);
        // The owner creates the node again, and receives neither the answer nor the end of the
        // session.
        plan.cue(Cue::new(Site::RequestHeld).of(Verb::Create));
        answer(answer(bob.delete(&world.at("node"), Expect::Any).await).required());
        world.eventually("the request was sent", async || plan.pending() == 0).await;
        gate.lose();
        world.in_time("the loss", session.lost()).await;
        world.eventually("it is made again", async || kept.is_there()).await;
        if is_later {
            sleep(world.profile.ttl * 3).await;
        }

        let closed = world.in_time("the end", kept.close()).await;

        if is_later {
            answer(closed);
        } else {
            assert!(failure(closed, "an end in doubt").has_unknown_effect());
        }
        assert_eq!(stored(&world, &bob).await, None);
    }
}
