//! Nodes that do not fit into one request are read as a consistent snapshot: L-KV-3.

use std::time::Duration;

use synod_core::error::ErrorKind;
use synod_core::path::Path;
use synod_core::store::{
    Backend as _, Expect, Progress, Query, RejectReason, SessionOptions, Store, Txn, View,
};
use synod_zk::ZkBackend;
use tokio::time::timeout;

use crate::peer::Peer;
use crate::protocol::{Request, op};
use crate::scene::{LONG, PATIENCE, make, open, path, peer, set};
use crate::script::{Deed, Rule};

/// The directory is so deep, and its paths so long, that the paths of all children do not fit into
/// a request.
const NODES: usize = 750;

/// The sessions whose reads may take half as long without anything new.
const TTL: Duration = Duration::from_secs(10);

fn dir() -> String {
    format!("/{}", "w".repeat(250)).repeat(6)
}

fn child(number: usize) -> String {
    format!("{}/t-{number:010}", dir())
}

/// Creates the directory and its children, as another client.
fn fill(peer: &Peer) {
    let dir = path(&dir());
    let mut above: Vec<Path> = dir.ancestors().collect();
    above.reverse();
    let dirs = above.iter().chain([&dir]).map(|dir| make(dir.as_str()));
    let all: Vec<Request> = dirs.chain((0..NODES).map(|number| make(&child(number)))).collect();
    let _at = peer.change(|world| world.write(&all)).expect("nothing is against it");
}

async fn read(store: &dyn Store, query: Query) -> View {
    let reads = timeout(PATIENCE, store.read(query)).await;
    reads.expect("in time").expect("the peer answers")
}

/// Two nodes are written together before each part of the answer: a view never shows one write of
/// the two.
pub(crate) async fn what_is_too_much_for_a_request_is_of_one_moment() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    fill(&peer);
    let (tree, children) = (Query::subtree(path(&dir())), Query::children(path(&dir())));
    let window = children.clone().newest(NODES);
    for (query, nodes) in [(tree, NODES + 1), (children, NODES), (window, NODES)] {
        for data in ["a", "b", "c", "d", "e", "f"] {
            let both = vec![set(&child(0), data), set(&child(NODES - 1), data)];
            peer.when(Rule::new(Deed::Meanwhile(both)).op(op::MULTI_READ));
        }
        let progress = Progress::default();
        let (seen, is_gathered) = (progress.watch(), query.window.is_none());

        let view = read(&*store, query.progress(&progress)).await;

        assert_eq!(view.nodes.len(), nodes);
        let data = |number| {
            let node = view.nodes.iter().find(|node| node.path.as_str() == child(number));
            node.expect("it is there").data.clone()
        };
        assert_ne!(data(0), "made", "it was written before it was read");
        assert_eq!(data(0), data(NODES - 1), "both were written at once");
        let loaded = *seen.borrow();
        if is_gathered {
            assert_eq!((loaded.read, loaded.found), (NODES + 1, NODES + 1));
        }
        peer.change(|world| world.script.calm());
    }
}

/// The nodes below a node are read to find the reason that it is not deleted: they need more than
/// one request.
pub(crate) async fn a_node_with_very_many_children_is_not_deleted() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    fill(&peer);
    let result = store.commit(Txn::new().delete(path(&dir()), Expect::Any)).await;
    let refused = result.expect("the peer answers").rejected().map(|no| no.reason);
    assert_eq!(refused, Some(RejectReason::HasChildren));
}

/// Each level takes a good part of the time in which nothing new may be read, and all together take
/// more.
pub(crate) async fn a_large_tree_may_take_long_as_long_as_more_of_it_is_read() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    fill(&peer);
    let grandchild = format!("{}/below", child(7));
    let _at = peer.change(|world| world.write(&[make(&grandchild)])).expect("it has a parent");
    peer.when(Rule::new(Deed::Hold(LONG.mul_f32(0.2))).op(op::MULTI_READ).times(3));

    let view = read(&*store, Query::subtree(path(&dir()))).await;

    assert_eq!(view.nodes.len(), NODES + 2);
}

/// Nodes that do not fit into one answer are read in smaller parts; a node that is too large by
/// itself is refused.
pub(crate) async fn what_is_too_much_for_an_answer_is_read_in_parts() {
    const MAX_ANSWER: usize = 1 << 16;

    let peer = peer(1);
    let backend = ZkBackend::new(peer.options().max_answer(MAX_ANSWER)).expect("valid");
    let store = backend.open(&SessionOptions::new(LONG)).await.expect("the peer runs");
    let large = "x".repeat(MAX_ANSWER / 4);
    let all: Vec<Request> = ["/large", "/large/a", "/large/b", "/large/c", "/large/d", "/large/e"]
        .iter()
        .flat_map(|at| [make(at), set(at, &large)])
        .collect();
    let _at = peer.change(|world| world.write(&all)).expect("nothing is against it");

    let children = Query::children(path("/large"));
    for (query, nodes) in [(Query::subtree(path("/large")), 6), (children, 5)] {
        let view = read(&*store, query).await;
        assert_eq!(view.nodes.len(), nodes);
        assert!(view.nodes.iter().all(|node| node.data.len() == large.len()));
    }

    let several = Query::nodes(path("/large"), ["/large/a", "/large/b", "/large/c"].map(path));
    let result = timeout(PATIENCE, store.read(several)).await.expect("in time");
    assert_eq!(result.expect_err("it is too long").kind(), ErrorKind::TooLarge);
    assert!(!store.status().borrow().is_lost());
}

/// All nodes are written before each part of the answer, so no two parts are of one moment.
pub(crate) async fn what_never_rests_is_not_read_for_ever() {
    let peer = peer(1);
    let store = open(&peer, TTL).await;
    fill(&peer);
    let all = (0..NODES).map(|number| set(&child(number), "again")).collect();
    peer.when(Rule::new(Deed::Meanwhile(all)).op(op::MULTI_READ).times(usize::MAX));

    let result = timeout(PATIENCE, store.read(Query::subtree(path(&dir())))).await;

    let error = result.expect("it ends").expect_err("there is no moment");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}
