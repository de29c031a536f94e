//! Sessions: their promises, their ends, and the nodes that end with them.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{join, join_all};
use synod_core::clock;
use synod_core::error::ErrorKind;
use synod_core::store::{
    Backend, End, Event, Expect, Kind, Lifetime, Query, SessionEnd, SessionOptions, Status, Txn,
};
use tokio::time::{Instant, sleep};

use crate::actor::{Actor, text_of};
use crate::harness::Link;
use crate::world::World;

cases![
    "L-SES-1 C-SES-1" catches [NoRateMargin] => a_session_is_certain_of_less_than_its_time_to_live,
    "L-SES-1 C-SES-1" catches [NoHeartbeat] => a_session_lives_for_as_long_as_it_is_held,
    "L-SES-11 L-SES-12" catches [TtlNotClamped] => a_time_to_live_of_any_size_is_negotiated,
    "L-SES-12" catches [TtlZeroAccepted] => a_time_to_live_of_zero_is_refused,
    "L-SES-10" catches [SessionIdReused] => a_new_session_inherits_nothing,
    "L-SES-4 L-SES-3 C-SES-2" needs [Expiry] catches [ExpiryUntold] => an_expired_session_is_reported_as_expired,
    "L-SES-4 C-SES-2" catches [CloseUntold] => a_closed_session_is_reported_as_closed,
    "L-OUT-6 C-SES-2" needs [Expiry] catches [ExpiredSessionAnswers] => no_call_succeeds_on_an_expired_session,
    "L-OUT-6 C-SES-2" catches [ClosedSessionAnswers] => no_call_succeeds_on_a_closed_session,
    "L-SES-5 C-SES-3" needs [Expiry] catches [ExpiryKeepsOneEphemeral] => all_ephemeral_nodes_go_with_their_session,
    "L-SES-5 C-SES-3" needs [Expiry] catches [ExpiryOneByOne] => ephemeral_nodes_go_at_one_revision,
    "L-SES-5 C-SES-3" needs [Expiry] catches [ExpiryTakesPersistent] => what_is_not_ephemeral_stays,
    "L-WAT-1 L-SES-5" needs [Expiry] catches [ExpiryUntoldToWatchers] => the_end_of_an_ephemeral_node_is_reported,
    "L-WAT-1 L-SES-7" catches [CloseUntoldToWatchers] => a_node_that_a_closed_session_releases_is_reported,
    "L-SES-6 C-SES-3" needs [Expiry] catches [LateWriteAfterSessionEnd] => nothing_of_an_expired_session_appears,
    "L-SES-7 C-SES-4" catches [CloseKeepsEphemerals] => a_closed_session_releases_at_once,
    "C-SES-4" catches [CloseTwiceFails] => closing_twice_is_no_error,
    "C-SES-5" catches [DropEndsSession] => a_dropped_session_lives_on_for_a_while,
    "C-SES-5" catches [DropKeepsSessionAlive] => a_dropped_session_ends_with_its_time_to_live,
    "C-SES-5 C-OBS-4 L-SES-4" catches [DropSilencesWatches] => a_dropped_session_ends_its_watches,
    "L-SES-1 L-SES-2 C-SES-1" needs [Openings] catches [LeaseFromOpening] => a_session_counts_from_the_sending_of_its_opening,
    "L-SES-13 C-WRITE-6" needs [Expiry] catches [WriteDetachesEphemeral] => a_write_leaves_an_ephemeral_node_with_its_owner,
    "L-SES-13" needs [Expiry] catches [ExpiryDeletesByPath] => an_ending_session_takes_only_its_own,
    "C-SES-7" catches [DroppedCallJams] => a_dropped_call_breaks_nothing_else,
];

async fn a_session_is_certain_of_less_than_its_time_to_live(world: World) {
    let ann = world.ann().await;
    let margin = ann.ttl() / 1_000 * 981;
    for round in 0..40 {
        let status = ann.status();
        let Status::Live { until } = status else {
            panic!("nothing is wrong, and it is {status:?}")
        };
        let now = Instant::now();
        assert!(until <= now + margin, "certain for {:?} of {:?}", until - now, ann.ttl());
        assert!(round > 0 || until > now, "a new session lives");
        sleep(ann.ttl() / 20).await;
    }
}

async fn a_session_lives_for_as_long_as_it_is_held(world: World) {
    let harmless = world.profile.ttl / 4;
    let held = async || {
        let (ann, bob) = (world.ann().await, world.bob().await);
        let [node, late] = ["e", "f"].map(|name| world.at(&format!("{}/{name}", ann.id())));
        ann.ephemeral(&node).await;
        for quarter in 0..20 {
            sleep(ann.ttl() / 4).await;
            if ann.status().is_lost() {
                return Err(format!("nothing ended it, and after {quarter} quarters it is lost"));
            }
        }
        let there = bob.ask(Query::node(&node)).await;
        if !there.is_ok_and(|view| view.node().is_some()) {
            return Err("it says that it lives, and its node is gone".to_owned());
        }
        let more = Txn::new().create(&late, "", Lifetime::Session);
        ann.attempt(more).await.map(drop).map_err(|error| text_of(&error))
    };
    world.unless_stalled(harmless, held).await;
}

async fn a_time_to_live_of_any_size_is_negotiated(world: World) {
    let asked = [
        Duration::from_nanos(1),
        Duration::from_millis(1),
        Duration::from_millis(1_500),
        Duration::from_secs(3_600),
        Duration::from_secs(u64::from(u32::MAX)),
        Duration::MAX,
    ];
    join_all(asked.map(|asked| negotiates(&world, asked))).await;
}

async fn negotiates(world: &World, asked: Duration) {
    const ATTEMPTS: usize = 20;
    let outlives = async || {
        let ann = world.session(asked).await;
        let ttl = ann.ttl();
        assert!(!ttl.is_zero() && ttl < Duration::MAX, "{asked:?} became {ttl:?}");
        if let Status::Live { until } = ann.status() {
            let certain = until.saturating_duration_since(Instant::now());
            assert!(certain <= ttl, "certain for {certain:?} of {ttl:?}, asked for {asked:?}");
        }
        sleep(ttl.min(world.profile.ttl) * 2).await;
        let node = world.at(&format!("n{}", world.random.id()));
        let made = ann.store.commit(Txn::new().create(&node, "", Lifetime::Persistent)).await;
        ann.store.close().await.map_err(|error| error.to_string())?;
        made.map(drop).map_err(|error| format!("asked for {asked:?}: {error}"))
    };
    // The shortest sessions end when one of the machine's threads stalls for a moment. One of them
    // survives.
    let mut ended = Vec::new();
    for _ in 0..ATTEMPTS {
        match outlives().await {
            Ok(()) => return,
            Err(why) => ended.push(why),
        }
    }
    panic!("none of {ATTEMPTS} sessions lived: {ended:?}");
}

async fn a_time_to_live_of_zero_is_refused(world: World) {
    let backend = world.harness.backend();
    let opening = backend.open(&SessionOptions::new(Duration::ZERO)).await;
    let error = opening.expect_err("no store can mean a time to live of zero");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

async fn a_new_session_inherits_nothing(world: World) {
    let ann = world.ann().await;
    ann.ephemeral(&world.at("e")).await;
    ann.close().await;

    let again = world.ann().await;

    assert_ne!(again.id(), ann.id());
    assert!(!again.exists(&world.at("e")).await);
    let (a, b) = (again.ephemeral(&world.at("e")).await, world.bob().await);
    assert_eq!(a.owner, Some(again.id()));
    assert_ne!(again.id(), b.id());
}

async fn an_expired_session_is_reported_as_expired(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);

    world.expire(ann.id()).await;

    assert_eq!(ann.lost().await, SessionEnd::Expired);
    for _ in 0..3 {
        sleep(ann.ttl()).await;
        assert_eq!(
            ann.status(),
            Status::Lost { reason: SessionEnd::Expired },
            "a late reader gets the status"
        );
    }
    assert!(!bob.status().is_lost(), "another session has its own life");
}

async fn a_closed_session_is_reported_as_closed(world: World) {
    let ann = world.ann().await;
    let mut early = ann.store.status();

    ann.close().await;

    assert_eq!(ann.lost().await, SessionEnd::Closed);
    assert_eq!(*early.borrow_and_update(), Status::Lost { reason: SessionEnd::Closed });
    sleep(ann.ttl() * 2).await;
    assert_eq!(ann.status(), Status::Lost { reason: SessionEnd::Closed }, "it stays closed");
}

async fn no_call_succeeds_on_an_expired_session(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    bob.create(&world.at("n"), "").await;
    ann.read(Query::node(world.at("n"))).await;

    world.expire(ann.id()).await;
    ann.lost().await;

    refuses_everything(&world, &ann).await;
    assert_eq!(bob.names(&world.dir).await, ["n"]);
}

async fn no_call_succeeds_on_a_closed_session(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    bob.create(&world.at("n"), "").await;
    ann.read(Query::node(world.at("n"))).await;

    ann.close().await;

    refuses_everything(&world, &ann).await;
    assert_eq!(bob.names(&world.dir).await, ["n"]);
}

async fn refuses_everything(world: &World, actor: &Actor) {
    let node = world.at("n");
    let create = Txn::new().create(world.at("late"), "", Lifetime::Persistent);
    let observing = world.in_time("watch", actor.store.watch(Query::node(&node))).await;
    let errors = [
        actor.ask(Query::node(&node)).await.err(),
        actor.ask(Query::node(&node).local()).await.err(),
        actor.attempt(create).await.err(),
        observing.err(),
    ];
    for (call, error) in ["read", "local read", "commit", "watch"].into_iter().zip(errors) {
        let error = error.unwrap_or_else(|| panic!("{call} succeeded on a lost session"));
        assert_eq!(error.kind(), ErrorKind::SessionLost, "{call}: {error}");
        assert!(!error.has_unknown_effect(), "nothing was sent: {error}");
    }
}

async fn all_ephemeral_nodes_go_with_their_session(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    for number in 0..10 {
        ann.ephemeral(&world.at(&format!("d{}/e{number}", number % 3))).await;
    }
    ann.draw(&world.at("line/t-"), Lifetime::Session).await;
    bob.ephemeral(&world.at("bobs")).await;

    world.expire(ann.id()).await;

    let view = bob.read(Query::subtree(&world.dir)).await;
    let left: Vec<_> = view.nodes.into_iter().filter(|node| node.stat.is_some()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0].path, world.at("bobs"));
}

async fn ephemeral_nodes_go_at_one_revision(world: World) {
    const COUNT: usize = 12;
    let (ann, bob) = (world.ann().await, world.bob().await);
    let dir = world.at("d");
    for number in 0..COUNT {
        ann.ephemeral(&world.at(&format!("d/e{number}"))).await;
    }
    let (view, mut watcher) = bob.watch(Query::children(&dir)).await;
    assert_eq!(view.nodes.len(), COUNT);
    let gone = Cell::new(false);

    let ending = async {
        world.think().await;
        world.expire(ann.id()).await;
        gone.set(true);
    };
    let looking = async {
        while !gone.get() {
            let seen = bob.names(&dir).await.len();
            assert!(seen == COUNT || seen == 0, "{seen} of {COUNT} are left");
            world.think().await;
        }
    };
    join(ending, looking).await;

    bob.create(&world.at("d/last"), "").await;
    let mut revisions = Vec::new();
    for event in watcher.up_to(&world.at("d/last")).await {
        if let Event::Changed(change) = event
            && change.kind == Kind::Deleted
        {
            revisions.extend(change.revision);
        }
    }
    assert!(revisions.iter().all(|revision| *revision == revisions[0]), "{revisions:?}");
}

async fn what_is_not_ephemeral_stays(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    ann.create(&world.at("persistent"), "").await;
    ann.draw(&world.at("ticket-"), Lifetime::Persistent).await;
    ann.ephemeral(&world.at("p/ephemeral")).await;

    world.expire(ann.id()).await;

    let nodes = bob.children(&world.dir).await;
    let left = nodes.iter().filter(|node| node.stat.is_some()).count();
    assert_eq!(left, 2, "{nodes:?}");
}

async fn the_end_of_an_ephemeral_node_is_reported(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let [node, child] = ["e", "d/e"].map(|name| world.at(name));
    ann.ephemeral(&node).await;
    ann.ephemeral(&child).await;
    let (_view, mut by_node) = bob.watch(Query::node(&node)).await;
    let (_view, mut by_parent) = bob.watch(Query::children(world.at("d")).names_only()).await;

    world.expire(ann.id()).await;

    by_node.hears("the end of the node", |change| change.kind == Kind::Deleted).await;
    by_parent.hears_of(&child).await;
    assert!(!bob.exists(&node).await);
}

async fn a_node_that_a_closed_session_releases_is_reported(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let [node, child] = ["e", "d/e"].map(|name| world.at(name));
    ann.ephemeral(&node).await;
    ann.ephemeral(&child).await;
    let (_view, mut by_node) = bob.watch(Query::node(&node)).await;
    let (_view, mut by_parent) = bob.watch(Query::children(world.at("d"))).await;

    ann.close().await;

    by_node.hears("the end of the node", |change| change.kind == Kind::Deleted).await;
    by_parent.hears_of(&child).await;
}

async fn nothing_of_an_expired_session_appears(world: World) {
    let bob = world.bob().await;
    for round in 0..10 {
        let ann = world.ann().await;
        let [before, late] = ["before", "late"].map(|name| world.at(&format!("{name}{round}")));
        ann.ephemeral(&before).await;
        let writing = async {
            world.think().await;
            let txn = Txn::new().create(&late, "", Lifetime::Session);
            let _either_way = ann.store.commit(txn).await.is_ok();
        };
        let ending = async {
            world.think().await;
            world.expire(ann.id()).await;
        };
        join(world.in_time("the late write", writing), ending).await;

        for _ in 0..5 {
            assert!(!bob.exists(&before).await && !bob.exists(&late).await, "round {round}");
            world.think().await;
        }
        sleep(ann.ttl() / 10).await;
        assert!(!bob.exists(&late).await, "round {round}");
    }
}

async fn a_closed_session_releases_at_once(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    for number in 0..5 {
        ann.ephemeral(&world.at(&format!("e{number}"))).await;
    }
    ann.create(&world.at("kept"), "").await;

    ann.close().await;

    assert_eq!(bob.names(&world.dir).await, ["kept"]);
}

async fn closing_twice_is_no_error(world: World) {
    let ann = world.ann().await;
    ann.close().await;
    ann.close().await;
    let bob = world.bob().await;
    join_all([bob.close(), bob.close()]).await;
}

async fn a_dropped_session_lives_on_for_a_while(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let ttl = ann.ttl();
    ann.ephemeral(&world.at("e")).await;
    // On a machine that was too busy for a heartbeat it is not certain to be alive now.
    let until = ann.status().until().unwrap_or_else(Instant::now);

    drop(ann);

    // A backend may handle the drop in the background, so a single check is too early.
    for _ in 0..5 {
        let seen = bob.exists(&world.at("e")).await;
        assert!(seen || Instant::now() >= until, "it was not ended, and its time is not over");
        sleep(ttl / 20).await;
    }
}

async fn a_dropped_session_ends_with_its_time_to_live(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let ttl = ann.ttl();
    ann.ephemeral(&world.at("e")).await;
    sleep(ttl * 2).await;

    drop(ann);

    let gone = async || !bob.exists(&world.at("e")).await;
    world.eventually_after(ttl * 2, "a dropped session is not kept alive", gone).await;
}

async fn a_dropped_session_ends_its_watches(world: World) {
    let ann = world.ann().await;
    let mut status = ann.store.status();
    let (_view, mut of_children) = ann.watch(Query::children(&world.dir)).await;
    ann.ephemeral(&world.at("n")).await;
    let (_view, mut until_gone) = ann.watch(Query::until_gone(world.at("n"))).await;

    drop(ann);

    for watcher in [&mut of_children, &mut until_gone] {
        let (_events, end) = watcher.rest().await;
        assert!(matches!(end, End::SessionOver(_)), "{end:?}");
        assert!(watcher.watch.next().await.is_none(), "no event follows the end");
    }
    let told = world.in_time("the loss of a dropped session", status.wait_for(Status::is_lost));
    let told = told.await.map(|status| status.is_lost());
    assert!(told.is_ok_and(|is_lost| is_lost), "the session's status is that it is lost");
}

async fn a_session_counts_from_the_sending_of_its_opening(world: World) {
    let mut looks = 0;
    for share in [40, 30, 20] {
        let slow = world.profile.ttl / share;
        let (there, back) = (slow / 4, slow);
        world.harness.link_next(Link::Slow { there, back }).await;
        let ann = world.ann().await;

        let certain = ann.ttl() / 1_000 * 981;
        for _ in 0..20 {
            // On a machine that was too busy for a heartbeat it is no longer certain.
            let Some(until) = ann.status().until() else { break };
            looks += 1;
            // An answer that has arrived by now was sent at least that long ago.
            let now = clock::now();
            let sent = now.checked_sub(there + back).expect("the clock runs for a while");
            assert!(
                until <= sent + certain,
                "opened through a link of {there:?} and {back:?}, and certain for {:?} of {:?}",
                until - now,
                ann.ttl(),
            );
            sleep(ann.ttl() / 100).await;
        }
        world.link(ann.id(), Link::Open).await;
    }
    assert!(looks > 0, "slow is not lost");
}

async fn a_write_leaves_an_ephemeral_node_with_its_owner(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let [by_bob, by_ann] = ["by-bob", "by-ann"].map(|name| world.at(name));
    let stat = ann.ephemeral(&by_bob).await;
    ann.ephemeral(&by_ann).await;

    let written = bob.set(&by_bob, "x").await;
    let own = ann.commit(Txn::new().set(&by_ann, "y", Expect::Any)).await;

    assert_eq!((written.owner, written.created), (Some(ann.id()), stat.created));
    assert_eq!(own.results[0].owner(), Some(ann.id()));
    let read = bob.get(&by_ann).await.and_then(|node| node.stat);
    assert_eq!(read.and_then(|stat| stat.owner), Some(ann.id()));
    bob.close().await;
    assert!(ann.exists(&by_bob).await, "it did not become bob's");
    world.expire(ann.id()).await;
    let eve = world.ann().await;
    assert!(!eve.exists(&by_bob).await && !eve.exists(&by_ann).await);
}

async fn an_ending_session_takes_only_its_own(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let [persistent, his] = ["persistent", "his"].map(|name| world.at(name));
    for path in [&persistent, &his] {
        ann.ephemeral(path).await;
        ann.delete(path).await;
    }
    bob.create(&persistent, "").await;
    bob.ephemeral(&his).await;

    world.expire(ann.id()).await;

    assert!(bob.exists(&persistent).await && bob.exists(&his).await);
}

async fn a_dropped_call_breaks_nothing_else(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    for polls in 0..12 {
        let node = world.at(&format!("n{polls}"));
        let create = Txn::new().create(&node, "whole", Lifetime::Persistent);
        poll_then_drop(ann.store.commit(create), polls).await;
        poll_then_drop(ann.store.read(Query::children(&world.dir)), polls).await;
        poll_then_drop(ann.store.watch(Query::node(&node)), polls).await;

        let marker = world.at(&format!("after{polls}"));
        ann.create(&marker, "").await;
        assert!(bob.exists(&marker).await);
        let found = bob.text(&node).await;
        assert!(found.is_none() || found.as_deref() == Some("whole"), "{found:?}");
        assert!(!ann.status().is_lost());
    }
}

/// Polls a call this number of times, and drops it if it has not ended by then.
async fn poll_then_drop<T>(call: impl Future<Output = T>, polls: usize) {
    let mut call = Box::pin(call);
    for _ in 0..polls {
        if poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await {
            return;
        }
        tokio::task::yield_now().await;
    }
}
