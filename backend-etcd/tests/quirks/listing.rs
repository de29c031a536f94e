//! Listings that are larger than one answer, and paths that are deeper than one transaction allows.

use std::time::Duration;

use bytes::Bytes;
use etcd_client::{Txn as Request, TxnOp};
use futures_util::future::join;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime, Query, Txn};

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
    assert!(!error.is_ambiguous());
    assert!(exists(&*ann, &deep(100)).await);
}
