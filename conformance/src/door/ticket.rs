//! Sequential creates through the client: one call, one node, even if a message is lost.

use bytes::Bytes;
use synod_core::store::{Expect, Lifetime, Txn};
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::time::sleep;

use crate::actor::only;
use crate::door::{answer, done};
use crate::world::World;

cases![
    "L-SEQ-8 L-OUT-2 L-OUT-4" breaks [BlindRepeat] => a_ticket_is_drawn_once_whatever_is_lost,
    "L-SEQ-8 C-WRITE-5" breaks [BlindRepeat] => a_ticket_that_comes_late_is_drawn_once,
    "L-SEQ-8 L-KV-2" breaks [LooksWithoutSync] => a_ticket_is_looked_for_as_of_now,
    "L-SEQ-9 L-SES-10" breaks [ForeignAdopted] => a_ticket_of_another_session_is_not_taken,
    "L-SEQ-9 L-OUT-8" breaks [AdoptsStranger] => nodes_of_other_clients_next_to_tickets_are_left_alone,
    "L-SEQ-8 L-OUT-2" breaks [BlindRepeat] => other_writes_in_the_transaction_of_a_ticket_are_applied_once,
];

async fn a_ticket_is_drawn_once_whatever_is_lost(world: World) {
    let bob = world.bob().await;
    for (round, site) in
        [Site::ReplyLost, Site::RequestLost, Site::Unsent, Site::ReplySlow].into_iter().enumerate()
    {
        let dir = world.at(&format!("q{round}"));
        let (client, plan) = world.scripted([Cue::new(site).of(Verb::Create)]).await;
        let prefix = dir.join("t-").expect("short");

        let drawn = done(client.create_sequential(&prefix, "mine", Lifetime::Session).await);

        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        let session = answer(client.session().await);
        assert_eq!(drawn.owner(), Some(session.info().id), "{site:?}");
        let node = only(bob.children(&dir).await);
        assert_eq!((&node.path, node.sequence), (&drawn.path, drawn.sequence), "{site:?}");
        assert_eq!(node.data, "mine", "{site:?}");
    }
}

async fn a_ticket_that_comes_late_is_drawn_once(world: World) {
    let late = world.profile.ttl / 20;
    let cue = Cue::new(Site::AppliedLate).of(Verb::Create).lasting(late);
    let (client, plan) = world.scripted([cue]).await;
    let bob = world.bob().await;

    let drawn = client.create_sequential(&world.at("q/t-"), "", Lifetime::Persistent).await;
    let drawn = done(drawn);

    assert_eq!(plan.pending(), 0);
    sleep(late * 4).await;
    assert_eq!(only(bob.children(&world.at("q")).await).path, drawn.path);
}

async fn a_ticket_is_looked_for_as_of_now(world: World) {
    let (gate, bob) = (world.gate(), world.bob().await);
    let lost = Cue::new(Site::ReplyLost).of(Verb::Create);
    let (client, plan) = world.scripted_on(gate.clone(), world.options(), [lost]).await;
    gate.blind_local_reads();

    let drawn = done(client.create_sequential(&world.at("q/t-"), "", Lifetime::Session).await);

    assert_eq!(plan.pending(), 0);
    assert_eq!(only(bob.children(&world.at("q")).await).path, drawn.path);
}

async fn a_ticket_of_another_session_is_not_taken(world: World) {
    let (client, plan) = world.scripted([]).await;
    let bob = world.bob().await;
    let session = answer(client.session().await);
    let ticket = session.unique(&world.at("q/t-")).expect("short");
    let foreign = bob.draw(&ticket, Lifetime::Session).await;
    plan.cue(Cue::new(Site::RequestLost).of(Verb::Create));

    let txn = Txn::new().create_sequential(ticket, "", Lifetime::Session);
    let outcome = answer(session.commit(txn).await);

    assert_eq!(plan.pending(), 0);
    // A path that another client has also used may be refused.
    if let Some(commit) = outcome.ok() {
        let drawn = only(commit.results);
        assert_eq!(drawn.owner(), Some(session.info().id));
        assert_ne!(drawn.path, foreign.path);
    }
    assert!(bob.exists(&foreign.path).await);
}

async fn nodes_of_other_clients_next_to_tickets_are_left_alone(world: World) {
    let (client, plan) = world.scripted([]).await;
    let bob = world.bob().await;
    let strange = ["a", "a-0000000000", "t", "t-", "t--0000000001", "t-x-2147483648", "zz/below"];
    for name in strange {
        bob.create(&world.at(&format!("q/{name}")), Bytes::from_static(b"\xff\x00[")).await;
    }
    for lifetime in [Lifetime::Persistent, Lifetime::Session] {
        plan.cue(Cue::new(Site::ReplyLost).of(Verb::Create));

        let drawn = done(client.create_sequential(&world.at("q/t-"), "mine", lifetime).await);

        assert_eq!(plan.pending(), 0);
        let data = bob.text(&drawn.path).await;
        assert_eq!(data.as_deref(), Some("mine"), "{} is not the ticket", drawn.path);
        answer(answer(client.session().await).remove(&drawn).await);
    }
    assert_eq!(bob.names(&world.at("q")).await.len(), strange.len(), "theirs are untouched");
}

async fn other_writes_in_the_transaction_of_a_ticket_are_applied_once(world: World) {
    let (client, plan) = world.scripted([]).await;
    let bob = world.bob().await;
    let beside = world.at("a");
    bob.create(&beside, "").await;
    plan.cue(Cue::new(Site::ReplyLost).of(Verb::Create));
    let session = answer(client.session().await);
    let ticket = session.unique(&world.at("q/t-")).expect("short");
    let txn =
        Txn::new().set(&beside, "b", Expect::Any).create_sequential(ticket, "", Lifetime::Session);

    let commit = answer(session.commit(txn).await).ok().expect("it happened once");

    assert_eq!(commit.results.len(), 2);
    assert_eq!(commit.results[1].owner(), Some(session.info().id));
    assert_eq!(bob.text(&beside).await.as_deref(), Some("b"));
    assert_eq!(bob.names(&world.at("q")).await.len(), 1);
}
