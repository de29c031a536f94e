//! The persistent node with a TTL: it outlives the sessions of its owner, but expires if the owner
//! stops writing.

use std::time::Duration;

use synod_core::client::{Client, ConnectionState};
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Feature, Node, Revision};
use synod_recipes::presence::{KeptNode, PersistentNode, Presence};
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::time::{Instant, sleep};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::world::World;

cases![
    "L-PE-7" needs [TtlNodes] breaks [NeverWrittenAgain] => a_node_with_a_time_to_live_stays_while_its_owner_lives,
    "L-PE-7 L-PE-3" needs [TtlNodes Expiry] breaks [LastingMadeAnew] => a_node_with_a_time_to_live_outlives_its_owners_sessions,
    "L-PE-7" needs [TtlNodes] catches [TtlNeverExpires] => a_node_with_a_time_to_live_goes_when_its_owner_is_silent,
    "L-PE-1 L-X-7" needs [TtlNodes] catches [WatchMissesUpdate] => a_node_with_a_time_to_live_is_made_again_with_the_last_data,
    "L-PE-2 L-PE-4 L-OUT-4" needs [TtlNodes] breaks [TransactionRunsAgain] => a_node_with_a_time_to_live_is_made_once_whatever_is_lost,
    "L-PE-4" needs [TtlNodes] breaks [CloseForgetsNode] => a_node_with_a_time_to_live_is_gone_when_it_is_closed,
    "L-PE-2 L-PE-5" needs [TtlNodes] breaks [SameDataIsOwn] => a_second_owner_of_a_node_with_a_time_to_live_is_refused_or_takes_over,
    "L-X-10" catches [TtlIgnored] => a_store_without_nodes_with_a_time_to_live_refuses_to_keep_one,
];

/// Long enough that even a slow machine usually writes in time.
fn life(world: &World) -> Duration {
    world.profile.ttl.max(Duration::from_millis(1_500))
}

fn node(world: &World, client: &Client, ttl: Duration) -> PersistentNode {
    PersistentNode::new(client, world.at("node")).ttl(ttl)
}

/// A node that lives long after the case.
async fn kept(world: &World, client: &Client, data: &'static str) -> KeptNode {
    let node = node(world, client, life(world) * 20);
    answer(world.in_time("the node", node.keep(data)).await)
}

async fn stored(world: &World, client: &Client) -> Option<Node> {
    answer(client.get(&world.at("node")).await)
}

async fn created(world: &World, client: &Client) -> Option<Revision> {
    stored(world, client).await.and_then(|node| node.stat).map(|stat| stat.created)
}

async fn a_node_with_a_time_to_live_stays_while_its_owner_lives(world: World) {
    let life = life(&world);
    let stays = async || {
        let (ann, bob) = (world.client().await, world.client().await);
        let kept = answer(world.in_time("the node", node(&world, &ann, life).keep("data")).await);
        let first = created(&world, &bob).await;
        let end = Instant::now() + life * 3;
        while Instant::now() < end {
            let (before, node) = (kept.is_there(), created(&world, &bob).await);
            if node != first {
                return Err(format!("there is {node:?} instead of {first:?}"));
            }
            if !before {
                return Err("its owner does not know whether it is there".to_owned());
            }
            sleep(life / 20).await;
        }
        answer(world.in_time("the end", kept.close()).await);
        Ok(())
    };
    world.unless_stalled(life / 8, stays).await;
}

async fn a_node_with_a_time_to_live_outlives_its_owners_sessions(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.options()).await;
    let kept = kept(&world, &ann, "old").await;
    let first = created(&world, &bob).await;
    for is_alive in [true, false] {
        let session = answer(ann.session().await);
        gate.set(Way::Shut);
        // The session is lost by the client's clock, or at the server.
        if is_alive {
            gate.lose();
        } else {
            world.expire(session.info().id).await;
        }
        world.in_time("the loss", session.lost()).await;
        let data = format!("new after {is_alive}");
        drop(tokio::time::timeout(world.brief(), kept.set(data.clone())).await);
        gate.set(Way::Open);

        let mut state = ann.state();
        let next = state.wait_for(|state| !matches!(state, ConnectionState::Lost));
        let _state = answer(world.in_time("the next session", ann.session()).await);
        assert!(world.in_time("the next session", next).await.is_ok());
        let has_data = async || stored(&world, &bob).await.is_some_and(|node| node.data == data);
        world.eventually("what was set meanwhile is stored", has_data).await;
        // All its work in the next session is done.
        answer(world.in_time("other data", kept.set(data)).await);
        sleep(world.brief()).await;
        assert_eq!(created(&world, &bob).await, first, "it is the same one");
        assert!(kept.is_there());
    }
    answer(world.in_time("the end", kept.close()).await);
    assert_eq!(stored(&world, &bob).await, None);
}

async fn a_node_with_a_time_to_live_goes_when_its_owner_is_silent(world: World) {
    let (gate, bob, life) = (world.gate(), world.client().await, life(&world));
    let ann = world.client_on(gate.clone(), world.options()).await;
    let kept = answer(world.in_time("the node", node(&world, &ann, life).keep("ann")).await);

    gate.set(Way::Shut);

    let silent = Instant::now();
    let gone = async || stored(&world, &bob).await.is_none();
    world.eventually_after(life * 2, "it goes", gone).await;
    assert!(!kept.is_there(), "its owner does not know that");
    assert!(silent.elapsed() >= life / 2, "it goes at once");
    let next = answer(world.in_time("the next owner", node(&world, &bob, life).keep("bob")).await);
    gate.set(Way::Open);
    let refused = async || matches!(kept.presence(), Presence::Refused(_));
    world.eventually("the first one learns of it", refused).await;
    assert_eq!(stored(&world, &bob).await.expect("it is kept").data, "bob");
    answer(world.in_time("the end of the first", kept.close()).await);
    assert_eq!(stored(&world, &bob).await.expect("it is kept").data, "bob");
    answer(world.in_time("the end", next.close()).await);
}

async fn a_node_with_a_time_to_live_is_made_again_with_the_last_data(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let kept = kept(&world, &ann, "first").await;
    assert!(kept.is_there());
    world.in_time("its watch", gate.answered(Verb::Watch, 1)).await;
    world.in_time("its mark is removed", gate.answered(Verb::Commit, 3)).await;
    let made = gate.count(Verb::Commit);
    assert_eq!(made, 3, "a mark, the node, and no mark");
    answer(world.in_time("other data", kept.set("second")).await);
    assert_eq!(gate.count(Verb::Commit), made + 1, "one call");
    let has = async |data: &str| stored(&world, &bob).await.is_some_and(|node| node.data == data);

    answer(answer(bob.set(&world.at("node"), "theirs", Expect::Any).await).required());
    world.eventually("what another client wrote is replaced", async || has("second").await).await;
    for _ in 0..2 {
        let before = created(&world, &bob).await;
        answer(answer(bob.delete(&world.at("node"), Expect::Any).await).required());
        let again = async || has("second").await && created(&world, &bob).await != before;
        world.eventually("it is made again", again).await;
        world.eventually("its owner knows of it", async || kept.is_there()).await;
    }
    answer(world.in_time("the end", kept.close()).await);
    assert_eq!(stored(&world, &bob).await, None);
}

async fn a_node_with_a_time_to_live_is_made_once_whatever_is_lost(world: World) {
    let ((ann, plan), bob) = (world.scripted([]).await, world.client().await);
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate] {
        // The first create creates the write id.
        plan.cue(Cue::new(site).of(Verb::Create).nth(2));
        let kept = kept(&world, &ann, "data").await;
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        let first = created(&world, &bob).await;
        plan.cue(Cue::new(site).of(Verb::Set));
        answer(world.in_time("other data", kept.set(format!("{site:?}"))).await);
        let node = stored(&world, &bob).await.expect("it is there");
        assert_eq!(node.data, format!("{site:?}"));
        assert_eq!(node.stat.map(|it| it.created), first, "it is the same one");
        assert!(kept.is_there());
        plan.cue(Cue::new(site).of(Verb::Delete));
        answer(world.in_time("the end", kept.close()).await);
        assert_eq!(stored(&world, &bob).await, None);
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        sleep(world.brief()).await;
        assert_eq!(stored(&world, &bob).await, None, "it does not come back");
    }
}

async fn a_node_with_a_time_to_live_is_gone_when_it_is_closed(world: World) {
    let ((ann, plan), bob) = (world.scripted([]).await, world.client().await);
    let late = world.profile.ttl / 4;
    plan.cue(Cue::new(Site::AppliedLate).of(Verb::Create).nth(2).lasting(late));
    let first = kept(&world, &ann, "data").await;

    answer(world.in_time("the end", first.close()).await);

    assert_eq!(stored(&world, &bob).await, None);
    sleep(late * 2).await;
    assert_eq!(stored(&world, &bob).await, None, "it does not come back");
    drop(kept(&world, &ann, "dropped").await);
    let gone = async || stored(&world, &bob).await.is_none();
    world.eventually("what was dropped is removed", gone).await;
    // The end of a closed client reports that the node is not removed.
    let last = kept(&world, &ann, "last").await;
    answer(world.in_time("the end of the client", ann.close()).await);
    let closed = world.in_time("the end", last.close()).await;
    assert!(failure(closed, "the end of what is not removed").has_unknown_effect());
    assert_eq!(answer(bob.children(&world.at("node.synod")).await), [], "no mark is left");
}

async fn a_second_owner_of_a_node_with_a_time_to_live_is_refused_or_takes_over(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let first = kept(&world, &ann, "the same").await;
    for client in [&ann, &bob] {
        let second = node(&world, client, life(&world) * 20);
        let ephemeral = PersistentNode::new(client, world.at("node"));
        for node in [second, ephemeral] {
            let refused = world.in_time("the refusal", node.keep("the same")).await;
            assert_eq!(failure(refused, "a second owner").kind(), ErrorKind::Refused);
            assert_eq!(stored(&world, &bob).await.expect("it stays").data, "the same");
            assert!(first.is_there());
        }
    }

    let second = node(&world, &bob, life(&world) * 20).take_over();

    let second = answer(world.in_time("the second", second.keep("bob")).await);
    let refused = async || matches!(first.presence(), Presence::Refused(_));
    world.eventually("the first one is refused", refused).await;
    assert_eq!(stored(&world, &ann).await.expect("it was taken over").data, "bob");
    answer(world.in_time("the end of the second", second.close()).await);
    let is_free = async || stored(&world, &bob).await.is_some_and(|node| node.data == "the same");
    world.eventually("the path is free for the first one", is_free).await;
    world.eventually("its owner knows of it", async || first.is_there()).await;
    answer(world.in_time("the end", first.close()).await);
    assert_eq!(stored(&world, &bob).await, None);
}

async fn a_store_without_nodes_with_a_time_to_live_refuses_to_keep_one(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let limits = answer(ann.session().await).info().limits.clone();

    let kept = world.in_time("the node", node(&world, &ann, life(&world)).keep("data")).await;

    if limits.missing_features.contains(&Feature::TtlNodes) {
        assert_eq!(failure(kept, "no such nodes").kind(), ErrorKind::Unsupported);
    } else {
        answer(world.in_time("the end", answer(kept).close()).await);
    }
    assert_eq!(stored(&world, &bob).await, None);
    let clean = async || answer(bob.children(&world.at("node.synod")).await).is_empty();
    world.eventually("no mark is left", clean).await;
}
