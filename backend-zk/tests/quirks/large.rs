//! A tree that does not fit into one request, and is written all the time.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::pin::pin;

use futures_util::future::{Either, join, select};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Progress, Query, Store, Txn, View};

use super::{done, path, session};

/// With the length of the names, more than 1 MiB of paths.
const NODES: usize = 5_500;

/// The node to write in a round: a different one, but the same one in every second round.
fn place(round: usize) -> usize {
    if round.is_multiple_of(2) { round * 2_711 % NODES } else { 7 }
}

/// The number of rounds that a view shows: each of them, and nothing of a later one.
fn rounds(view: &View) -> usize {
    let number = |data: &[u8]| std::str::from_utf8(data).ok()?.parse::<usize>().ok();
    let written: Vec<_> = view.nodes.iter().map(|node| number(&node.data)).collect();
    assert_eq!(written.len(), NODES, "as many as there are at any moment");
    let last = written.iter().flatten().max().copied().unwrap_or_default();
    let due: BTreeMap<_, _> = (1..=last).map(|round| (place(round), round)).collect();
    for (node, written) in written.into_iter().enumerate() {
        assert_eq!(written, due.get(&node).copied(), "node {node}, after {last} rounds");
    }
    last
}

/// Waits for a report between two answers to one read. On a busy machine both may arrive together:
/// then it is read again.
async fn reports_its_progress(store: &dyn Store, dir: &Path) {
    let progress = Progress::default();
    let mut loaded = progress.watch();
    let reading = async {
        loop {
            let query = Query::subtree(dir).progress(&progress);
            drop(store.watch(query).await.expect("a moment is found"));
        }
    };
    let on_the_way = loaded.wait_for(|it| 1 < it.read && it.read < it.found);
    match select(pin!(on_the_way), pin!(reading)).await {
        Either::Left((report, _)) => drop(report.expect("the query has the other end")),
        Either::Right((never, _)) => never,
    }
}

pub(super) async fn a_tree_that_fits_into_no_request_is_of_one_moment() {
    let (ann, bob) = (session().await, session().await);
    let dir = path("/large");
    let nodes: Vec<Path> = (0..NODES).map(|node| path(&format!("/large/{node:0200}"))).collect();
    for some in nodes.chunks(40) {
        let create = |txn: Txn, node: &Path| txn.create(node, "new", Lifetime::Persistent);
        done(&*ann, some.iter().fold(Txn::new(), create)).await;
    }
    let stop = Cell::new(false);
    let writing = async {
        let mut round = 0;
        while !stop.get() {
            round += 1;
            let node = &nodes[place(round)];
            done(&*ann, Txn::new().set(node, round.to_string(), Expect::Any)).await;
        }
        round
    };
    let reading = async {
        let observed = bob.watch(Query::subtree(&dir)).await;
        let (view, watch) = observed.expect("a moment is found");
        let mut shown = vec![rounds(&view)];
        for query in [Query::subtree(&dir), Query::children(&dir)] {
            shown.push(rounds(&bob.read(query).await.expect("a moment is found")));
        }
        drop(watch);
        reports_its_progress(&*bob, &dir).await;
        // This read has no watch of its own.
        shown.push(rounds(&bob.read(Query::subtree(&dir)).await.expect("a moment is found")));
        stop.set(true);
        shown
    };
    let (written, shown) = join(writing, reading).await;
    assert!(shown.is_sorted() && shown[0] < shown[3], "{shown:?} of {written}");
}
