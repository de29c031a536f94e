//! Users, tokens and certificates.

use std::process::Command;
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Permission, PermissionType};
use synod_conformance::server::etcd::Flavour;
use synod_core::error::{Error, ErrorKind};
use synod_core::store::{Backend as _, Lifetime, Query, SessionOptions, Store, Txn};
use synod_etcd::{EtcdBackend, EtcdOptions, Tls};
use tokio::time::sleep;

use crate::world::{World, create, exists, hears_of, path};

/// A server with the users `root` and `ann`, who may do everything below `/app`.
async fn guarded(token_seconds: u32) -> World {
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

async fn open(options: EtcdOptions) -> Result<Box<dyn Store>, Error> {
    EtcdBackend::new(options)?.open(&SessionOptions::new(Duration::from_secs(5))).await
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

/// An authority, and a certificate of it for both sides, in this directory.
const CERTIFICATES: &str = r#"
set -e
cd "$1"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority \
    -keyout ca.key -out ca.pem
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=both \
    -keyout both.key -out both.csr
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' >ext
openssl x509 -req -in both.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext \
    -out both.pem
"#;

pub(crate) async fn both_sides_show_certificates() {
    let home = synod_conformance::server::home::Home::new("certificates").expect("temporary");
    let mut sh = Command::new("sh");
    let made = sh.args(["-c", CERTIFICATES, "certificates"]).arg(home.path()).output();
    assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{made:?}");
    let read = |name: &str| std::fs::read(home.path().join(name)).expect("just made");
    let mut flavour = Flavour::default();
    flavour.tls = true;
    flavour.files =
        ["ca.pem", "both.pem", "both.key"].map(|name| (name.to_owned(), read(name))).to_vec();
    let arguments = "--cert-file {home}/both.pem --key-file {home}/both.key \
                     --trusted-ca-file {home}/ca.pem --client-cert-auth";
    flavour.arguments = arguments.split_whitespace().map(str::to_owned).collect();
    let world = World::new(1, &flavour);

    let key = String::from_utf8(read("both.key")).expect("PEM is text");
    let known = world.options().tls(Tls::trusting(read("ca.pem")).identity(read("both.pem"), key));
    let ann = open(known).await.expect("both know each other");
    create(&*ann, "/n", Lifetime::Session).await;
    let (_view, mut watch) = ann.observe(Query::children(path("/d"))).await.expect("answered");
    create(&*ann, "/d/n", Lifetime::Session).await;
    hears_of(&mut watch, "/d/n").await;
    ann.close().await.expect("closed");

    let without = world.options().tls(Tls::trusting(read("ca.pem")));
    for stranger in [without, world.options().tls(Tls::new()), world.options()] {
        let error = open(stranger.timeout(Duration::from_secs(2))).await.expect_err("a stranger");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    }
}
