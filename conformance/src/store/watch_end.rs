//! The ends of watches, and their costs in memory and requests.

use futures_util::future::{join_all, poll_immediate};
use synod_core::store::{End, Event, Expect, Feed, Lifetime, Query, SessionEnd, Txn};
use tokio::time::sleep;

use crate::actor::{Actor, Watcher};
use crate::world::World;

cases![
    "L-WAT-12 C-OBS-4" catches [WatchHasNoEnd] => a_watch_ends_when_its_session_is_closed,
    "L-WAT-12 C-OBS-4" needs [Expiry] catches [WatchHasNoEnd] => a_watch_ends_when_its_session_expires,
    "L-WAT-13" catches [FullChannelDropsEvent] => a_slow_reader_misses_no_event_without_a_resync,
    "L-WAT-13" catches [FeedUnbounded] => a_watch_without_a_reader_keeps_a_bounded_number_of_events,
    "L-WAT-13" catches [SlowWatcherBlocks] => a_watch_without_a_reader_delays_no_other_watch,
    "L-WAT-15" catches [DropRemovesOtherWatches] => of_two_watches_on_one_path_one_can_go,
    "L-WAT-15" catches [DropRemovesOtherWatches] => of_a_lasting_watch_and_one_for_one_event_either_can_go,
    "L-WAT-15" catches [DropRemovesOtherWatches] => a_watch_comes_to_a_path_that_one_for_one_event_leaves,
    "L-WAT-14 C-OBS-6 L-X-5" needs [WatchCount] catches [DropLeavesWatch] => a_watch_that_is_dropped_is_freed,
    "L-WAT-14 L-X-5" needs [WatchCount] catches [CloseLeavesWatches] => a_session_that_is_closed_frees_its_watches,
];

async fn silent_after(watcher: &mut Watcher) {
    for _ in 0..3 {
        assert!(watcher.watch.next().await.is_none(), "no event follows the end");
    }
}

async fn a_watch_ends_when_its_session_is_closed(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let (_view, mut quiet) = ann.watch(Query::node(world.at("n"))).await;
    let (_view, mut busy) = ann.watch(Query::subtree(&world.dir)).await;
    bob.create(&world.at("n"), "").await;
    let (_view, mut once) = ann.watch(Query::node(world.at("n")).once()).await;

    ann.close().await;

    for watcher in [&mut quiet, &mut busy, &mut once] {
        let (_events, end) = watcher.rest().await;
        assert!(matches!(end, End::SessionOver(SessionEnd::Closed)), "{end:?}");
        silent_after(watcher).await;
    }
}

async fn a_watch_ends_when_its_session_expires(world: World) {
    let ann = world.ann().await;
    let (_view, mut watcher) = ann.watch(Query::children(&world.dir)).await;

    world.expire(ann.id()).await;

    ann.lost().await;
    let (_events, end) = watcher.rest().await;
    assert!(matches!(end, End::SessionOver(SessionEnd::Expired)), "{end:?}");
    silent_after(&mut watcher).await;
}

/// More changes than a store keeps for a watch that is not read.
const FLOOD: usize = 5_000;

/// Creates ten nodes, and writes all of them repeatedly. Sequential writes would take one round
/// trip each.
async fn flood(actor: &Actor, world: &World, changes: usize) {
    let nodes: Vec<_> = (0..10).map(|number| world.at(&format!("d/n{number}"))).collect();
    for node in &nodes {
        actor.create(node, "").await;
    }
    let width = actor.store.session().limits.operations.min(nodes.len());
    for round in 0..changes.div_ceil(width) {
        let chosen = nodes.iter().cycle().skip(round * width).take(width);
        let set = |txn: Txn, node| txn.set(node, round.to_string(), Expect::Any);
        let _done = actor.commit(chosen.fold(Txn::new(), set)).await;
    }
}

async fn a_slow_reader_misses_no_event_without_a_resync(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let (_view, mut watcher) = bob.watch(Query::children(world.at("d"))).await;

    flood(&ann, &world, FLOOD).await;
    let last = ann.create(&world.at("d/last"), "").await;
    // All events have arrived when the reader takes them.
    sleep(ann.ttl() / 20).await;

    let mut events = 0;
    loop {
        match watcher.next("the last change").await {
            // After this event the state has to be read again, and nothing else was missed.
            Event::Resync => break,
            Event::Changed(change) if change.path == world.at("d/last") => {
                assert!(change.revision.is_none_or(|revision| revision == last.created));
                assert!(events >= 10, "{FLOOD} changes of ten nodes, and {events} events");
                break;
            }
            Event::Changed(_) => events += 1,
            Event::Ended(end) => panic!("slowness is no reason to end: {end:?}"),
        }
    }
    let shown = bob.names(&world.at("d")).await;
    assert_eq!(shown.len(), 11);
    ann.delete(&world.at("d/n0")).await;
    watcher.hears_of(&world.at("d/n0")).await;
}

async fn a_watch_without_a_reader_keeps_a_bounded_number_of_events(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let width = ann.store.session().limits.operations.min(50);
    let nodes: Vec<_> = (0..width).map(|number| world.at(&format!("d/n{number}"))).collect();
    let create = |txn: Txn, node| txn.create(node, "", Lifetime::Persistent);
    let _made = ann.commit(nodes.iter().fold(Txn::new(), create)).await;
    let (_view, mut unread) = bob.watch(Query::children(world.at("d"))).await;

    for round in 0..=Feed::MAX_EVENTS / width {
        let set = |txn: Txn, node| txn.set(node, round.to_string(), Expect::Any);
        let _written = ann.commit(nodes.iter().fold(Txn::new(), set)).await;
        // Lets the task that delivers the events run.
        tokio::task::yield_now().await;
    }
    let last = world.at("d/last");
    ann.create(&last, "").await;

    let events = unread.up_to(&last).await;
    assert!(events.len() <= Feed::MAX_EVENTS, "{} events were kept", events.len());
    // The watch continues.
    ann.create(&world.at("d/later"), "").await;
    unread.hears_of(&world.at("d/later")).await;
}

async fn a_watch_without_a_reader_delays_no_other_watch(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let (_view, unread) = bob.watch(Query::children(world.at("d"))).await;
    let (_view, mut read) = bob.watch(Query::node(world.at("other"))).await;

    flood(&ann, &world, FLOOD).await;
    ann.create(&world.at("other"), "").await;

    read.hears_of(&world.at("other")).await;
    assert!(bob.exists(&world.at("d/n0")).await);
    drop(unread);
}

async fn of_two_watches_on_one_path_one_can_go(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    ann.create(&node, "").await;
    let (_view, first) = bob.watch(Query::node(&node)).await;
    let (_view, mut second) = bob.watch(Query::node(&node)).await;
    let (_view, mut children) = bob.watch(Query::children(&node)).await;
    let (_view, other) = bob.watch(Query::children(&node)).await;

    drop((first, other));
    tokio::task::yield_now().await;
    ann.set(&node, "x").await;
    ann.create(&world.at("n/c"), "").await;

    second.hears_of(&node).await;
    children.hears_of(&world.at("n/c")).await;
}

async fn of_a_lasting_watch_and_one_for_one_event_either_can_go(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    ann.ephemeral(&node).await;
    let lasting = || bob.watch(Query::node(&node));
    for round in 0..16 {
        let until_gone = round >= 8;
        let once = || {
            let query = Query::node(&node).once();
            bob.watch(if until_gone { query.names_only() } else { query })
        };
        // The order of the two watches, and the one that is dropped, immediately or after a while.
        let (mut stays, goes) = match round % 4 {
            0 => (lasting().await.1, once().await.1),
            1 => (once().await.1, lasting().await.1),
            2 => {
                let goes = once().await.1;
                (lasting().await.1, goes)
            }
            _ => {
                let goes = lasting().await.1;
                (once().await.1, goes)
            }
        };
        let slowly = round % 8 >= 4;
        if slowly {
            world.think().await;
        }
        drop(goes);
        tokio::task::yield_now().await;
        if slowly {
            world.think().await;
        }

        if until_gone {
            ann.delete(&node).await;
            stays.hears_of(&node).await;
            ann.ephemeral(&node).await;
        } else {
            ann.set(&node, round.to_string()).await;
            stays.hears_of(&node).await;
        }
    }
}

async fn a_watch_comes_to_a_path_that_one_for_one_event_leaves(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    ann.ephemeral(&node).await;
    for round in 0..20 {
        let query = Query::node(&node).once();
        let query = if round >= 10 { query.names_only() } else { query };
        let mut leaving = Box::pin(bob.store.watch(query));
        if round % 2 == 0 {
            // The call is dropped before it is answered.
            let _not_yet = poll_immediate(leaving.as_mut()).await;
            drop(leaving);
        } else {
            drop(leaving.await.expect("answered"));
        }

        let (_view, mut lasting) = bob.watch(Query::node(&node)).await;
        ann.set(&node, round.to_string()).await;
        lasting.hears_of(&node).await;
    }
}

async fn a_watch_that_is_dropped_is_freed(world: World) {
    let ann = world.ann().await;
    let made: Vec<_> = (0..10).map(|number| world.at(&format!("m{number}"))).collect();
    for node in &made {
        ann.ephemeral(node).await;
    }
    let before = world.harness.watches().await;
    let mut held = Vec::new();
    for round in 0..50 {
        let query = match round % 5 {
            0 => Query::node(world.at("n")),
            1 => Query::children(world.at("n")),
            2 => Query::subtree(world.at("n")),
            3 => Query::node(&made[round / 5]).once(),
            _ => Query::until_gone(&made[round / 5]),
        };
        held.push(ann.watch(query).await.1);
    }
    assert!(world.harness.watches().await > before, "the harness counts no watches");

    drop(held);

    let freed = async || world.harness.watches().await <= before;
    world.eventually("the server keeps nothing for a dropped watch", freed).await;
    assert_eq!(ann.names(&world.dir).await.len(), made.len());
}

async fn a_session_that_is_closed_frees_its_watches(world: World) {
    let bob = world.bob().await;
    let before = world.harness.watches().await;
    let ann = world.ann().await;
    let observing = (0..10).map(|_| ann.watch(Query::subtree(&world.dir)));
    let held = join_all(observing).await;
    assert!(world.harness.watches().await > before, "the harness counts no watches");

    ann.close().await;

    let freed = async || world.harness.watches().await <= before;
    world.eventually("the server keeps nothing for a closed session", freed).await;
    drop(held);
    assert!(bob.names(&world.dir).await.is_empty());
}
