//! Listings that are larger than one answer, and paths that are deeper than one transaction allows.

use std::time::Duration;

use bytes::Bytes;
use etcd_client::{Client as RawClient, Txn as Request, TxnOp};
use futures_util::future::{join, try_join_all};
use synod_core::client::{Client, ClientOptions};
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime, Query, SessionOptions, Txn};
use synod_etcd::EtcdBackend;
use synod_recipes::cache::{Cache, Extent};
use synod_testkit::limit::waits_for;

use crate::world::{World, create, exists, path};

/// Three pages.
const CROWD: usize = 9_000;

pub(crate) async fn a_crowded_directory_is_of_one_moment() {
    let world = World::alone();
    let (ann, bob) = (
        world.session(Duration::from_secs(20)).await,
        world.session(Duration::from_secs(20)).await,
    );
    let mut raw = world.raw().await;
    let keys: Vec<String> = (0..CROWD).map(|number| format!("/d//n{number:05}")).collect();
    for keys in keys.chunks(128) {
        let puts: Vec<TxnOp> = keys.iter().map(|key| TxnOp::put(key.as_str(), "x", None)).collect();
        raw.txn(Request::new().and_then(puts)).await.expect("answered");
    }

    // One of the first and the last node exists at any time; they alternate.
    create(&*ann, "/d/a", Lifetime::Persistent).await;
    let moving = async {
        for round in 0..60 {
            let (from, to) = if round % 2 == 0 { ("/d/a", "/d/z") } else { ("/d/z", "/d/a") };
            let txn = Txn::new().delete(path(from), Expect::Any);
            let txn = txn.create(path(to), "", Lifetime::Persistent);
            ann.commit(txn)
                .await
                .expect("answered")
                .required()
                .expect("no other session creates it");
        }
    };
    let listing = async {
        for query in [
            Query::children(path("/d")),
            Query::children(path("/d")).names_only(),
            Query::subtree(path("/d")).local(),
        ] {
            let view = bob.read(query).await.expect("answered");
            assert_eq!(view.nodes.len(), CROWD + 1);
        }
    };
    join(moving, listing).await;
}

/// Puts nodes into directories of a thousand below `/large`.
async fn populate(raw: &RawClient, nodes: usize) {
    /// As many as a request may have.
    const TOGETHER: usize = 128;
    const AT_ONCE: usize = 8;

    let put =
        |node: usize| TxnOp::put(format!("/large/d{:04}//n{node:07}", node / 1_000), "x", None);
    let firsts: Vec<usize> = (0..nodes).step_by(TOGETHER).collect();
    for some in firsts.chunks(AT_ONCE) {
        waits_for(format_args!("the nodes from {} on", some[0]));
        let written = some.iter().map(|&first| {
            let puts: Vec<TxnOp> = (first..(first + TOGETHER).min(nodes)).map(put).collect();
            let mut kv = raw.kv_client();
            async move { kv.txn(Request::new().and_then(puts)).await }
        });
        let _all = try_join_all(written).await.expect("answered");
    }
}

/// `SYNOD_NODES=1000000` tries it with a million.
pub(crate) async fn a_large_tree_is_cached_by_some_requests() {
    let nodes = std::env::var("SYNOD_NODES").map(|nodes| nodes.parse().expect("a number"));
    let nodes = nodes.unwrap_or(30_000);
    let world = World::alone();
    populate(&world.raw().await, nodes).await;
    let options = ClientOptions::default().session(SessionOptions::new(Duration::from_secs(60)));
    let backend = EtcdBackend::new(world.options()).expect("valid");
    let client = Client::open(backend, options).await.expect("a server runs");
    let before = world.cluster.requests();

    waits_for("the cache");
    let cache = Cache::start(&client, Extent::subtree(path("/large")));
    let mut progress = cache.progress();
    let mut reported = Vec::new();
    while progress.changed().await.is_ok() {
        let seen = *progress.borrow_and_update();
        reported.push(seen.read);
        assert!(seen.found >= nodes, "the first answer says how many there are: {seen:?}");
        if seen.read >= nodes {
            break;
        }
    }
    cache.complete().await.expect("answered");

    assert!(reported.is_sorted() && reported.len() > 2, "{reported:?}");
    assert_eq!(cache.snapshot().len(), nodes);
    // Some small pages at first, then pages of up to 65,536 nodes, and further requests for a wrong
    // estimate of their ends.
    let asked = world.cluster.requests() - before;
    assert!(asked <= 30 + nodes as u64 / 20_000, "{asked} requests");
}

pub(crate) async fn large_nodes_are_listed_in_pieces() {
    const NODES: usize = 80;
    let world = World::alone();
    let ann = world.session(Duration::from_secs(30)).await;
    let data = Bytes::from(vec![7; 900_000]);
    for number in 0..NODES {
        let at = path(&format!("/d/n{number:02}"));
        let txn = Txn::new().create(at, data.clone(), Lifetime::Persistent);
        ann.commit(txn).await.expect("answered").required().expect("free");
    }

    let view = ann.read(Query::children(path("/d"))).await.expect("answered");

    assert_eq!(view.nodes.len(), NODES);
    assert!(view.nodes.iter().all(|node| node.data.len() == data.len()));
    let looking = Txn::new().check(path("/d/n00"), Expect::Any).look(Query::subtree(path("/d")));
    let commit = ann.commit(looking).await.expect("answered").required().expect("it exists");
    assert_eq!(commit.look.expect("it was asked for").nodes.len(), NODES);
}

pub(crate) async fn a_path_too_deep_for_etcd_is_refused() {
    let world = World::alone();
    let ann = world.session(Duration::from_secs(5)).await;
    let deep = |levels: usize| format!("/{}", vec!["d"; levels].join("/"));
    create(&*ann, &deep(100), Lifetime::Persistent).await;

    let txn = Txn::new().create(path(&deep(200)), "", Lifetime::Persistent);
    let error = ann.commit(txn).await.expect_err("it has 199 ancestors");

    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(!error.has_unknown_effect());
    assert!(exists(&*ann, &deep(100)).await);
}
