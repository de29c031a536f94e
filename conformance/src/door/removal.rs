//! The removal of the nodes that a session created: exactly these nodes, as long as it takes.

use synod_core::error::{Effect, ErrorKind};
use synod_core::retry::Retry;
use synod_core::store::{Lifetime, OpResult};
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::{answer, done, failure};
use crate::world::World;

cases![
    "L-KV-8" breaks [RemovesByPath] => only_the_own_incarnation_is_removed,
    "L-KV-8 L-OUT-4" breaks [RemovalGivesUp] => removing_does_not_give_up,
    "L-MX-15 L-OUT-4" breaks [RemovalGivesUp] => a_removal_that_is_refused_goes_on,
    "L-MX-15 L-SES-7" breaks [RemovalGivesUp] => a_session_ends_rather_than_keep_a_node_that_cannot_be_removed,
    "L-KV-8 L-X-5" breaks [RemovalGivesUp] => what_is_abandoned_goes_in_the_background,
];

async fn only_the_own_incarnation_is_removed(world: World) {
    let (client, bob) = (world.client().await, world.bob().await);
    let session = answer(client.session().await);
    let names = ["removed", "abandoned", "discarded"].map(|name| world.at(name));
    let mut made: Vec<OpResult> = Vec::new();
    for at in &names {
        made.push(done(client.create(at, "ours", Lifetime::Persistent).await));
        bob.delete(at).await;
        bob.create(at, "theirs").await;
    }

    answer(session.remove(&made[0]).await);
    session.remove_in_background(&made[1]);
    session
        .remove_incarnation_in_background(names[2].clone(), made[2].stat.expect("a stat").created);
    // Closing is ordered after all calls that were dropped.
    answer(session.close().await);

    for at in &names {
        assert_eq!(bob.text(at).await.as_deref(), Some("theirs"), "{at}");
    }
}

async fn removing_does_not_give_up(world: World) {
    let (client, plan) = world.scripted([]).await;
    let (session, bob) = (answer(client.session().await), world.bob().await);
    let sites = [Site::ReplyLost, Site::Unsent, Site::RequestLost];
    for sequential in [true, false] {
        let made = if sequential {
            done(client.create_sequential(&world.at("t-"), "", Lifetime::Persistent).await)
        } else {
            done(client.create(&world.at("a"), "", Lifetime::Persistent).await)
        };
        // Starts with the last attempt, so that the node is removed at the last moment.
        for (nth, site) in (1..).zip(sites.into_iter().rev()) {
            plan.cue(Cue::new(site).of(Verb::Delete).nth(nth));
        }

        answer(session.remove(&made).await);

        assert!(!bob.exists(&made.path).await);
        assert!(plan.fired().len() >= 2, "nothing went wrong: {:?}", plan.fired());
    }
}

async fn a_removal_that_is_refused_goes_on(world: World) {
    let (client, plan) = world.scripted([]).await;
    let (session, bob) = (answer(client.session().await), world.bob().await);
    for site in [Site::Denied, Site::Broken] {
        let drawn = done(client.create_sequential(&world.at("t-"), "", Lifetime::Session).await);
        plan.cue(Cue::new(site).of(Verb::Delete));

        let refused = failure(session.remove(&drawn).await, "a removal that is refused");

        assert_ne!(refused.kind(), ErrorKind::Unreachable, "what the store said");
        assert_eq!(refused.effect(), Effect::Unknown, "it goes on");
        world.eventually("it goes after all", async || !bob.exists(&drawn.path).await).await;
        assert!(!session.is_lost());
    }
}

async fn a_session_ends_rather_than_keep_a_node_that_cannot_be_removed(world: World) {
    const MANY: u64 = 500;
    let refusals = (1..MANY).map(|nth| Cue::new(Site::Denied).of(Verb::Delete).nth(nth));
    let (client, plan) = world.scripted(refusals).await;
    let (session, bob) = (answer(client.session().await), world.bob().await);
    let drawn = done(client.create_sequential(&world.at("t-"), "", Lifetime::Session).await);

    session.remove_in_background(&drawn);

    let (ttl, gone) = (session.info().ttl, async || !bob.exists(&drawn.path).await);
    world.eventually_after(ttl, "the node goes with its session", gone).await;
    assert!(session.is_lost() && plan.pending() > 0, "it was never removed");
    let next = answer(client.session().await);
    assert_ne!(next.info().id, session.info().id);
}

async fn what_is_abandoned_goes_in_the_background(world: World) {
    let cues = [1, 2].map(|nth| Cue::new(Site::Unsent).of(Verb::Delete).nth(nth));
    let options = world.options().retry(Retry::Never);
    let (client, plan) = world.scripted_on(world.harness.backend(), options, cues).await;
    let (session, bob) = (answer(client.session().await), world.bob().await);
    let drawn = done(client.create_sequential(&world.at("t-"), "", Lifetime::Persistent).await);

    session.remove_in_background(&drawn);

    let gone = async || !bob.exists(&drawn.path).await;
    world.eventually("what was given up is gone", gone).await;
    assert_eq!(plan.pending(), 0, "whatever the policy says");
}
