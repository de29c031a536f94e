//! Views of several nodes that are being written.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use futures_util::future::join_all;
use synod_core::error::ErrorKind;
use synod_core::path::Path;
use synod_core::store::{Detail, Expect, Lifetime, Node, Query, Revision, Scope, Store, Txn, View};

use super::{create, done, path, session};

const TOP: &str = "/moments";
const NODES: usize = 12;
const WRITES: usize = 150;
const WRITERS: usize = 3;

/// Directories in which each writer has one token node.
const DIRS: [&str; 2] = [TOP, "/moments/deep/er"];

fn token(dir: &str, writer: usize, round: usize) -> Path {
    path(&format!("{dir}/token-{writer}-{}", round % 7))
}

/// Each writer sets all nodes to its own next value, and moves its token to its next place.
async fn write(store: &dyn Store, writer: usize, written: &RefCell<BTreeMap<Revision, String>>) {
    for round in 0..WRITES {
        let value = format!("{writer}:{round}");
        let mut txn = Txn::new();
        for node in 0..NODES {
            txn = txn.set(path(&format!("{TOP}/n{node}")), value.clone(), Expect::Any);
        }
        for dir in DIRS {
            txn = txn.create(token(dir, writer, round + 1), "", Lifetime::Session);
            txn = txn.delete(token(dir, writer, round), Expect::Any);
        }
        let revision = done(store, txn).await.revision.expect("the answer to a set has it");
        written.borrow_mut().insert(revision, value);
    }
}

/// The value that all nodes have in a view, if the view contains them.
fn value(view: &View, query: &Query) -> Option<String> {
    let nodes = || view.nodes.iter().filter(|node| node.path.name().starts_with('n'));
    let data = |node: &Node| String::from_utf8_lossy(&node.data).into_owned();
    let first = data(nodes().next()?);
    assert!(nodes().all(|node| data(node) == first), "{query:?}: {:#?}", view.nodes);
    Some(first)
}

async fn look(store: &dyn Store, stop: &Cell<usize>) -> Vec<(Revision, String)> {
    let queries = [
        Query::children(path(TOP)),
        Query::subtree(path(TOP)),
        Query::children(path(TOP)).local(),
        Query::node(path(&format!("{TOP}/n0"))).local(),
        Query::node(path(&format!("{TOP}/n0"))),
        Query::children(path(TOP)).names_only(),
        Query::subtree(path(TOP)).names_only().local(),
        Query::children(path(TOP)).starting_with("n"),
    ];
    let mut views = Vec::new();
    for query in queries.iter().cycle() {
        if stop.get() == WRITERS {
            break;
        }
        let view = store.read(query.clone()).await.expect("the server answers");
        let has_all = query.scope != Scope::Node && query.prefix.is_empty();
        for writer in (0..WRITERS).filter(|_| has_all) {
            for dir in DIRS {
                let token = format!("{dir}/token-{writer}-");
                let tokens =
                    view.nodes.iter().filter(|node| node.path.as_str().starts_with(&token));
                let shown = dir == TOP || query.scope == Scope::Subtree;
                assert_eq!(tokens.count(), usize::from(shown), "{query:?}: {:#?}", view.nodes);
            }
        }
        if query.detail == Detail::Data
            && let Some(value) = value(&view, query)
        {
            views.push((view.revision, value));
        }
    }
    views
}

pub(super) async fn a_view_is_of_one_moment_while_all_of_it_is_written() {
    let top = session().await;
    for node in 0..NODES {
        done(&*top, create(&format!("{TOP}/n{node}"), "0:0")).await;
    }
    let (written, stop) = (RefCell::default(), Cell::new(0));
    let (writers, readers) = (
        join_all((0..WRITERS).map(|_| session())).await,
        join_all((0..3).map(|_| session())).await,
    );
    for (writer, store) in writers.iter().enumerate() {
        for dir in DIRS {
            done(&**store, Txn::new().create(token(dir, writer, 0), "", Lifetime::Session)).await;
        }
    }
    let writing = join_all(writers.iter().enumerate().map(|(writer, store)| {
        let (written, stop) = (&written, &stop);
        async move {
            write(&**store, writer, written).await;
            stop.set(stop.get() + 1);
        }
    }));
    let looking = join_all(readers.iter().map(|store| look(&**store, &stop)));
    let (_done, views) = futures_util::future::join(writing, looking).await;

    let written = written.into_inner();
    let made: BTreeMap<&str, Revision> =
        written.iter().map(|(revision, value)| (value.as_str(), *revision)).collect();
    let mut known = 0;
    for (revision, value) in views.iter().flatten() {
        let Some(made) = made.get(value.as_str()) else { continue };
        known += 1;
        let missed = written.range(..=*revision).next_back();
        assert!(missed.is_none_or(|(last, _)| last <= made), "{value} at {revision}: {missed:?}");
    }
    assert!(known > WRITES / 10, "{known} views");
}

pub(super) async fn a_view_of_more_than_one_request_is_of_one_moment_too() {
    const CHILDREN: usize = 4_400;
    const MOVES: usize = 30;

    let (store, other) = (session().await, session().await);
    let dir = path("/many");
    // With such long names one request cannot return all of them.
    let long = |number: usize| path(&format!("{dir}/{}{number:05}", "n".repeat(240)));
    done(&*store, Txn::new().create(&dir, "", Lifetime::Persistent)).await;
    let creates = (0..CHILDREN).step_by(40).map(|first| {
        let children = (first..first + 40).map(long);
        let txn = children.fold(Txn::new(), |txn, at| txn.create(at, "", Lifetime::Persistent));
        done(&*store, txn)
    });
    join_all(creates).await;
    let token = |round: usize| dir.join(["a", "z"][round % 2]).expect("valid");
    done(&*store, Txn::new().create(token(0), "", Lifetime::Session)).await;

    let moved = Cell::new(false);
    let moving = async {
        for round in 0..MOVES {
            let txn = Txn::new().create(token(round + 1), "", Lifetime::Session);
            done(&*store, txn.delete(token(round), Expect::Any)).await;
        }
        moved.set(true);
    };
    let looking = async {
        loop {
            let last = moved.get();
            match other.read(Query::children(&dir)).await {
                Ok(view) => assert_eq!(view.nodes.len(), CHILDREN + 1),
                // While it changes, no consistent view may be found.
                Err(error) => assert!(!last && error.kind() == ErrorKind::Unreachable, "{error}"),
            }
            if last {
                return;
            }
        }
    };
    futures_util::future::join(moving, looking).await;
}
