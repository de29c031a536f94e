//! Watches on a broken stream.

use std::time::Duration;

use bytes::Bytes;
use synod_conformance::harness::Link;
use synod_core::store::{Event, Expect, Kind, Lifetime, Query, Txn};
use synod_servers::pipe::Pipe;
use tokio::time::sleep;

use crate::world::{World, create, eventually, hears_of, next, path, through};

/// A server number that no pipe has: a pipe limited to it accepts no connection.
const NOBODY: Option<usize> = Some(usize::MAX);

/// Cuts the link until the stream is given up, and runs `work` meanwhile.
async fn while_cut(pipe: &Pipe, ttl: Duration, work: impl Future<Output = ()>) {
    pipe.set(Link::Cut);
    work.await;
    // A third of the time to live without a message makes the backend check the stream; after
    // another third it gives the stream up.
    sleep(ttl * 3 / 4).await;
    pipe.set(Link::Open);
}

pub(crate) async fn a_compacted_history_is_reported_as_a_resync() {
    let world = World::alone();
    let ttl = Duration::from_secs(6);
    let (bob, mut raw) = (world.session(ttl).await, world.raw().await);
    let (pipe, ann) = through(&world, ttl).await;
    let (_view, mut watch) = ann.watch(Query::children(path("/d"))).await.expect("answered");

    while_cut(&pipe, ttl, async {
        for number in 0..10 {
            create(&*bob, &format!("/d/n{number}"), Lifetime::Persistent).await;
        }
        let now = raw.get("x", None).await.expect("answered");
        let revision = now.header().expect("always there").revision();
        raw.compact(revision, None).await.expect("compacted");
    })
    .await;

    assert!(matches!(next(&mut watch).await, Event::Resync));
    let view = ann.read(Query::children(path("/d")).local()).await.expect("answered");
    assert_eq!(view.nodes.len(), 10, "what was missed is there to be read");
    create(&*bob, "/d/last", Lifetime::Persistent).await;
    hears_of(&mut watch, "/d/last").await;
}

/// Servers before 3.4.34 and 3.5.16 lose a delete that is the very first event, if all earlier
/// revisions are compacted: etcd-io/etcd#18089.
pub(crate) async fn a_delete_right_after_the_compacted_revision_is_reported() {
    let world = World::alone();
    let ttl = Duration::from_secs(6);
    let (bob, mut raw) = (world.session(ttl).await, world.raw().await);
    let (pipe, ann) = through(&world, ttl).await;
    let (_view, mut watch) = ann.watch(Query::children(path("/d"))).await.expect("answered");
    create(&*bob, "/d/n", Lifetime::Persistent).await;
    hears_of(&mut watch, "/d/n").await;

    while_cut(&pipe, ttl, async {
        let deleting = Txn::new().delete(path("/d/n"), Expect::Any);
        bob.commit(deleting).await.expect("answered").required().expect("it is there");
        let now = raw.get("x", None).await.expect("answered");
        let revision = now.header().expect("always there").revision();
        raw.compact(revision, None).await.expect("compacted");
    })
    .await;

    match next(&mut watch).await {
        Event::Resync => {}
        Event::Changed(change) => assert_eq!(change.kind, Kind::Deleted),
        Event::Ended(end) => panic!("{end:?}"),
    }
}

pub(crate) async fn a_watch_goes_on_where_it_broke_off() {
    let world = World::alone();
    let ttl = Duration::from_secs(6);
    let bob = world.session(ttl).await;
    let (pipe, ann) = through(&world, ttl).await;
    let (_view, mut watch) = ann.watch(Query::children(path("/d"))).await.expect("answered");
    create(&*bob, "/d/before", Lifetime::Persistent).await;

    while_cut(&pipe, ttl, async {
        for number in 0..10 {
            create(&*bob, &format!("/d/n{number}"), Lifetime::Persistent).await;
        }
    })
    .await;
    create(&*bob, "/d/last", Lifetime::Persistent).await;

    let mut told = Vec::new();
    while told.last().is_none_or(|last| last != "/d/last") {
        let Event::Changed(change) = next(&mut watch).await else { panic!("nothing was missed") };
        assert_eq!(change.kind, Kind::Created);
        told.push(change.path.to_string());
    }
    let all: Vec<String> = ["before".to_owned()]
        .into_iter()
        .chain((0..10).map(|number| format!("n{number}")))
        .chain(["last".to_owned()])
        .map(|name| format!("/d/{name}"))
        .collect();
    assert_eq!(told, all, "each once, in order");
}

pub(crate) async fn what_was_missed_may_be_larger_than_a_message() {
    const NODES: usize = 90;
    let world = World::alone();
    let ttl = Duration::from_secs(30);
    let bob = world.session(ttl).await;
    let (pipe, ann) = through(&world, ttl).await;
    let (_view, mut watch) = ann.watch(Query::children(path("/d"))).await.expect("answered");

    // 81 million bytes: the server would send them in one message.
    let data = Bytes::from(vec![7; 900_000]);
    pipe.only(NOBODY);
    for number in 0..NODES {
        let node = path(&format!("/d/n{number}"));
        let txn = Txn::new().create(node, data.clone(), Lifetime::Persistent);
        bob.commit(txn).await.expect("answered").required().expect("free");
    }
    pipe.only(None);

    for number in 0..NODES {
        let Event::Changed(change) = next(&mut watch).await else { panic!("nothing was missed") };
        assert_eq!(change.path, path(&format!("/d/n{number}")));
        assert_eq!(change.node.map(|node| node.data.len()), Some(data.len()));
    }
}

pub(crate) async fn watches_without_a_reader_are_cancelled() {
    let world = World::alone();
    let ttl = Duration::from_secs(5);
    let (ann, bob) = (world.session(ttl).await, world.session(ttl).await);
    let mut watches = Vec::new();
    for number in 0..300 {
        let query = Query::subtree(path(&format!("/d/n{number}")));
        watches.push(ann.watch(query).await.expect("answered").1);
    }
    let (_view, _kept) = bob.watch(Query::node(path("/n"))).await.expect("answered");
    assert_eq!(world.cluster.watches(), 601);

    watches.truncate(100);
    eventually("dropped watches are gone", async || world.cluster.watches() == 201).await;
    ann.close().await.expect("closed");
    eventually("those of a closed session, too", async || world.cluster.watches() == 1).await;
    drop((ann, watches));
}

pub(crate) async fn a_session_has_one_stream_and_no_watch_twice() {
    let world = World::alone();
    let ttl = Duration::from_secs(20);
    let (ann, bob) = (world.session(ttl).await, world.session(ttl).await);
    let mut watches = Vec::new();
    for query in [
        Query::children(path("/d")),
        Query::children(path("/d")).names_only(),
        Query::children(path("/d")).newest(3),
        Query::node(path("/n")),
        Query::node(path("/n")),
    ] {
        watches.push(ann.watch(query).await.expect("answered").1);
    }
    assert_eq!((world.cluster.watches(), world.cluster.watch_streams()), (2, 1));

    create(&*bob, "/d/n", Lifetime::Persistent).await;
    for watch in &mut watches[..3] {
        hears_of(watch, "/d/n").await;
    }
    watches.drain(..2);
    create(&*bob, "/d/m", Lifetime::Persistent).await;
    hears_of(&mut watches[0], "/d/m").await;
    watches.clear();
    eventually("none is left", async || world.cluster.watches() == 0).await;
}
