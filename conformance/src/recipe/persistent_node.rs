//! The persistent node: it exists while its owner keeps it, with the last data, and never again
//! afterwards.

use synod_core::client::{Client, ConnectionState};
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Node};
use synod_recipes::presence::{KeptNode, PersistentNode, Presence};
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::harness::Link;
use crate::world::World;

cases![
    "L-PE-1 L-PE-2 L-X-7" breaks [KeptRemovalUnnoticed] => a_node_that_is_removed_is_made_again_with_the_last_data,
    "L-PE-1 L-PE-2" needs [Expiry] breaks [ExistsIsMade] => a_node_is_that_of_the_session_that_lives,
    "L-PE-3" breaks [SetWhileAwayForgotten] => data_that_is_set_while_there_is_no_session_is_not_lost,
    "L-PE-1 L-OUT-7" breaks [ForeignDataKept] => what_another_client_writes_to_a_node_is_replaced,
    "L-PE-2 L-OUT-4" breaks [CreateInDoubtForgotten] => a_create_whose_answer_is_lost_makes_one_node,
    "L-PE-4 L-OUT-3" breaks [CloseForgetsCreate] => a_node_that_was_closed_does_not_come_back,
    "L-PE-2 L-PE-5" catches [CreateOverwrites] => a_second_owner_is_refused_or_takes_over,
    "L-PE-6" needs [Links] breaks [ReconnectResets] => an_outage_that_the_session_outlives_changes_nothing,
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

impl World {
    /// Waits until there is a node with this data that was not created at the given revision.
    async fn until_node(&self, client: &Client, data: &str, what: &str) -> Node {
        let there = async || stored(self, client).await.is_some_and(|node| node.data == data);
        self.eventually(what, there).await;
        stored(self, client).await.expect("it is there")
    }

    /// Waits until an owner knows that its node exists.
    async fn until_kept(&self, kept: &KeptNode) {
        self.eventually("its owner knows of it", async || kept.is_there()).await;
    }
}

async fn a_node_that_is_removed_is_made_again_with_the_last_data(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let kept = kept(&world, &ann, "first").await;
    assert!(kept.is_there());
    world.in_time("its watch", gate.answered(Verb::Watch, 1)).await;
    answer(world.in_time("other data", kept.set("second")).await);
    let counts = [Verb::Commit, Verb::Watch].map(|verb| gate.count(verb));
    assert_eq!(counts, [2, 1], "commits, observes");
    let first = world.until_node(&bob, "second", "other data").await;

    for data in ["second", "third"] {
        let version = Expect::Any;
        answer(answer(bob.delete(&world.at("node"), version).await).required());
        world.until_node(&bob, data, "it is made again").await;
        world.until_kept(&kept).await;
        answer(world.in_time("other data", kept.set("third")).await);
    }
    let last = world.until_node(&bob, "third", "other data").await;
    assert_ne!(last.stat.map(|it| it.created), first.stat.map(|it| it.created));
    assert!(last.stat.is_some_and(|it| it.owner.is_some()), "it is ephemeral");
    let commits = gate.count(Verb::Commit);
    answer(world.in_time("the end", kept.close()).await);
    assert_eq!(gate.count(Verb::Commit), commits + 1, "one call");
    assert_eq!(stored(&world, &bob).await, None);
}

async fn a_node_is_that_of_the_session_that_lives(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.options()).await;
    let kept = kept(&world, &ann, "data").await;
    for is_alive in [true, false] {
        let session = answer(ann.session().await);

        // The session is lost by the client's clock, or at the server.
        if is_alive {
            gate.lose();
        } else {
            world.expire(session.info().id).await;
        }

        world.in_time("the loss", session.lost()).await;
        let next = answer(world.in_time("the next session", ann.session()).await).info().id;
        let is_of_next = async || {
            let node = stored(&world, &bob).await;
            node.and_then(|node| node.stat?.owner) == Some(next)
        };
        if kept.is_there() {
            assert!(is_of_next().await, "its owner takes the node of a lost session for its own");
        }
        world.eventually("it is made in the next session", is_of_next).await;
        world.until_kept(&kept).await;
        let owner = stored(&world, &bob).await.and_then(|node| node.stat?.owner);
        assert_eq!(owner, Some(next));
        if is_alive {
            world.expire(session.info().id).await;
            assert_eq!(stored(&world, &bob).await.expect("it stays").data, "data");
        }
    }
    answer(world.in_time("the end", kept.close()).await);
    assert_eq!(stored(&world, &bob).await, None);
}

async fn data_that_is_set_while_there_is_no_session_is_not_lost(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.options()).await;
    let kept = kept(&world, &ann, "old").await;
    let session = answer(ann.session().await);
    gate.set(Way::Shut);
    gate.lose();
    world.in_time("the loss", session.lost()).await;
    world.eventually("its owner knows", async || !kept.presence().is_there()).await;

    // The data cannot be stored now, and the call may be dropped.
    drop(tokio::time::timeout(world.brief(), kept.set("older")).await);
    drop(tokio::time::timeout(world.brief(), kept.set("new")).await);
    gate.set(Way::Open);

    let node = world.until_node(&bob, "new", "the last data").await;
    world.until_kept(&kept).await;
    assert!(node.stat.is_some_and(|it| it.owner.is_some()));
    answer(world.in_time("the end", kept.close()).await);
}

async fn what_another_client_writes_to_a_node_is_replaced(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let kept = kept(&world, &ann, "ours").await;
    for _ in 0..3 {
        answer(answer(bob.set(&world.at("node"), "theirs", Expect::Any).await).required());
        world.until_node(&bob, "ours", "it has the data of its owner again").await;
    }
    // Data that cannot be stored is an error, and the present data stays.
    let too_large = vec![0_u8; 64 << 20];
    let refused = world.in_time("the refusal", kept.set(too_large)).await;
    assert_eq!(failure(refused, "what is too large").kind(), ErrorKind::TooLarge);
    answer(answer(bob.delete(&world.at("node"), Expect::Any).await).required());
    world.until_node(&bob, "ours", "it is made again").await;
    answer(world.in_time("other data", kept.set("newer")).await);
    assert_eq!(stored(&world, &bob).await.expect("it is there").data, "newer");
    answer(world.in_time("the end", kept.close()).await);
}

async fn a_create_whose_answer_is_lost_makes_one_node(world: World) {
    let ((ann, plan), bob) = (world.scripted([]).await, world.client().await);
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate] {
        plan.cue(Cue::new(site).of(Verb::Create));
        let kept = kept(&world, &ann, "data").await;
        let node = stored(&world, &bob).await.expect("it was made");
        for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate] {
            plan.cue(Cue::new(site).of(Verb::Set));
            answer(world.in_time("other data", kept.set(format!("{site:?}"))).await);
            let now = world.until_node(&bob, &format!("{site:?}"), "other data").await;
            assert_eq!(now.stat.map(|it| it.created), node.stat.map(|it| it.created));
        }
        plan.cue(Cue::new(site).of(Verb::Delete));
        // A request to create it may still be in flight.
        if let Err(error) = world.in_time("the end", kept.close()).await {
            assert!(error.has_unknown_effect() && site != Site::ReplyLost, "{error}");
        }
        let gone = async || stored(&world, &bob).await.is_none();
        world.eventually("it is gone", gone).await;
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
    }
}

async fn a_node_that_was_closed_does_not_come_back(world: World) {
    let ((ann, plan), bob) = (world.scripted([]).await, world.client().await);
    let late = world.profile.ttl / 4;
    // The first request arrives after the end.
    plan.cue(Cue::new(Site::AppliedLate).of(Verb::Create).lasting(late));
    let kept = kept(&world, &ann, "data").await;

    let closed = world.in_time("the end", kept.close()).await;

    assert!(failure(closed, "an end in doubt").has_unknown_effect());
    tokio::time::sleep(late * 2).await;
    let gone = async || stored(&world, &bob).await.is_none();
    world.eventually("what came late is removed", gone).await;
    assert!(!answer(ann.session().await).is_lost(), "not by the end of the session");
    // The path may be used again, by the same session.
    let again = self::kept(&world, &ann, "again").await;
    tokio::time::sleep(world.brief()).await;
    assert_eq!(stored(&world, &bob).await.expect("it stays").data, "again");
    answer(world.in_time("the end", again.close()).await);
}

async fn a_second_owner_is_refused_or_takes_over(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let first = kept(&world, &ann, "ann").await;
    for client in [&ann, &bob] {
        let refused = world.in_time("the refusal", node(&world, client).keep("other")).await;
        assert_eq!(failure(refused, "a second owner").kind(), ErrorKind::Refused);
        assert_eq!(stored(&world, &bob).await.expect("it stays").data, "ann");
        assert!(first.is_there());
    }

    let second = node(&world, &bob).take_over().keep("bob").await;

    let second = answer(second);
    let refused = async || matches!(first.presence(), Presence::Refused(_));
    world.eventually("the first one is refused", refused).await;
    assert_eq!(stored(&world, &ann).await.expect("it was taken over").data, "bob");
    answer(world.in_time("other data", second.set("bob again")).await);
    answer(world.in_time("the end of the second", second.close()).await);
    world.until_node(&bob, "ann", "the path is free for the first one").await;
    answer(world.in_time("the end", first.close()).await);
    assert_eq!(stored(&world, &bob).await, None);
}

async fn an_outage_that_the_session_outlives_changes_nothing(world: World) {
    const TRIES: usize = 5;
    let bob = world.client().await;
    for _ in 0..TRIES {
        let ann = world.client().await;
        let kept = kept(&world, &ann, "data").await;
        let before = stored(&world, &bob).await.expect("it was made");
        let session = answer(ann.session().await);
        for (link, state) in
            [(Link::Cut, ConnectionState::Suspended), (Link::Open, ConnectionState::Reconnected)]
        {
            world.link(session.info().id, link).await;
            let mut now = ann.state();
            let reached = now.wait_for(|now| *now == state || *now == ConnectionState::Lost);
            let limit = world.profile.ttl + world.profile.patience;
            assert!(tokio::time::timeout(limit, reached).await.is_ok_and(|it| it.is_ok()));
        }
        tokio::time::sleep(world.brief()).await;
        let lost = session.is_lost();
        if !lost {
            world.until_kept(&kept).await;
            assert_eq!(stored(&world, &bob).await, Some(before), "it is the same one");
        }
        drop(kept);
        let gone = async || stored(&world, &bob).await.is_none();
        world.eventually_after(world.profile.ttl * 2, "it is gone", gone).await;
        if !lost {
            return;
        }
    }
    panic!("no link was cut for a short while in {TRIES} tries");
}
