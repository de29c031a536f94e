//! Listings of many pages.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;
use synod_core::error::{Effect, ErrorKind, Result};
use synod_core::store::{Query, View};
use tonic::Code;

use crate::peer::Peer;
use crate::peer::refusal::Refusal;
use crate::peer::script::{Act, Kind, Rule};
use crate::world::{create, done, kept, key, path, session};

/// So many and so large that they are not read in a few pages.
const NODES: usize = 30_000;
const DATA: &[u8] = &[b'x'; 2_000];

/// A cluster with nodes in directories of this size, which are below `/many`.
fn populated(directory: usize) -> Peer {
    let peer = Peer::new(1);
    for dir in 0..NODES / directory {
        populate(&peer, &format!("/many/d{dir:05}"), directory);
    }
    peer
}

/// Writes this number of nodes into a directory at once.
fn populate(peer: &Peer, dir: &str, nodes: usize) {
    populate_with(peer, &format!("{dir}/n"), nodes, DATA);
}

/// Writes this number of nodes with this path prefix at once.
fn populate_with(peer: &Peer, start: &str, nodes: usize, data: &'static [u8]) {
    let mut state = peer.shared.state();
    let mut batch = state.keys.write();
    for node in 0..nodes {
        batch.put(&key(&path(&format!("{start}{node:05}"))), Bytes::from_static(data), 0);
    }
    batch.commit();
}

#[tokio::test(start_paused = true)]
async fn the_server_goes_through_each_key_a_few_times_only() {
    for directory in [1, 100, NODES] {
        let peer = populated(directory);
        let ann = session(&peer).await;
        let before = peer.met(Kind::Range);
        let view = ann.read(Query::subtree(path("/many"))).await.expect("it is answered");

        let nodes = view.nodes.iter().filter(|node| node.stat.is_some()).count();
        assert_eq!(nodes, NODES);
        let (passed, requests) = (peer.shared.state().passed, peer.met(Kind::Range) - before);
        assert!(
            usize::try_from(passed).is_ok_and(|passed| passed <= 6 * NODES),
            "{passed} keys, in directories of {directory}"
        );
        assert!(requests <= 40, "{requests} requests, in directories of {directory}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_is_read_in_parts_and_after_another_error_no_more_is_read() {
    const FEW: usize = 1_000;
    let too_large =
        || Refusal::new(Code::ResourceExhausted, "trying to send message larger than max");
    let denied = || Refusal::etcd(Code::PermissionDenied, "permission denied");
    let peer = Peer::new(1);
    populate(&peer, "/few", FEW);
    let ann = session(&peer).await;
    // The first page, and the next one.
    for kind in [Kind::Txn, Kind::Range] {
        peer.script(Rule::on(kind, Act::Refuse(too_large())));
        let view = ann.read(Query::subtree(path("/few"))).await.expect("it is answered");
        let nodes = view.nodes.iter().filter(|node| node.stat.is_some()).count();
        assert_eq!(nodes, FEW, "{kind:?}");

        peer.script(Rule::on(kind, Act::Refuse(denied())).always());
        let before = peer.met(kind);
        let error = ann.read(Query::subtree(path("/few"))).await.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Denied, "{kind:?}: {error}");
        assert_eq!(peer.met(kind) - before, 1, "{kind:?}: it went on");
        peer.shared.script().clear();
    }

    // A view read after a write names the nodes that it could not read.
    peer.script(Rule::on(Kind::Txn, Act::Refuse(denied())).behind(1).always());
    peer.script(Rule::on(Kind::Range, Act::Refuse(denied())).always());
    let looks = create("/few/new").look(Query::children(path("/few")));
    let error = ann.commit(looks).await.expect_err("the rest is refused");
    assert_eq!((error.path(), error.effect()), (Some(&path("/few")), Effect::Unknown));
    assert!(kept(&peer, "/few/new").is_some(), "it was written");
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_however_little_is_asked_for_is_an_error_soon() {
    let peer = Peer::new(1);
    populate(&peer, "/few", 1_000);
    let ann = session(&peer).await;
    let too_large =
        || Refusal::new(Code::ResourceExhausted, "trying to send message larger than max");
    // The first page, which requests up to 4,096 keys, and the next one, of 256: a sixteenth each
    // time, down to one key.
    for (kind, requests) in [(Kind::Txn, 4), (Kind::Range, 3)] {
        peer.script(Rule::on(kind, Act::Refuse(too_large())).always());
        let before = peer.met(kind);
        let error = ann.read(Query::subtree(path("/few"))).await.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{kind:?}: {error}");
        assert_eq!(peer.met(kind) - before, requests, "{kind:?}");
        peer.shared.script().clear();
    }
}

/// A page is as many keys as should fit, by the sizes of those before: here these are far too many.
#[tokio::test(start_paused = true)]
async fn nodes_that_are_larger_than_those_before_are_read_in_smaller_pages() {
    const LARGE: &[u8] = &[b'x'; 1_000_000];
    const NODES: usize = 220;

    let peer = Peer::new(1);
    populate(&peer, "/small", 64);
    populate_with(&peer, "/small/z", NODES, LARGE);
    let ann = session(&peer).await;

    let view = ann.read(Query::subtree(path("/small"))).await.expect("it is answered");

    assert_eq!(view.nodes.iter().filter(|node| node.stat.is_some()).count(), 64 + NODES);
    // Once too many, then fewer, and then again as many as fit into a page: about four.
    let requests = peer.met(Kind::Range);
    assert!(requests <= NODES / 3, "{requests} requests");
}

/// The result of a listing that meets a compaction behind the first page of so many of its
/// attempts.
async fn listed(compactions: usize) -> Result<View> {
    let peer = populated(NODES);
    let ann = session(&peer).await;
    for _ in 0..compactions {
        peer.script(Rule::on(Kind::Range, Act::Refuse(Refusal::compacted())).behind(1));
    }
    ann.read(Query::children(path("/many/d00000"))).await
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_is_slower_than_compactions_is_begun_again_a_few_times() {
    let view = listed(3).await.expect("the fourth attempt is in time");
    assert_eq!(view.nodes.len(), NODES);
    let error = listed(100).await.expect_err("no attempt is in time");
    assert_eq!(error.effect(), Effect::None, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_write_at_the_start_of_an_observation_repeats_one_page() {
    let peer = populated(100);
    let (ann, bob) = (session(&peer).await, session(&peer).await);
    let _view = ann.read(Query::subtree(path("/many"))).await.expect("it is answered");
    let alone = peer.met(Kind::Range);
    peer.shared.script().add(Rule::on(Kind::Create, Act::Late(Duration::from_secs(1))));

    let observing = ann.watch(Query::subtree(path("/many")));
    let written = async { done(&*bob, create("/many/d00000/new")).await };
    let (observed, ()) = join(observing, written).await;

    let (view, _watch) = observed.expect("it is answered");
    assert!(view.nodes.iter().any(|node| node.path == path("/many/d00000/new")));
    assert!(peer.shared.script().played > 0, "the watch was late");
    let asked = peer.met(Kind::Range) - alone;
    assert!(asked <= alone + 2, "{asked} requests, where a read alone takes {alone}");
}
