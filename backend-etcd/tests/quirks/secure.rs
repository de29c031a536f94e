//! Users, tokens and certificates.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Permission, PermissionType};
use futures_util::future::join_all;
use synod_core::error::{Error, ErrorKind};
use synod_core::store::{
    Backend as _, End, Event, Expect, Lifetime, Query, SessionEnd, SessionOptions, Status, Txn,
};
use synod_etcd::{EtcdBackend, Tls};
use synod_servers::etcd::Flavour;
use tokio::time::sleep;

use crate::certificates::{Certificates, signed_tokens};
use crate::world::{World, create, eventually, exists, hears_of, next, open, path, through};

/// A server with the users `root` and `ann`, which may do everything below `/app`.
pub(crate) async fn guarded(token_seconds: u32) -> World {
    let mut flavour = Flavour::default();
    let seconds = token_seconds.to_string();
    flavour.arguments = ["--auth-token-ttl", &seconds].map(str::to_owned).to_vec();
    guarded_by(1, flavour).await
}

/// The same, with this number of servers, and with the tokens of this flavour.
async fn guarded_by(size: usize, mut flavour: Flavour) -> World {
    flavour.arguments.extend(["--bcrypt-cost", "4"].map(str::to_owned));
    let world = World::new(size, &flavour);
    let mut raw = world.raw().await;
    raw.user_add("root", ROOT, None).await.expect("added");
    raw.user_grant_role("root", "root").await.expect("granted");
    raw.user_add("ann", ANN, None).await.expect("added");
    raw.role_add("app").await.expect("added");
    for permission in [readwrite("/app/").with_prefix(), readwrite("//app")] {
        raw.role_grant_permission("app", permission).await.expect("granted");
    }
    raw.user_grant_role("ann", "app").await.expect("granted");
    raw.auth_enable().await.expect("enabled");
    world
}

fn readwrite(key: &str) -> Permission {
    Permission::new(PermissionType::Readwrite, key)
}

const ROOT: &str = "canary-root";
const ANN: &str = "canary-ann";

/// A new client of the first server with all rights: the token of an earlier client may be too old.
async fn root(world: &World) -> Client {
    let root = ConnectOptions::new().with_user("root", ROOT);
    Client::connect(&world.hosts()[..1], Some(root)).await.expect("permitted")
}

fn denied<T>(result: Result<T, Error>) {
    let error = result.err().expect("it is not permitted");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!error.has_unknown_effect());
    let shown = format!("{error} {error:?} {error:#?}");
    assert!(!shown.contains("canary"), "{shown}");
}

pub(crate) async fn a_client_without_permission_is_denied() {
    let world = guarded(300).await;
    denied(open(world.options().user("ann", "canary-wrong")).await);
    denied(open(world.options().user("eve", "canary-eve")).await);

    let ann = open(world.options().user("ann", "canary-ann")).await.expect("permitted");
    create(&*ann, "/app/n", Lifetime::Session).await;
    assert!(exists(&*ann, "/app/n").await);
    denied(ann.read(Query::node(path("/other"))).await);
    denied(ann.read(Query::children(path("/other"))).await);
    denied(ann.watch(Query::node(path("/other"))).await);
    denied(ann.commit(Txn::new().create(path("/other"), "", Lifetime::Persistent)).await);
    assert!(!ann.status().borrow().is_lost());

    // A client without a user may not even read.
    let nobody = open(world.options()).await;
    match nobody {
        Ok(nobody) => denied(nobody.read(Query::node(path("/app/n"))).await),
        Err(error) => denied::<()>(Err(error)),
    }
}

/// The roles are those of `docs/access.md`.
pub(crate) async fn a_role_for_a_directory_permits_no_other_node() {
    let world = guarded(300).await;
    let mut root = root(&world).await;
    root.put("//apple", "of others", None).await.expect("permitted");
    root.put("/team//apple", "of others", None).await.expect("permitted");
    root.user_add("bob", "canary-bob", None).await.expect("added");
    root.role_add("team").await.expect("added");
    let read = Permission::new(PermissionType::Read, "//team");
    for permission in [readwrite("/team/app/").with_prefix(), readwrite("/team//app"), read] {
        root.role_grant_permission("team", permission).await.expect("granted");
    }
    root.user_grant_role("bob", "team").await.expect("granted");

    let ann = open(world.options().user("ann", ANN)).await.expect("permitted");
    let bob = open(world.options().user("bob", "canary-bob")).await.expect("permitted");
    for (store, app, others) in [(ann, "/app", "/apple"), (bob, "/team/app", "/team/apple")] {
        create(&*store, app, Lifetime::Persistent).await;
        let node = format!("{app}/deep/er");
        create(&*store, &node, Lifetime::Session).await;
        let set = Txn::new().set(path(&node), "y", Expect::Any);
        store.commit(set).await.expect("permitted").required().expect("it is there");
        let (view, mut watch) = store.watch(Query::subtree(path(app))).await.expect("permitted");
        assert!(view.nodes.iter().any(|found| found.path == path(&node)), "{view:?}");
        let delete = Txn::new().delete(path(&node), Expect::Any);
        store.commit(delete).await.expect("permitted").required().expect("it is there");
        hears_of(&mut watch, &node).await;

        denied(store.read(Query::node(path(others))).await);
        denied(store.watch(Query::node(path(others))).await);
        denied(store.commit(Txn::new().set(path(others), "", Expect::Any)).await);
        let beside = format!("{others}s");
        denied(store.commit(Txn::new().create(path(&beside), "", Lifetime::Persistent)).await);
    }
}

/// Before 3.5.30 keep-alives need no user, so that the session goes on.
pub(crate) async fn a_watch_without_a_user_ends_when_one_is_required() {
    let world = World::new(1, &Flavour::default());
    let (pipe, nobody) = through(&world, Duration::from_secs(6)).await;
    let (_view, mut watch) = nobody.watch(Query::node(path("/n"))).await.expect("answered");
    let mut raw = world.raw().await;
    raw.user_add("root", ROOT, None).await.expect("added");
    raw.user_grant_role("root", "root").await.expect("granted");
    raw.auth_enable().await.expect("enabled");

    // The stream breaks.
    pipe.only(Some(usize::MAX));
    eventually("the stream is gone", async || world.cluster.watch_streams() == 0).await;
    pipe.only(None);

    match next(&mut watch).await {
        Event::Ended(End::Failed(error)) => assert_eq!(error.kind(), ErrorKind::Denied, "{error}"),
        Event::Ended(End::SessionOver(SessionEnd::Denied)) => {}
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn a_token_that_ran_out_is_renewed() {
    let world = guarded(1).await;
    let ann = open(world.options().user("ann", "canary-ann")).await.expect("permitted");
    create(&*ann, "/app/n", Lifetime::Persistent).await;
    let (_view, mut old) = ann.watch(Query::children(path("/app"))).await.expect("permitted");

    sleep(Duration::from_secs(3)).await;

    create(&*ann, "/app/m", Lifetime::Session).await;
    hears_of(&mut old, "/app/m").await;
    sleep(Duration::from_secs(3)).await;
    let (_view, mut new) = ann.watch(Query::node(path("/app/x"))).await.expect("permitted");
    create(&*ann, "/app/x", Lifetime::Session).await;
    hears_of(&mut new, "/app/x").await;
    hears_of(&mut old, "/app/x").await;
    assert!(!ann.status().borrow().is_lost());
    let root = ConnectOptions::new().with_user("root", "canary-root");
    Client::connect(world.hosts(), Some(root)).await.expect("permitted");
}

/// Whatever changes in users and roles, a session of `ann` continues to work: reads, writes, old
/// watches and new ones.
async fn works_while_users_change(world: World) {
    let ann = open(world.options().user("ann", ANN)).await.expect("permitted");
    create(&*ann, "/app/e", Lifetime::Session).await;
    let (_view, mut old) = ann.watch(Query::children(path("/app"))).await.expect("permitted");
    for round in 0..4 {
        let user = format!("user-{round}");
        root(&world).await.user_add(&*user, "canary-user", None).await.expect("added");

        // Concurrently, as the calls of an application are: one token is enough for all of them.
        let reads = (0..8).map(|_| ann.read(Query::node(path("/app/e"))));
        for view in join_all(reads).await {
            assert!(view.expect("permitted as before").node().is_some());
        }
        let node = format!("/app/n{round}");
        create(&*ann, &node, Lifetime::Persistent).await;
        hears_of(&mut old, &node).await;
        let (view, mut new) = ann.watch(Query::node(path(&node))).await.expect("permitted");
        assert!(view.node().is_some());
        let set = Txn::new().set(path(&node), "y", Expect::Any);
        ann.commit(set).await.expect("permitted").required().expect("it is there");
        hears_of(&mut new, &node).await;
        hears_of(&mut old, &node).await;
        assert!(matches!(*ann.status().borrow(), Status::Live { .. }));
    }
    denied(ann.read(Query::node(path("/other"))).await);
    denied(ann.watch(Query::node(path("/other"))).await);
    ann.close().await.expect("answered");
}

pub(crate) async fn a_session_survives_that_another_user_is_added() {
    works_while_users_change(guarded_by(1, signed_tokens("10m")).await).await;
}

pub(crate) async fn a_session_on_three_members_survives_that_another_user_is_added() {
    works_while_users_change(guarded_by(3, signed_tokens("10m")).await).await;
}

pub(crate) async fn a_session_with_a_plain_token_survives_that_another_user_is_added() {
    works_while_users_change(guarded_by(3, Flavour::default()).await).await;
}

pub(crate) async fn sessions_go_on_while_authentication_is_disabled_and_after_it() {
    let world = guarded(300).await;
    let user = || world.options().user("ann", ANN);
    let ann = open(user()).await.expect("permitted");
    create(&*ann, "/app/e", Lifetime::Session).await;

    root(&world).await.auth_disable().await.expect("disabled");
    assert!(exists(&*ann, "/app/e").await);
    let bob = open(user()).await.expect("the password is not wanted");
    create(&*bob, "/app/f", Lifetime::Session).await;
    let (_view, mut old) = bob.watch(Query::children(path("/app"))).await.expect("permitted");

    world.raw().await.auth_enable().await.expect("enabled");
    for (store, node) in [(&ann, "/app/g"), (&bob, "/app/h")] {
        create(&**store, node, Lifetime::Session).await;
        hears_of(&mut old, node).await;
        let (_view, mut new) = store.watch(Query::node(path(node))).await.expect("permitted");
        let set = Txn::new().set(path(node), "y", Expect::Any);
        store.commit(set).await.expect("permitted").required().expect("it is there");
        hears_of(&mut new, node).await;
        hears_of(&mut old, node).await;
        assert!(matches!(*store.status().borrow(), Status::Live { .. }));
    }
}

/// The server gets certificates of another authority while a session is open, and so does the
/// client. Between the two, the client finds files that cannot be used.
pub(crate) async fn a_session_outlives_its_certificates() {
    let (old, new, live) =
        (Certificates::new(), Certificates::new(), Arc::new(Certificates::new()));
    old.copy_to(&live);
    let mut world = World::new(1, &live.flavour_in_place());
    let reads = Arc::new(AtomicUsize::new(0));
    let source = {
        let (live, reads) = (live.clone(), reads.clone());
        move || {
            reads.fetch_add(1, Ordering::Relaxed);
            Ok(live.known())
        }
    };
    let tls = source().expect("they were made").reload(source);
    let backend = EtcdBackend::new(world.options().tls(tls)).expect("valid");
    let ann = backend.open(&SessionOptions::new(Duration::from_secs(60))).await;
    let ann = ann.expect("both know each other");
    create(&*ann, "/outlives", Lifetime::Session).await;
    assert!(exists(&*ann, "/outlives").await);

    world.cluster.kill(0).expect("it runs");
    new.copy_to(&live);
    live.write("ca.pem", b"half a file");
    // The server reads its own file of authorities.
    world.cluster.restart(0).expect("it starts again");
    let before = reads.load(Ordering::Relaxed);
    eventually("the client tries again", async || {
        // In the meantime nothing answers.
        let _fails = ann.read(Query::node(path("/outlives"))).await.is_err();
        reads.load(Ordering::Relaxed) >= before + 2
    })
    .await;
    assert!(ann.read(Query::node(path("/outlives"))).await.is_err(), "the old ones are in use");
    new.copy_to(&live);
    eventually("the session continues with the new certificates", async || {
        ann.read(Query::node(path("/outlives"))).await.is_ok()
    })
    .await;
    assert!(exists(&*ann, "/outlives").await, "the node of the session outlived its server");
    assert!(!ann.status().borrow().is_lost());
}

pub(crate) async fn both_sides_show_certificates() {
    let certificates = Certificates::new();
    let world = World::new(1, &certificates.flavour(true));

    let known = world.options().tls(certificates.trusted().identity(
        certificates.read("both.pem"),
        String::from_utf8(certificates.read("both.key")).expect("PEM is text"),
    ));
    let ann = open(known).await.expect("both know each other");
    create(&*ann, "/n", Lifetime::Session).await;
    let (_view, mut watch) = ann.watch(Query::children(path("/d"))).await.expect("answered");
    create(&*ann, "/d/n", Lifetime::Session).await;
    hears_of(&mut watch, "/d/n").await;
    ann.close().await.expect("closed");

    let strangers = [
        world.options().tls(certificates.trusted()),
        world.options().tls(Tls::new()),
        world.options(),
        world.options().tls(certificates.trusted().server_name("other.example")),
    ];
    for stranger in strangers {
        let error = open(stranger.timeout(Duration::from_secs(2))).await.expect_err("a stranger");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    }
}
