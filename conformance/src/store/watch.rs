//! The events of an observation.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join;
use synod_core::path::Path;
use synod_core::store::{Change, End, Event, Expect, Kind, Lifetime, Query, Stat, Txn, View};
use tokio::sync::Notify;

use crate::actor::{Actor, Watcher, text};
use crate::world::World;

cases![
    "L-WAT-1 C-OBS-1" catches [WatchMissesUpdate] => a_write_of_an_observed_node_is_reported,
    "L-WAT-1 C-OBS-1" catches [WatchNeedsNode] => the_creation_of_a_missing_node_is_reported,
    "L-WAT-1 C-OBS-1" catches [WatchMissesDelete] => the_deletion_of_an_observed_node_is_reported,
    "L-WAT-1 C-OBS-1" catches [WatchMissesChildUpdate] => every_change_of_children_is_reported,
    "L-WAT-1 C-OBS-1" catches [NamesWatchIsSilent] => a_watch_for_names_reports_creations_and_deletions,
    "L-WAT-1 C-OBS-1" catches [WatchIsShallow] => every_change_in_a_tree_is_reported,
    "L-WAT-1 C-OBS-1" catches [WindowNarrowsWatch] => a_window_does_not_narrow_what_is_observed,
    "L-WAT-1 C-OBS-1" catches [PrefixWatchIsSilent] => every_change_of_children_with_a_prefix_is_reported,
    "L-WAT-1 C-OBS-1" catches [WatchIgnoresOwnWrites] => a_session_is_notified_of_its_own_writes,
    "L-WAT-1 L-WAT-2 C-OBS-1" catches [WatchArmedAfterRead LocalWatchSkips] => nothing_is_lost_between_the_view_and_the_watch,
    "L-WAT-1 C-OBS-1" catches [WatchFiresOnce] => a_watch_goes_on_after_its_first_event,
    "L-WAT-1 C-OBS-7" catches [OnceEndsUntold OnceFallsSilent] => a_watch_for_one_event_delivers_it_and_ends_or_goes_on,
    "L-WAT-1 C-OBS-7" catches [WatchMissesDelete] => a_watch_for_one_event_delivers_the_deletion,
    "L-WAT-1 C-OBS-8" catches [WritesToldUntilGone OnceWaitsForTheAbsent] => a_watch_until_a_node_is_gone_reports_nothing_else,
    "L-WAT-1 C-OBS-7" catches [OnceWaitsForTheAbsent] => a_watch_for_one_event_of_no_node_ends_or_delivers_its_creation,
    "L-WAT-8 C-OBS-2" catches [EventTellsOldNode] => the_data_and_stat_in_an_event_are_true,
    "L-WAT-8 C-OBS-2" catches [SpuriousChange] => a_change_that_did_not_happen_is_not_reported,
    "L-X-9 L-WAT-8" catches [EventForWrongPath] => a_change_that_is_not_observed_is_not_reported,
    "L-WAT-11" catches [RecreationUntold] => a_node_that_was_created_again_is_reported,
    "L-WAT-6 C-OBS-9" catches [HintsHideDeletions WatchMissesChildUpdate] => a_reader_that_follows_hints_knows_what_is_there,
    "L-WAT-8 C-OBS-9" catches [SpuriousChange] => an_observer_of_hints_changes_nothing_for_others,
    "L-WAT-3 C-OBS-3" catches [EventsOutOfOrder] => revisions_of_one_path_do_not_fall,
    "L-WAT-4 C-OBS-3" catches [EventTwice] => no_change_is_reported_twice,
];

async fn a_write_of_an_observed_node_is_reported(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    ann.create(&node, "0").await;
    for query in [Query::node(&node), Query::node(&node).names_only(), Query::node(&node).local()] {
        let (_view, mut watcher) = bob.watch(query).await;

        let stat = ann.set(&node, "1").await;

        watcher.hears("the write", |change| change.path == node && not_before(change, stat)).await;
    }
}

async fn the_creation_of_a_missing_node_is_reported(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    for deep in ["n", "no/such/place"] {
        let node = world.at(deep);
        let (view, mut watcher) = bob.watch(Query::node(&node)).await;
        assert_eq!(view.node(), None);

        ann.create(&node, "").await;

        watcher.hears_of(&node).await;
        assert!(bob.exists(&node).await);
    }
}

async fn the_deletion_of_an_observed_node_is_reported(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    ann.create(&node, "").await;
    let (view, mut watcher) = bob.watch(Query::node(&node)).await;
    assert!(view.node().is_some());

    ann.delete(&node).await;

    let deleted = |change: &Change| change.path == node && change.kind == Kind::Deleted;
    watcher.hears("the deletion", deleted).await;
    assert!(!bob.exists(&node).await);
}

async fn every_change_of_children_is_reported(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let [old, new] = ["d/old", "d/new"].map(|name| world.at(name));
    ann.create(&old, "").await;
    let (view, mut watcher) = bob.watch(Query::children(world.at("d"))).await;
    assert_eq!(view.nodes.len(), 1);

    ann.create(&new, "").await;
    watcher.hears_of(&new).await;
    let stat = ann.set(&old, "x").await;
    watcher.hears("the write", |change| change.path == old && not_before(change, stat)).await;
    ann.delete(&old).await;
    watcher.hears_of(&old).await;
    ann.delete(&new).await;
    watcher.hears_of(&new).await;
}

async fn a_watch_for_names_reports_creations_and_deletions(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let (first, second) = (world.at("d/first"), world.at("d/second"));
    let (view, mut watcher) = bob.watch(Query::children(world.at("d")).names_only()).await;
    assert_eq!(view.nodes, []);

    ann.create(&first, "").await;
    watcher.hears_of(&first).await;
    assert_eq!(bob.names(&world.at("d")).await, ["first"]);
    ann.ephemeral(&second).await;
    watcher.hears_of(&second).await;
    ann.delete(&first).await;
    watcher.hears_of(&first).await;
}

async fn every_change_in_a_tree_is_reported(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let [root, child, deep] = ["t", "t/c", "t/c/x/y/z"].map(|name| world.at(name));
    let (_view, mut watcher) = bob.watch(Query::subtree(&root)).await;

    for node in [&root, &child, &deep] {
        ann.create(node, "").await;
        watcher.hears_of(node).await;
        let stat = ann.set(node, "x").await;
        watcher.hears("the write", |change| change.path == *node && not_before(change, stat)).await;
    }
    for node in [&deep, &child, &root] {
        ann.delete(node).await;
        let deleted = |change: &Change| change.path == *node && change.kind == Kind::Deleted;
        watcher.hears("the deletion", deleted).await;
    }
}

async fn a_window_does_not_narrow_what_is_observed(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let first = ann.draw(&world.at("d/a-"), Lifetime::Session).await;
    ann.draw(&world.at("d/b-"), Lifetime::Session).await;
    let (view, mut watcher) = bob.watch(Query::children(world.at("d")).newest(1)).await;
    assert!(view.nodes.iter().all(|node| node.path != first.path));

    ann.delete(&first.path).await;

    watcher.hears_of(&first.path).await;
}

async fn every_change_of_children_with_a_prefix_is_reported(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let [old, new] = ["d/x-old", "d/x-new"].map(|name| world.at(name));
    ann.create(&old, "").await;
    ann.create(&world.at("d/other"), "").await;
    let query = Query::children(world.at("d")).starting_with("x-");
    let (view, mut watcher) = bob.watch(query).await;
    assert_eq!(view.nodes.len(), 1);

    ann.create(&new, "").await;
    watcher.hears_of(&new).await;
    ann.delete(&old).await;
    watcher.hears_of(&old).await;
}

async fn a_session_is_notified_of_its_own_writes(world: World) {
    let ann = world.ann().await;
    let node = world.at("n");
    let (_view, mut watcher) = ann.watch(Query::node(&node)).await;

    ann.create(&node, "").await;
    watcher.hears_of(&node).await;
    ann.delete(&node).await;
    watcher.hears("the deletion", |change| change.kind == Kind::Deleted).await;
}

async fn nothing_is_lost_between_the_view_and_the_watch(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    ann.create(&node, "0").await;
    for round in 1..=40 {
        // In some rounds the view is certainly earlier, in the others by chance.
        let viewed = Notify::new();
        let writing = async {
            world.think().await;
            if round % 5 == 0 {
                viewed.notified().await;
            }
            ann.set(&node, round.to_string()).await
        };
        let observing = async {
            world.think().await;
            // Changes that a lagging view does not include are reported too.
            let query = Query::node(&node);
            let query = match round % 4 {
                1 => query.once(),
                3 => query,
                _ => query.local(),
            };
            let observed = bob.watch(query).await;
            viewed.notify_one();
            observed
        };
        let (stat, (view, mut watcher)) = join(writing, observing).await;

        let seen = view.node().map(text).expect("the node exists");
        if seen != round.to_string() {
            watcher.hears("what the view does not show", |change| not_before(change, stat)).await;
        }
    }
}

async fn a_watch_goes_on_after_its_first_event(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    let (_view, mut watcher) = bob.watch(Query::node(&node)).await;
    ann.create(&node, "0").await;

    for round in 1..=20 {
        let stat = ann.set(&node, round.to_string()).await;
        watcher.hears("the write", |change| not_before(change, stat)).await;
    }
}

async fn a_watch_for_one_event_delivers_it_and_ends_or_goes_on(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    ann.create(&node, "0").await;
    for query in [Query::node(&node), Query::node(&node).local()] {
        let (view, mut watcher) = bob.watch(query.once()).await;
        assert!(view.node().is_some());

        let stat = ann.set(&node, "1").await;
        watcher.hears("the write", |change| change.path == node && not_before(change, stat)).await;
        let stat = ann.set(&node, "2").await;

        watcher.hears_or_ends("the next write", |change| not_before(change, stat)).await;
    }
}

async fn a_watch_for_one_event_delivers_the_deletion(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    for _ in 0..3 {
        ann.create(&node, "").await;
        assert!(bob.exists(&node).await);
        let (_view, mut watcher) = bob.watch(Query::node(&node).once().local()).await;

        ann.delete(&node).await;

        let deleted = |change: &Change| change.path == node && change.kind == Kind::Deleted;
        watcher.hears("the deletion", deleted).await;
        assert!(!bob.exists(&node).await);
    }
}

async fn a_watch_until_a_node_is_gone_reports_nothing_else(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    for lifetime in [Lifetime::Persistent, Lifetime::Session, Lifetime::Session] {
        ann.commit(Txn::new().create(&node, "0", lifetime)).await;
        let (view, mut watcher) = bob.watch(Query::until_gone(&node)).await;
        assert!(view.node().is_some_and(|node| node.stat.is_some()), "{view:?}");

        for data in ["1", "2"] {
            ann.set(&node, data).await;
        }
        ann.delete(&node).await;

        match watcher.next("the deletion").await {
            Event::Changed(change) => {
                assert_eq!((change.path, change.kind), (node.clone(), Kind::Deleted));
            }
            event => assert!(matches!(event, Event::Resync), "{event:?}"),
        }
        assert!(!bob.exists(&node).await);
    }

    let (_view, mut watcher) = bob.watch(Query::until_gone(&node)).await;
    let (told, end) = watcher.rest().await;
    assert!(told.is_empty() && matches!(end, End::Delivered), "{told:?}, {end:?}");
}

async fn a_watch_for_one_event_of_no_node_ends_or_delivers_its_creation(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    // The path below a container has no node either.
    ann.create(&world.at("d/n"), "").await;
    for absent in [node, world.at("d")] {
        let (view, mut watcher) = bob.watch(Query::node(&absent).once()).await;
        assert_eq!(view.node(), None);

        if absent.name() == "d" {
            ann.delete(&world.at("d/n")).await;
        }
        ann.create(&absent, "").await;

        watcher.hears_or_ends("the creation", |change| change.path == absent).await;
    }
}

async fn the_data_and_stat_in_an_event_are_true(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("d/n");
    let (_view, mut watcher) = bob.watch(Query::children(world.at("d"))).await;
    let mut facts = vec![("0".to_owned(), ann.create(&node, "0").await)];
    for round in 1..=10 {
        facts.push((round.to_string(), ann.set(&node, round.to_string()).await));
    }
    ann.delete(&node).await;
    ann.create(&world.at("d/last"), "").await;

    for event in watcher.up_to(&world.at("d/last")).await {
        let Event::Changed(change) = event else { continue };
        if change.path != node {
            continue;
        }
        if let Some(told) = change.node {
            let stat = told.stat.expect("a reported node has its stat");
            let fact = (text(&told), stat);
            assert_eq!(told.path, change.path);
            assert_ne!(change.kind, Kind::Deleted, "what is gone is not shown");
            assert!(facts.contains(&fact), "{fact:?} was never so");
            let dated = change.revision.is_none_or(|revision| revision == stat.modified);
            assert!(dated, "{fact:?} was so before {:?}, not after", change.revision);
        }
    }
}

async fn a_change_that_did_not_happen_is_not_reported(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("d/n");
    let stat = ann.create(&node, "").await;
    let (_view, mut watcher) = bob.watch(Query::children(world.at("d"))).await;

    bob.read(Query::children(world.at("d"))).await;
    let again = Txn::new().create(&node, "x", Lifetime::Persistent);
    ann.rejected(again).await;
    let checks = Txn::new().check(&node, Expect::Any);
    let _checked = ann.commit(checks).await;
    let last = world.at("d/last");
    ann.create(&last, "").await;

    for event in watcher.up_to(&last).await {
        let Event::Changed(change) = event else { continue };
        let late = change.kind == Kind::Created && change.revision <= Some(stat.created);
        assert!(change.path == last || late, "that did not happen: {change:?}");
    }
}

async fn a_change_that_is_not_observed_is_not_reported(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let watched = world.at("a");
    let (_view, mut node) = bob.watch(Query::node(&watched)).await;
    let (_view, mut children) = bob.watch(Query::children(&watched)).await;
    let (_view, mut tree) = bob.watch(Query::subtree(&watched)).await;

    ann.create(&watched, "").await;
    for elsewhere in ["ab", "a!", "a0/x", "b", "a/c/d"] {
        ann.create(&world.at(elsewhere), "").await;
    }
    let [child, last] = ["a/c", "a/last"].map(|name| world.at(name));
    ann.create(&last, "").await;
    ann.delete(&last).await;
    ann.set(&watched, "x").await;

    only_about(&mut node, &watched, |path| *path == watched).await;
    let near = |path: &Path| [&child, &last, &watched].contains(&path);
    only_about(&mut children, &last, near).await;
    only_about(&mut tree, &last, |path| *path == watched || path.is_below(&watched)).await;
}

async fn only_about(watcher: &mut Watcher, last: &Path, covered: impl Fn(&Path) -> bool) {
    let mut events = watcher.up_to(last).await;
    events.extend(std::iter::from_fn(|| watcher.watch.try_next()));
    for event in events {
        if let Event::Changed(change) = event {
            assert!(covered(&change.path), "{change:?} was not asked for");
        }
    }
}

async fn a_node_that_was_created_again_is_reported(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    ann.create(&node, "same").await;
    let (view, mut watcher) = bob.watch(Query::node(&node)).await;
    let before = view.node().and_then(|node| node.stat).expect("it exists");

    ann.delete(&node).await;
    let after = ann.create(&node, "same").await;

    watcher.hears("the new node", |change| not_before(change, after)).await;
    let now = bob.get(&node).await.and_then(|node| node.stat).expect("it exists");
    assert_ne!(now.created, before.created);
}

/// Lets two sessions write two nodes, and returns the events of a third.
async fn events_of_a_busy_directory(world: &World) -> Vec<Event> {
    let (ann, bob, eve) = (world.ann().await, world.bob().await, world.ann().await);
    let dir = world.at("d");
    let (_view, mut watcher) = eve.watch(Query::children(&dir)).await;
    let writing = async |actor: &Actor, name: &str| {
        let node = dir.join(name).expect("valid");
        for round in 0..15 {
            actor.create(&node, round.to_string()).await;
            world.think().await;
            actor.set(&node, "x").await;
            actor.delete(&node).await;
        }
    };
    join(writing(&ann, "a"), writing(&bob, "b")).await;
    ann.create(&world.at("d/last"), "").await;
    watcher.up_to(&world.at("d/last")).await
}

async fn a_reader_that_follows_hints_knows_what_is_there(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let dir = world.at("d");
    let (view, mut watcher) = bob.watch(Query::children(&dir).hints()).await;
    let mut known = facts(&view);
    let at = |name: &str, round: usize| world.at(&format!("d/{name}{round}"));
    for round in 0..10 {
        ann.create(&at("kept", round), "0").await;
        ann.create(&at("written", round), "0").await;
        // It is deleted immediately after its creation.
        ann.create(&at("short", round), "").await;
        ann.delete(&at("short", round)).await;
        let absent = Txn::new().check(at("absent", round), Expect::Absent);
        ann.commit(absent.create(at("again", round), "0", Lifetime::Persistent)).await;
        ann.delete(&at("again", round)).await;
        ann.create(&at("again", round), "1").await;
        if let Some(last) = round.checked_sub(1) {
            ann.delete(&at("kept", last)).await;
            ann.set(&at("written", last), "1").await;
        }
        let end = at("end", round);
        ann.create(&end, "").await;

        while !known.contains_key(&end) {
            match watcher.next("a change").await {
                Event::Changed(change) if change.kind != Kind::Children => {
                    match bob.read(Query::node(&change.path).local()).await.into_node() {
                        Some(node) => drop(known.insert(change.path, text(&node))),
                        None => drop(known.remove(&change.path)),
                    }
                }
                Event::Ended(end) => panic!("the watch ended: {end:?}"),
                Event::Changed(_) | Event::Resync => {
                    known = facts(&bob.read(Query::children(&dir).local()).await);
                }
            }
        }
        assert_eq!(known, facts(&ann.read(Query::children(&dir)).await), "round {round}");
    }
}

/// The nodes in a view with their data.
fn facts(view: &View) -> BTreeMap<Path, String> {
    view.nodes.iter().map(|node| (node.path.clone(), text(node))).collect()
}

async fn an_observer_of_hints_changes_nothing_for_others(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let (dir, last) = (world.at("d"), world.at("d/last"));
    let (_view, mut hints) = bob.watch(Query::children(&dir).hints()).await;
    ann.create(&world.at("d/kept"), "").await;
    ann.create(&world.at("d/container/n"), "").await;
    ann.delete(&world.at("d/container/n")).await;
    let (_view, mut facts) = bob.watch(Query::children(&dir)).await;
    let (node, absent) = (world.at("d/n"), world.at("d/absent"));
    for round in 0..5 {
        ann.create(&world.at("d/container/n"), "").await;
        ann.delete(&world.at("d/container/n")).await;
        ann.create(&node, "").await;
        ann.commit(Txn::new().check(&absent, Expect::Absent).set(&node, "1", Expect::Any)).await;
        if round % 2 == 0 {
            let (_view, dropped) = bob.watch(Query::children(&dir).hints()).await;
            drop(dropped);
        }
        ann.delete(&node).await;
    }
    ann.create(&last, "").await;

    hints.hears_of(&last).await;
    for event in facts.up_to(&last).await {
        if let Event::Changed(change) = event {
            assert!([&node, &last].contains(&&change.path), "{change:?} did not happen");
        }
    }
}

async fn revisions_of_one_path_do_not_fall(world: World) {
    let mut last = BTreeMap::new();
    for event in events_of_a_busy_directory(&world).await {
        if let Event::Changed(Change { path, revision: Some(revision), .. }) = event {
            let before = last.insert(path.clone(), revision);
            assert!(before <= Some(revision), "{path} at {revision} after {before:?}");
        }
    }
}

async fn no_change_is_reported_twice(world: World) {
    let mut told = BTreeSet::new();
    for event in events_of_a_busy_directory(&world).await {
        match event {
            Event::Changed(Change { path, revision: Some(revision), .. }) => {
                assert!(told.insert((path.clone(), revision)), "{path} at {revision} twice");
            }
            Event::Changed(_) => {}
            Event::Resync | Event::Ended(_) => told.clear(),
        }
    }
}

/// Returns `true` if an event can belong to a write with this stat: it is not older, if it has a
/// revision.
fn not_before(change: &Change, stat: Stat) -> bool {
    change.revision.is_none_or(|revision| revision >= stat.modified)
}
