//! Users, tokens and certificates.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Permission, PermissionType};
use synod_conformance::server::etcd::Flavour;
use synod_core::error::{Error, ErrorKind};
use synod_core::store::{Lifetime, Query, Txn};
use synod_etcd::Tls;
use tokio::time::sleep;

use crate::certificates::Certificates;
use crate::world::{World, create, exists, hears_of, open, path};

/// A server with the users `root` and `ann`, who may do everything below `/app`.
pub(crate) async fn guarded(token_seconds: u32) -> World {
    let mut flavour = Flavour::default();
    let seconds = token_seconds.to_string();
    let arguments = ["--auth-token-ttl", &seconds, "--bcrypt-cost", "4"];
    flavour.arguments = arguments.map(str::to_owned).to_vec();
    let world = World::new(1, &flavour);
    let mut raw = world.raw().await;
    raw.user_add("root", "canary-root", None).await.expect("added");
    raw.user_grant_role("root", "root").await.expect("granted");
    raw.user_add("ann", "canary-ann", None).await.expect("added");
    raw.role_add("app").await.expect("added");
    for prefix in ["/app/", "//app"] {
        let all = Permission::new(PermissionType::Readwrite, prefix).with_prefix();
        raw.role_grant_permission("app", all).await.expect("granted");
    }
    raw.user_grant_role("ann", "app").await.expect("granted");
    raw.auth_enable().await.expect("enabled");
    world
}

fn denied<T>(result: Result<T, Error>) {
    let error = result.err().expect("it is not permitted");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!error.is_ambiguous());
    let shown = format!("{error} {error:?} {error:#?}");
    assert!(!shown.contains("canary"), "{shown}");
}

pub(crate) async fn who_may_not_is_told_so() {
    let world = guarded(300).await;
    denied(open(world.options().user("ann", "canary-wrong")).await);
    denied(open(world.options().user("eve", "canary-eve")).await);

    let ann = open(world.options().user("ann", "canary-ann")).await.expect("permitted");
    create(&*ann, "/app/n", Lifetime::Session).await;
    assert!(exists(&*ann, "/app/n").await);
    denied(ann.read(Query::node(path("/other"))).await);
    denied(ann.read(Query::children(path("/other"))).await);
    denied(ann.observe(Query::node(path("/other"))).await);
    denied(ann.commit(Txn::new().create(path("/other"), "", Lifetime::Persistent)).await);
    assert!(!ann.status().borrow().is_lost());

    // Nobody in particular may not even look.
    let nobody = open(world.options()).await;
    match nobody {
        Ok(nobody) => denied(nobody.read(Query::node(path("/app/n"))).await),
        Err(error) => denied::<()>(Err(error)),
    }
}

pub(crate) async fn a_token_that_ran_out_is_renewed() {
    let world = guarded(1).await;
    let ann = open(world.options().user("ann", "canary-ann")).await.expect("permitted");
    create(&*ann, "/app/n", Lifetime::Persistent).await;
    let (_view, mut old) = ann.observe(Query::children(path("/app"))).await.expect("permitted");

    sleep(Duration::from_secs(3)).await;

    create(&*ann, "/app/m", Lifetime::Session).await;
    hears_of(&mut old, "/app/m").await;
    sleep(Duration::from_secs(3)).await;
    let (_view, mut new) = ann.observe(Query::node(path("/app/x"))).await.expect("permitted");
    create(&*ann, "/app/x", Lifetime::Session).await;
    hears_of(&mut new, "/app/x").await;
    hears_of(&mut old, "/app/x").await;
    assert!(!ann.status().borrow().is_lost());
    let root = ConnectOptions::new().with_user("root", "canary-root");
    Client::connect(world.hosts(), Some(root)).await.expect("permitted");
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
    let (_view, mut watch) = ann.observe(Query::children(path("/d"))).await.expect("answered");
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
