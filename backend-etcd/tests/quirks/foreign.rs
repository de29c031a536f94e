//! Keys of other programs in the same cluster.

use std::process::Stdio;
use std::time::Duration;

use etcd_client::PutOptions;
use synod_core::store::{Expect, Lifetime, Outcome, Query, RejectReason, Sequence, SessionId, Txn};

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
    let (_view, mut watch) = ann.watch(Query::subtree(path("/d"))).await.expect("answered");
    for key in KEYS {
        raw.put(*key, "theirs", None).await.expect("answered");
    }
    create(&*ann, "/d/n", Lifetime::Persistent).await;

    hears_of(&mut watch, "/d/n").await;
    for query in [
        Query::children(path("/d")),
        Query::children(path("/d")).names_only(),
        Query::children(path("/d")).newest(100),
        Query::children(path("/d")).oldest(100).names_only(),
        Query::children(path("/d")).local(),
        Query::subtree(path("/d")),
        Query::subtree(path("/d")).names_only().local(),
    ] {
        let view = ann.read(query).await.expect("answered");
        let found: Vec<_> = view.nodes.iter().map(|node| node.path.as_str()).collect();
        assert_eq!(found, ["/d/n"]);
    }
    let whole = ann.read(Query::subtree(path("/"))).await.expect("answered");
    assert!(whole.nodes.iter().all(|node| node.path.as_str().starts_with("/d")), "{whole:?}");
    for nobody in ["/", "/d", "/d/a", "/loose"] {
        let view = ann.read(Query::node(path(nobody))).await.expect("answered");
        assert!(view.node().is_none(), "{nobody} is no node: {view:?}");
    }
    // The foreign key only prevents nodes above it.
    for step in [
        Txn::new().set(path("/d/n"), "y", Expect::Any).look(Query::children(path("/d"))),
        Txn::new().create(path("/d/a/n"), "", Lifetime::Session),
        Txn::new().create_sequential(path("/d/t-"), "", Lifetime::Session),
        Txn::new().delete(path("/d/n"), Expect::Any),
    ] {
        ann.commit(step).await.expect("answered").required().expect("nothing is in the way");
    }
    for key in KEYS {
        assert_eq!(raw.get(*key, None).await.expect("answered").kvs()[0].value(), b"theirs");
    }
}

pub(crate) async fn what_others_keep_is_in_the_way_of_a_delete() {
    let world = World::alone();
    let (ann, mut raw) = (world.session(Duration::from_secs(5)).await, world.raw().await);
    create(&*ann, "/d", Lifetime::Persistent).await;
    raw.put("/d//\u{1}", "theirs", None).await.expect("answered");

    let outcome = ann.commit(Txn::new().delete(path("/d"), Expect::Any)).await.expect("answered");

    let Outcome::Rejected(no) = outcome else { panic!("it was deleted") };
    assert_eq!(no.reason, RejectReason::HasChildren);
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
    assert_eq!(outcome.rejected().map(|no| no.reason), Some(RejectReason::BelowEphemeral));
}

pub(crate) async fn etcdctl_shows_a_tree_that_a_person_can_read() {
    let world = World::alone();
    let ann = world.session(Duration::from_secs(5)).await;
    let nodes =
        [("/app", "1"), ("/app/config", "2"), ("/app/locks/db/ann", "3"), ("/app/locks/é", "4")];
    for (node, data) in nodes {
        let txn = Txn::new().create(path(node), data, Lifetime::Persistent);
        ann.commit(txn).await.expect("answered").required().expect("free");
    }
    let etcdctl = |arguments: &[&str]| {
        let said = world.cluster.etcdctl().args(arguments).output();
        let said = said.expect("etcdctl is installed with etcd");
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).expect("text")
    };

    // The last slash of each path is doubled, and there are no other keys.
    let all = "//app\n1\n/app//config\n2\n/app/locks//é\n4\n/app/locks/db//ann\n3\n";
    assert_eq!(etcdctl(&["get", "--prefix", "/"]), all);
    assert_eq!(etcdctl(&["get", "--prefix", ""]), all);
    let below = "/app/locks//é\n/app/locks/db//ann\n\n";
    let told = etcdctl(&["get", "--prefix", "--keys-only", "/app/locks/"]);
    assert_eq!(told.replace("\n\n", "\n"), below.replace("\n\n", "\n"));

    // A value that is written there by hand is read as the node's data.
    etcdctl(&["put", "/app//config", "by hand"]);
    etcdctl(&["put", "/app//new", "by hand"]);
    for node in ["/app/config", "/app/new"] {
        let view = ann.read(Query::node(path(node))).await.expect("answered");
        assert_eq!(view.node().map(|node| &node.data[..]), Some(&b"by hand"[..]));
    }
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
    let _locked = Process(locked.expect("etcdctl is installed with etcd"));

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
