//! Authentication by SASL.

use std::fs;
use std::time::Duration;

use synod_core::error::ErrorKind;
use synod_core::store::{Backend as _, Expect, Query, SessionOptions, Txn};
use synod_servers::home::Home;
use synod_servers::zookeeper::Ensemble;
use synod_zk::{Login, ZkBackend, ZkOptions};
use tokio::time::timeout;

use super::{PATIENCE, create, done, open, options, path, session_with, there};

/// The server's list of users.
const USERS: &str = r#"
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
        user_ann="canary-7f3a"
        user_bob="canary-9c1d";
};
"#;

pub(super) async fn a_client_that_logs_in_by_sasl_has_that_identity() {
    let home = Home::new("sasl").expect("there is room");
    let users = home.path().join("users");
    fs::write(&users, USERS).expect("there is room");
    let server = Ensemble::start_with(
        1,
        &[
            &format!("-Djava.security.auth.login.config={}", users.display()),
            "-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            // 3.9 refuses DIGEST-MD5 otherwise.
            "-Dzookeeper.fips-mode=false",
        ],
        &[],
    );
    let server = server.expect("the other one started, too");
    let known = |user: &str, password: &str| -> ZkOptions {
        let known = options(server.addresses()).login(Login::Sasl);
        known.credentials(user, password.to_owned())
    };

    let ann = open(known("ann", "canary-7f3a")).await;
    done(&*ann, create("/sasl/mine", "secret")).await;
    assert!(there(&*open(known("ann", "canary-7f3a")).await, "/sasl/mine").await);

    let bob = open(known("bob", "canary-9c1d")).await;
    for stranger in [bob, session_with(&server).await] {
        let read =
            stranger.read(Query::node(path("/sasl/mine"))).await.expect_err("another user owns it");
        assert_eq!(read.kind(), ErrorKind::Denied, "{read}");
        let set = Txn::new().set(path("/sasl/mine"), "x", Expect::Any);
        assert_eq!(
            stranger.commit(set).await.expect_err("another user owns it").kind(),
            ErrorKind::Denied
        );
    }
    for (user, password) in [("ann", "canary-0000"), ("nobody", "canary-0000")] {
        let backend = ZkBackend::new(known(user, password)).expect("valid");
        let ttl = SessionOptions::new(Duration::from_secs(2));
        let opened = timeout(PATIENCE, backend.open(&ttl)).await.expect("in time");
        let refused = opened.expect_err("the server does not know the user");
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
        super::advice::says(&refused, "do not accept our user and password");
        assert!(!format!("{refused} {refused:?} {backend:?}").contains("canary"), "{refused:?}");
    }
}
