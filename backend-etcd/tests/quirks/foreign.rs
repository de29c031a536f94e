//! What other programs keep in the same cluster.

use std::process::Stdio;
use std::time::Duration;

use etcd_client::PutOptions;
use synod_core::store::{Expect, Lifetime, Outcome, Query, Sequence, SessionId, Txn, Why};

use crate::world::{World, create, eventually, hears_of, path};

const KEYS: &[&[u8]] = &[
    b"/d",
    b"/d/loose",
    b"/d//a/b",
    b"/d//",
    b"/d///x",
    b"/d//\xff\xfe",
    b"/d//.",
    b"loose",
    b"/",
    b"//",
    b"/d/a//",
    b"/d//a\nb",
];

pub(crate) async fn what_others_keep_is_left_alone() {
    let world = World::alone();
    let (ann, mut raw) = (world.session(Duration::from_secs(5)).await, world.raw().await);
    let (_view, mut watch) = ann.observe(Query::subtree(path("/d"))).await.expect("answered");
    for key in KEYS {
        raw.put(*key, "theirs", None).await.expect("answered");
    }
    create(&*ann, "/d/n", Lifetime::Persistent).await;

    hears_of(&mut watch, "/d/n").await;
    for query in [
        Query::children(path("/d")),
        Query::children(path("/d")).names_only(),
        Query::children(path("/d")).newest(100),
        Query::subtree(path("/d")),
    ] {
        let view = ann.read(query).await.expect("answered");
        let found: Vec<_> = view.nodes.iter().map(|node| node.path.as_str()).collect();
        assert_eq!(found, ["/d/n"]);
    }
    assert_eq!(raw.get("/d/loose", None).await.expect("answered").kvs().len(), 1);
}

pub(crate) async fn what_others_keep_is_in_the_way_of_a_delete() {
    let world = World::alone();
    let (ann, mut raw) = (world.session(Duration::from_secs(5)).await, world.raw().await);
    create(&*ann, "/d", Lifetime::Persistent).await;
    raw.put("/d//\u{1}", "theirs", None).await.expect("answered");

    let outcome = ann.commit(Txn::new().delete(path("/d"), Expect::Any)).await.expect("answered");

    let Outcome::Rejected(no) = outcome else { panic!("it was deleted") };
    assert_eq!(no.why, Why::HasChildren);
}

pub(crate) async fn a_lease_of_others_is_an_owner() {
    let world = World::alone();
    let (ann, mut raw) = (world.session(Duration::from_secs(5)).await, world.raw().await);
    let lease = raw.lease_grant(60, None).await.expect("granted").id();
    let leased = PutOptions::new().with_lease(lease);
    raw.put("/d//theirs", "x", Some(leased)).await.expect("answered");

    let view = ann.read(Query::node(path("/d/theirs"))).await.expect("answered");
    let owner = view.node().and_then(|node| node.stat).and_then(|stat| stat.owner);
    assert_eq!(owner.map(SessionId::get), u64::try_from(lease).ok());
    let below = Txn::new().create(path("/d/theirs/x"), "", Lifetime::Persistent);
    let outcome = ann.commit(below).await.expect("answered");
    assert_eq!(outcome.rejected().map(|no| no.why), Some(Why::BelowEphemeral));
}

/// A process that is ended when this is dropped.
struct Process(std::process::Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait()).is_ok();
    }
}

pub(crate) async fn a_lock_of_etcdctl_is_a_child_with_an_owner() {
    let world = World::alone();
    let ann = world.session(Duration::from_secs(5)).await;
    let mut etcdctl = world.cluster.etcdctl();
    etcdctl.args(["lock", "/locks/db/"]);
    let locked = etcdctl.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _locked = Process(locked.expect("etcdctl is installed beside etcd"));

    let mut nodes = Vec::new();
    eventually("the lock is there", async || {
        let view = ann.read(Query::children(path("/locks/db")).newest(1)).await;
        nodes = view.expect("answered").nodes;
        !nodes.is_empty()
    })
    .await;

    let stat = nodes[0].stat.expect("a key has one");
    let owner = stat.owner.expect("its lease");
    assert_eq!(nodes[0].path.name(), owner.to_string(), "etcdctl names it after its lease");
    assert_eq!(nodes[0].sequence.map(Sequence::get), Some(stat.created.get()));
}
