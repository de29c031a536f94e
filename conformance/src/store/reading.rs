//! The maximum age of an answer.

use std::cell::{Cell, RefCell};
use std::pin::pin;

use futures_util::future::{Either, join, select};
use synod_core::store::{Detail, Loaded, Progress, Query, Revision, Scope, View};

use crate::actor::{Heard, text, text_of};
use crate::world::World;

cases![
    "L-KV-2 C-READ-1" catches [LatestLags] => a_latest_read_reflects_every_answered_write,
    "L-KV-2 C-READ-1" catches [ListingLags] => a_latest_listing_reflects_every_answered_write,
    "L-KV-4 C-READ-2" catches [LocalLagsOwnWrites] => a_session_reads_its_own_writes,
    "L-KV-3 C-READ-2" catches [LocalGoesBack] => a_local_read_never_goes_back,
    "L-KV-3 C-READ-2" catches [LocalBehindLatest] => a_local_read_is_not_older_than_a_latest_one,
    "L-KV-3 C-READ-2" catches [LocalBehindEvents] => a_local_read_is_not_older_than_the_events,
    "C-READ-3" catches [RevisionAhead] => a_view_reflects_every_commit_up_to_its_revision,
    "C-READ-3" catches [NamesCarryData] => a_query_for_names_returns_no_data,
    "C-READ-4" catches [ProgressOfEachRequest] => the_progress_of_a_read_never_falls,
    "C-READ-1" catches [MissingIsError] => what_is_missing_is_an_empty_view,
];

async fn a_latest_read_reflects_every_answered_write(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    ann.create(&node, "0").await;

    for round in 1..=30 {
        let (writer, reader) = if round % 2 == 0 { (&ann, &bob) } else { (&bob, &ann) };
        writer.set(&node, round.to_string()).await;
        assert_eq!(reader.text(&node).await, Some(round.to_string()));
    }
    ann.delete(&node).await;
    assert!(!bob.exists(&node).await);
}

async fn a_latest_listing_reflects_every_answered_write(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let dir = world.at("d");

    for round in 1..=20 {
        ann.create(&world.at(&format!("d/n{round}")), "").await;
        assert_eq!(bob.names(&dir).await.len(), round, "names of children");
        assert_eq!(bob.children(&dir).await.len(), round, "children with data");
        let tree = bob.read(Query::subtree(&dir)).await;
        let shown = tree.nodes.iter().filter(|node| node.stat.is_some()).count();
        assert_eq!(shown, round, "the whole tree");
    }
}

async fn a_session_reads_its_own_writes(world: World) {
    let ann = world.ann().await;
    let node = world.at("n");
    ann.create(&node, "0").await;

    for round in 1..=30 {
        ann.set(&node, round.to_string()).await;
        let view = ann.read(Query::node(&node).local()).await;
        assert_eq!(view.node().map(text), Some(round.to_string()));
    }
    ann.delete(&node).await;
    assert_eq!(ann.read(Query::children(&world.dir).local()).await.nodes, []);
}

async fn a_local_read_never_goes_back(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    ann.create(&node, "0").await;
    ann.read(Query::node(&node)).await;
    bob.read(Query::node(&node)).await;

    let writing = async {
        for round in 1..=50 {
            ann.set(&node, round.to_string()).await;
            world.think().await;
        }
    };
    let reading = async {
        let (mut value, mut revision) = (0, Revision::ZERO);
        for _ in 0..100 {
            let view = bob.read(Query::node(&node).local()).await;
            assert!(view.revision >= revision, "{} after {revision}", view.revision);
            let seen = number(&view);
            assert!(seen >= value, "{seen} after {value}");
            (value, revision) = (seen, view.revision);
            world.think().await;
        }
    };
    join(writing, reading).await;
}

async fn a_local_read_is_not_older_than_a_latest_one(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    ann.create(&node, "0").await;

    for round in 1..=30 {
        ann.set(&node, round.to_string()).await;
        let latest = number(&bob.read(Query::node(&node)).await);
        let local = number(&bob.read(Query::node(&node).local()).await);
        assert!(local >= latest, "{local} after {latest} in the same session");
    }
}

async fn a_local_read_is_not_older_than_the_events(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    ann.create(&node, "0").await;
    let (_view, mut watcher) = bob.watch(Query::node(&node)).await;
    for round in 1..=30 {
        let stat = ann.set(&node, round.to_string()).await;
        let heard = watcher
            .hears("a change that is not older", |change| {
                change.revision.is_none_or(|revision| revision >= stat.modified)
            })
            .await;
        if let Heard::Told(change) = heard {
            let view = bob.read(Query::node(&node).local()).await;
            let modified = view.node().and_then(|node| node.stat).expect("it exists").modified;
            if let Some(told) = change.revision {
                assert!(modified >= told, "reads {modified}, and was notified of {told}");
            }
        }
    }
}

async fn a_view_reflects_every_commit_up_to_its_revision(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let node = world.at("n");
    let mut written = vec![ann.create(&node, "0").await.modified];
    let stop = Cell::new(false);
    let log = RefCell::new(&mut written);

    let writing = async {
        for round in 1..=40 {
            let stat = ann.set(&node, round.to_string()).await;
            log.borrow_mut().push(stat.modified);
            world.think().await;
        }
        stop.set(true);
    };
    let reading = async {
        let mut views = Vec::new();
        while !stop.get() {
            let local =
                if views.len() % 2 == 0 { Query::node(&node).local() } else { Query::node(&node) };
            let view = bob.read(local).await;
            if view.node().is_some() {
                views.push((view.revision, number(&view)));
            }
            world.think().await;
        }
        views
    };
    let ((), views) = join(writing, reading).await;

    assert!(!views.is_empty(), "a latest read finds the node");
    for (revision, value) in views {
        let due = written.iter().filter(|written| **written <= revision).count();
        assert!(value + 1 >= due, "a view of {revision} shows {value}, and {due} were written");
    }
}

async fn a_query_for_names_returns_no_data(world: World) {
    let ann = world.ann().await;
    let [node, below] = ["d/n", "d/n/below"].map(|name| world.at(name));
    let stat = ann.create(&node, "data").await;
    ann.create(&below, "data").await;

    for scope in [Scope::Node, Scope::Children, Scope::Subtree] {
        let query = match scope {
            Scope::Node => Query::node(&node),
            Scope::Children => Query::children(world.at("d")),
            Scope::Subtree => Query::subtree(world.at("d")),
        };
        let view = ann.read(query.names_only()).await;
        let shown = view.nodes.iter().find(|shown| shown.path == node).expect("it exists");
        assert!(view.nodes.iter().all(|node| node.data.is_empty()), "{view:?}");
        let is_true = shown.stat.is_none_or(|told| told == stat);
        assert!(is_true, "a returned stat is true: {shown:?}");
        assert!(
            shown.stat.is_some() || scope != Scope::Node,
            "a query of one node returns its stat"
        );
    }
}

async fn what_is_missing_is_an_empty_view(world: World) {
    let ann = world.ann().await;
    let nowhere = world.at("no/where");

    for query in [Query::node(&nowhere), Query::children(&nowhere), Query::subtree(&nowhere)] {
        for detail in [Detail::Data, Detail::Names] {
            let mut query = query.clone();
            query.detail = detail;
            match ann.ask(query.clone()).await {
                Ok(view) => assert_eq!(view.nodes, [], "{query:?}"),
                Err(error) => panic!("{query:?}: {}", text_of(&error)),
            }
            assert_eq!(ann.ask(query.local()).await.map(|view| view.nodes.len()).ok(), Some(0));
        }
    }
}

/// The data of the one node of a view, as a number.
fn number(view: &View) -> usize {
    let node = view.node().expect("the node exists");
    text(node).parse().expect("numbers were written")
}

async fn the_progress_of_a_read_never_falls(world: World) {
    /// More nodes than the first page of a store that answers in pages.
    const NODES: usize = 100;
    let (ann, bob) = (world.ann().await, world.bob().await);
    for node in 0..NODES {
        ann.create(&world.at(&format!("d/n{node}")), "x").await;
    }

    for query in [Query::subtree(world.at("d")), Query::children(world.at("d"))] {
        let progress = Progress::default();
        let mut loaded = progress.watch();
        let mut highest = 0;
        let hearing = async {
            while loaded.changed().await.is_ok() {
                let Loaded { read, found, .. } = *loaded.borrow_and_update();
                assert!(highest <= read && read <= found, "{read} of {found}, after {highest}");
                highest = read;
            }
        };
        let reading = bob.read(query.progress(&progress));
        let view = match select(pin!(reading), pin!(hearing)).await {
            Either::Left((view, _)) => view,
            Either::Right(_) => unreachable!("the query has the other end"),
        };
        assert_eq!(view.nodes.len(), NODES);
        assert!(highest <= NODES, "{highest} were reported");
    }
}
