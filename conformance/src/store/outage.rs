//! The behaviour of a session that cannot reach its server.

use futures_util::future::{join, join4};
use synod_core::clock;
use synod_core::error::{Effect, Error};
use synod_core::path::Path;
use synod_core::store::{Change, Kind, Lifetime, Outcome, Query, SessionEnd, Status, Txn};
use tokio::time::{Instant, sleep, timeout};

use crate::actor::{Actor, Heard, text_of};
use crate::harness::Link;
use crate::world::World;

cases![
    "L-OUT-5 C-SES-6" needs [Links] catches [CallsHangWhenCut] => no_call_waits_longer_than_the_time_to_live,
    "L-OUT-1 C-WRITE-3" needs [Links] catches [LostReplyIsNone] => a_write_that_certainly_failed_never_happens,
    "L-OUT-2 L-OUT-3 C-WRITE-3" needs [Links] catches [RetriesBlindly] => a_write_whose_answer_is_lost_happens_at_most_once,
    "L-SEQ-8 C-WRITE-5" needs [Links] catches [LateAfterRead] => a_repeated_ticket_is_there_once,
    "L-SES-3 C-SES-1" needs [Links] catches [NeverSuspended] => a_session_that_is_cut_off_says_so,
    "L-SES-3 C-SES-2" needs [Links] catches [NeverLost] => a_session_that_is_cut_off_is_lost_in_time,
    "L-SES-7 C-SES-4" needs [Links] catches [LossTakenForEnd] => a_close_that_failed_is_not_done_the_second_time,
    "L-SES-7 C-SES-4" needs [Links] catches [LossTakenForEnd] => a_close_of_a_session_given_up_does_not_say_that_it_is_over,
    "L-SES-3 C-SES-2" needs [Links] catches [LostSessionRevived] => a_lost_session_does_not_come_back,
    "L-SES-2 C-SES-1" needs [Links] catches [LeaseExtendedByHope] => a_session_that_is_certain_to_live_lives,
    "L-SES-1 C-SES-1" needs [Links] catches [LeaseFromReply] => a_session_counts_from_the_sending,
    "L-SES-3" needs [Links] catches [SuspendedForGood] => a_short_outage_is_survived,
    "L-WAT-7 L-WAT-10" needs [Links] catches [WatchSilentAfterOutage GapUnreported] => a_change_during_an_outage_is_reported,
    "L-WAT-10 L-WAT-7" needs [Links] catches [WatchSilentAfterOutage GapUnreported] => what_comes_and_goes_during_an_outage_wakes_the_waiter,
    "L-KV-3" needs [Links] catches [LocalGoesBackAfterOutage] => a_local_read_does_not_go_back_after_an_outage,
];

async fn no_call_waits_longer_than_the_time_to_live(world: World) {
    let node = world.at("n");
    for link in [Link::Cut, Link::Deaf] {
        let (ann, bob) = (world.ann().await, world.bob().await);
        let limit = ann.ttl() + world.slack;
        world.link(ann.id(), link).await;
        world.link(bob.id(), link).await;
        let store = &ann.store;
        let create = Txn::new().create(&node, "", Lifetime::Persistent);

        // All calls at once, so that each is made before the session is lost.
        let read = timeout(limit, store.read(Query::node(&node)));
        let observe = timeout(limit, store.watch(Query::node(&node)));
        let commit = timeout(limit, store.commit(create));
        let close = timeout(limit, bob.store.close());
        let (read, observe, commit, close) = join4(read, observe, commit, close).await;

        let late = [
            ("read", read.is_err()),
            ("watch", observe.is_err()),
            ("commit", commit.is_err()),
            ("close", close.is_err()),
        ];
        let late: Vec<_> = late.iter().filter(|(_, late)| *late).map(|(call, _)| *call).collect();
        assert!(late.is_empty(), "not answered within {limit:?} under {link:?}: {late:?}");
    }
}

/// The result of a write over this link, and the number of its nodes long afterwards.
async fn write_under(world: &World, link: Link, node: &Path) -> (Result<Outcome, Error>, usize) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    ann.read(Query::node(node)).await;
    world.link(ann.id(), link).await;
    let parent = node.parent().expect("not the root");
    let txn = Txn::new().create_sequential(node, "", Lifetime::Persistent);
    let limit = ann.ttl() + world.profile.patience;
    let outcome = timeout(limit, ann.store.commit(txn)).await.expect("it ends");
    world.link(ann.id(), Link::Open).await;
    sleep(ann.ttl() * 3).await;
    (outcome, bob.names(&parent).await.len())
}

async fn a_write_that_certainly_failed_never_happens(world: World) {
    for (link, name) in [(Link::Cut, "cut/n-"), (Link::Deaf, "deaf/n-")] {
        let (outcome, there) = write_under(&world, link, &world.at(name)).await;
        match outcome {
            Ok(Outcome::Committed(_)) => assert_eq!(there, 1, "{link:?}"),
            Ok(Outcome::Rejected(no)) => panic!("{link:?}: {no}"),
            Err(error) if error.effect() == Effect::None => {
                assert_eq!(there, 0, "{link:?}: {error}");
            }
            Err(_) => assert!(there <= 1, "{link:?}: {there} nodes"),
        }
    }
}

async fn a_write_whose_answer_is_lost_happens_at_most_once(world: World) {
    for round in 0..2 {
        let node = world.at(&format!("d{round}/n-"));
        let (outcome, there) = write_under(&world, Link::Deaf, &node).await;
        assert!(there <= 1, "{there} nodes of one create: {outcome:?}");
    }
}

async fn a_repeated_ticket_is_there_once(world: World) {
    for round in 0..5 {
        let (ann, bob) = (world.ann().await, world.bob().await);
        let dir = world.at(&format!("d{round}"));
        let ticket = dir.join("id-").expect("valid");
        let draw = || Txn::new().create_sequential(&ticket, "", Lifetime::Session);
        let link = if round % 2 == 0 { Link::Deaf } else { Link::Cut };
        world.link(ann.id(), link).await;
        let first = ann.store.commit(draw());
        let (outcome, ()) = join(first, async {
            sleep(ann.ttl() / 4).await;
            world.link(ann.id(), Link::Open).await;
        })
        .await;

        if outcome.is_err() && !ann.status().is_lost() {
            let seen = repeat_if_unseen(&ann, &dir, draw()).await;
            if !ann.status().is_lost() {
                assert!(seen, "it was seen, or drawn again");
            }
        }
        sleep(ann.ttl() / 2).await;
        let there = bob.names(&dir).await;
        assert!(there.len() <= 1, "{there:?}");
    }
}

/// Follows the contract: reads the latest state, and repeats the write if it does not see it.
async fn repeat_if_unseen(actor: &Actor, dir: &Path, txn: Txn) -> bool {
    match actor.ask(Query::children(dir)).await {
        Ok(view) if view.nodes.is_empty() => actor.attempt(txn).await.is_ok(),
        Ok(_) => true,
        Err(_) => false,
    }
}

async fn a_session_that_is_cut_off_says_so(world: World) {
    let said_so = async || {
        let ann = world.ann().await;
        world.link(ann.id(), Link::Cut).await;
        let mut status = ann.store.status();
        let not_live = status.wait_for(|status| !matches!(status, Status::Live { .. }));
        let told = *world.in_time("word of the outage", not_live).await.expect("the store is here");
        let ended = clock::now();
        match told {
            Status::Suspended { until } if ended < until => Ok(()),
            told => Err(format!("cut off, and instead of being suspended it is {told:?}")),
        }
    };
    world.unless_stalled(world.profile.ttl / 8, said_so).await;
}

async fn a_session_that_is_cut_off_is_lost_in_time(world: World) {
    let in_time = async || {
        let ann = world.ann().await;
        world.link(ann.id(), Link::Cut).await;
        let mut promised = Instant::now();

        let end = Instant::now() + ann.ttl() + world.profile.patience;
        while !ann.status().is_lost() {
            promised = promised.max(ann.status().until().unwrap_or(promised));
            assert!(Instant::now() < end, "cut off for so long, and it is {:?}", ann.status());
            sleep(ann.ttl() / 50).await;
        }

        let late = Instant::now().saturating_duration_since(promised);
        assert_eq!(ann.lost().await, SessionEnd::Expired);
        if late <= ann.ttl() / 10 {
            return Ok(());
        }
        Err(format!("lost {late:?} after it may be over"))
    };
    world.unless_stalled(world.profile.ttl / 20, in_time).await;
}

/// Closes a session that cannot reach its server. It may return success only if the session's nodes
/// are gone.
async fn close_cut_off(world: &World, ann: &Actor, bob: &Actor, node: &Path) {
    let limit = ann.ttl() + world.profile.patience;
    match timeout(limit, ann.store.close()).await.expect("it ends") {
        Ok(()) => assert!(!bob.exists(node).await, "it is closed, and its node is there"),
        Err(error) => assert_eq!(error.effect(), Effect::Unknown, "{}", text_of(&error)),
    }
}

async fn a_close_that_failed_is_not_done_the_second_time(world: World) {
    let (ann, bob, node) = (world.ann().await, world.bob().await, world.at("n"));
    ann.ephemeral(&node).await;
    world.link(ann.id(), Link::Cut).await;

    for _ in 0..3 {
        close_cut_off(&world, &ann, &bob, &node).await;
    }
}

async fn a_close_of_a_session_given_up_does_not_say_that_it_is_over(world: World) {
    let (ann, bob, node) = (world.ann().await, world.bob().await, world.at("n"));
    ann.ephemeral(&node).await;
    world.link(ann.id(), Link::Cut).await;
    ann.lost().await;

    for _ in 0..2 {
        close_cut_off(&world, &ann, &bob, &node).await;
    }
}

async fn a_lost_session_does_not_come_back(world: World) {
    let ann = world.ann().await;
    world.link(ann.id(), Link::Cut).await;
    ann.lost().await;

    world.link(ann.id(), Link::Open).await;

    for _ in 0..20 {
        sleep(ann.ttl() / 5).await;
        assert!(ann.status().is_lost(), "it was lost, and is {:?}", ann.status());
    }
    let create = Txn::new().create(world.at("n"), "", Lifetime::Persistent);
    assert!(ann.attempt(create).await.is_err());
    assert!(!world.bob().await.exists(&world.at("n")).await);
}

async fn a_session_that_is_certain_to_live_lives(world: World) {
    let bob = world.bob().await;
    for link in [Link::Cut, Link::Deaf] {
        let ann = world.ann().await;
        let node = world.at(&format!("{}", ann.id()));
        ann.ephemeral(&node).await;
        sleep(ann.ttl() * 2).await;

        world.link(ann.id(), link).await;

        let end = Instant::now() + ann.ttl() * 3 + world.profile.patience;
        loop {
            let there = bob.exists(&node).await;
            // The status is read after the node: a session that is certain now was certain when the
            // node was removed.
            let certain = ann.status().is_certain();
            assert!(there || !certain, "it is gone, and its owner is certain to hold it");
            if !there || Instant::now() > end {
                break;
            }
            sleep(ann.ttl() / 500).await;
        }
        world.link(ann.id(), Link::Open).await;
    }
}

async fn a_session_counts_from_the_sending(world: World) {
    let ann = world.ann().await;
    let (there, back) = (ann.ttl() / 20, ann.ttl() / 8);
    world.link(ann.id(), Link::Slow { there, back }).await;
    sleep(ann.ttl()).await;

    let (certain, mut looks) = (ann.ttl() / 1_000 * 981, 0);
    for _ in 0..100 {
        sleep(ann.ttl() / 100).await;
        // On a machine that was too busy for a heartbeat it is not certain for a while.
        let Some(until) = ann.status().until() else { continue };
        looks += 1;
        // An answer that has arrived by now was sent at least that long ago.
        let sent = Instant::now().checked_sub(there + back).expect("the clock runs for a while");
        assert!(until <= sent + certain, "certain for {:?} after the sending", until - sent);
    }
    assert!(looks > 0, "slow is not lost");
}

async fn a_short_outage_is_survived(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    ann.ephemeral(&world.at("e")).await;
    let mut status = ann.store.status();
    world.link(ann.id(), Link::Cut).await;
    let told = status.wait_for(|status| !matches!(status, Status::Live { .. }));
    let told = *world.in_time("word of the outage", told).await.expect("the store is here");
    assert!(!told.is_lost(), "a session is suspended before it is lost");

    world.link(ann.id(), Link::Open).await;

    let live = async || matches!(ann.status(), Status::Live { .. });
    world.eventually("a session that is reachable again is live", live).await;
    assert!(bob.exists(&world.at("e")).await);
    ann.create(&world.at("n"), "").await;
}

/// Runs `work` while a session is disconnected.
async fn during_an_outage(world: &World, actor: &Actor, work: impl Future<Output = ()>) {
    world.link(actor.id(), Link::Cut).await;
    sleep(actor.ttl() / 10).await;
    work.await;
    sleep(actor.ttl() / 10).await;
    world.link(actor.id(), Link::Open).await;
}

async fn a_change_during_an_outage_is_reported(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let [node, child] = ["n", "d/c"].map(|name| world.at(name));
    bob.create(&node, "0").await;
    let (_view, mut of_node) = ann.watch(Query::node(&node)).await;
    let once = world.at("once");
    bob.create(&once, "0").await;
    let (_view, mut for_one_event) = ann.watch(Query::node(&once).once()).await;
    let (_view, mut of_children) = ann.watch(Query::children(world.at("d"))).await;

    let changes = async {
        bob.set(&node, "1").await;
        bob.set(&once, "1").await;
        bob.create(&child, "").await;
    };
    during_an_outage(&world, &ann, changes).await;

    of_node.hears_of(&node).await;
    for_one_event.hears_of(&once).await;
    of_children.hears_of(&child).await;
    // The observations continue.
    bob.set(&node, "2").await;
    of_node.hears_of(&node).await;
}

async fn what_comes_and_goes_during_an_outage_wakes_the_waiter(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let (missing, made_again) = (world.at("missing"), world.at("again"));
    let [gone, once_again] = ["gone", "once-again"].map(|name| world.at(name));
    for node in [&gone, &once_again] {
        bob.create(node, "").await;
    }
    let (_view, mut of_gone) = ann.watch(Query::node(&gone).once()).await;
    let (_view, mut of_once_again) = ann.watch(Query::node(&once_again).once()).await;
    let leaving = ["left", "left-again"].map(|name| world.at(name));
    let mut until_gone = Vec::new();
    for node in &leaving {
        bob.ephemeral(node).await;
        until_gone.push(ann.watch(Query::until_gone(node)).await.1);
    }
    let first = bob.create(&made_again, "").await;
    let (_view, mut of_missing) = ann.watch(Query::node(&missing)).await;
    let (_view, mut of_made_again) = ann.watch(Query::node(&made_again)).await;

    let changes = async {
        bob.create(&missing, "").await;
        bob.delete(&missing).await;
        for node in [&made_again, &once_again] {
            bob.delete(node).await;
            bob.create(node, "").await;
        }
        bob.delete(&gone).await;
        for node in &leaving {
            bob.delete(node).await;
        }
        bob.ephemeral(&leaving[1]).await;
    };
    during_an_outage(&world, &ann, changes).await;

    of_missing.hears_of(&missing).await;
    of_made_again.hears_of(&made_again).await;
    of_gone.hears("the deletion", |change| change.kind == Kind::Deleted).await;
    for (watcher, node) in until_gone.iter_mut().zip(&leaving) {
        watcher.hears_of(node).await;
    }
    let written = |change: &Change| change.kind == Kind::Updated;
    let told = of_once_again.hears_of(&once_again).await;
    assert!(!matches!(told, Heard::Told(change) if written(&change)), "it was not written");
    let now = ann.get(&made_again).await.and_then(|node| node.stat).expect("it exists");
    assert_ne!(now.created, first.created);
}

async fn a_local_read_does_not_go_back_after_an_outage(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    bob.create(&node, "0").await;
    for round in 1..=5 {
        let stat = bob.set(&node, round.to_string()).await;
        let seen = ann.get(&node).await.and_then(|node| node.stat);
        assert_eq!(seen, Some(stat));

        during_an_outage(&world, &ann, async {}).await;

        let live = async || matches!(ann.status(), Status::Live { .. });
        world.eventually("a session that is reachable again is live", live).await;
        sleep(ann.ttl() / 2).await;
        let local = ann.read(Query::node(&node).local()).await;
        let modified = local.node().and_then(|node| node.stat).map(|stat| stat.modified);
        assert!(modified >= Some(stat.modified), "{modified:?} after {}", stat.modified);
    }
}
