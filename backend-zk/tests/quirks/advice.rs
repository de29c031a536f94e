//! Errors suggest to the user what to do, and are returned in time.

use std::error::Error as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use synod_core::client::{Client, ClientOptions};
use synod_core::error::{Effect, Error, ErrorKind};
use synod_core::store::{Backend as _, Expect, Lifetime, Outcome, Query, SessionOptions, Txn};
use synod_servers::ports::Ports;
use synod_servers::zookeeper::Ensemble;
use synod_zk::{Access, ZkBackend, ZkOptions};
use tokio::time::{sleep, timeout};

use super::{PATIENCE, create, done, is_live, open, options, path, server, session_with, there};

/// The error for which no session is opened.
pub(super) async fn why(options: ZkOptions) -> Error {
    let backend = ZkBackend::new(options).expect("valid");
    let ttl = SessionOptions::new(Duration::from_secs(2));
    let opened = timeout(PATIENCE, backend.open(&ttl)).await.expect("in time");
    let error = opened.expect_err("no server accepts the session");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::None), "{error}");
    error
}

pub(super) fn says(error: &Error, words: &str) {
    assert!(error.to_string().contains(words), "{error}");
}

pub(super) async fn an_unreachable_server_is_reported_with_the_reason() {
    let open = |host: &str| ZkOptions::new([host]).access(Access::Open);
    says(&why(open("no-such-host.invalid:2181")).await, "is the name right?");

    let nobody: SocketAddr =
        (Ipv4Addr::LOCALHOST, Ports::draw(1).expect("there are ports")[0]).into();
    let refused = why(options([nobody]).access(Access::Open)).await;
    says(&refused, &format!("{nobody}: nothing listens there"));

    let silent = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are ports");
    let at = silent.local_addr().expect("it listens");
    says(
        &why(options([at, nobody]).access(Access::Open)).await,
        &format!("{at}: it does not answer"),
    );
}

pub(super) async fn a_wrong_password_is_reported() {
    let known =
        |password: &str| options(server().addresses()).credentials("ann", password.to_owned());
    let ann = open(known("canary-7f3a")).await;
    done(&*ann, create("/advice/mine", "")).await;

    let other = open(known("canary-9c1d")).await;
    let read =
        other.read(Query::node(path("/advice/mine"))).await.expect_err("another user owns it");
    let set = Txn::new().set(path("/advice/mine"), "x", Expect::Any);
    let set = other.commit(set).await.expect_err("another user owns it");

    for error in [read, set] {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Denied, Effect::None));
        says(&error, "/advice/mine");
        says(&error, "another password");
    }
}

pub(super) async fn a_server_that_only_lets_read_is_named_as_such() {
    let lines = ["localSessionsEnabled=true", "localSessionsUpgradingEnabled=true"];
    let three = Ensemble::start_with(3, &["-Dreadonlymode.enabled=true"], &lines);
    let mut three = three.expect("the other one started, too");
    let store = session_with(&three).await;
    for node in [0, 1] {
        three.kill(node).expect("it runs");
    }

    let last = three.addresses()[2];
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let error = why(options([last]).access(Access::Open)).await;
        // The server looks for a majority first.
        if error.to_string().contains("accepts only reads") {
            break;
        }
        says(&error, "majority");
        assert!(tokio::time::Instant::now() < end, "{error}");
    }
    let write = store.commit(create("/advice/read-only", ""));
    let error =
        timeout(PATIENCE + PATIENCE, write).await.expect("in time").expect_err("no server can");
    assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::SessionLost), "{error}");
}

/// The text that a user reads: an error with all its causes.
fn error_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(why) = cause {
        text = format!("{text}: {why}");
        cause = why.source();
    }
    text
}

pub(super) async fn a_missing_majority_is_reported() {
    const LIMIT: Duration = Duration::from_secs(4);
    const WITHOUT_MAJORITY: &str =
        "it runs without a majority of its servers; are enough of them started?";

    let mut three = Ensemble::start(3).expect("the other one started, too");
    let known = || ZkBackend::new(options(three.addresses()).access(Access::Open)).expect("valid");
    let limits = ClientOptions::default().session(SessionOptions::new(Duration::from_secs(2)));
    let limits = limits.timeout(LIMIT).connect_timeout(LIMIT);
    let client = Client::open(Arc::new(known()), limits.clone()).await.expect("three run");
    let backend = Arc::new(known());
    let at = path("/advice/majority");
    for node in [0, 1] {
        three.kill(node).expect("it runs");
    }

    // First new clients are refused, then older ones when their sessions are over.
    let end = tokio::time::Instant::now() + PATIENCE * 6;
    for single in [false, true] {
        loop {
            let error = if single {
                let created = timeout(PATIENCE, client.create(&at, "", Lifetime::Persistent));
                created.await.expect("in time").expect_err("one alone decides nothing")
            } else {
                let opened = timeout(PATIENCE, Client::open(backend.clone(), limits.clone()));
                opened.await.expect("in time").expect_err("one alone decides nothing")
            };
            let (kind, text) = (error.kind(), error_text(&error));
            assert!(matches!(kind, ErrorKind::Unreachable | ErrorKind::SessionLost), "{text}");
            // The server looks for the others first.
            if text.contains(WITHOUT_MAJORITY) {
                assert!(text.contains("nothing listens there; is the server started"), "{text}");
                break;
            }
            assert!(tokio::time::Instant::now() < end, "{text}");
        }
    }

    three.restart(0).expect("it was killed");
    while !matches!(
        client.create(&at, "", Lifetime::Persistent).await,
        Ok(Outcome::Committed(_) | Outcome::Rejected(_))
    ) {
        assert!(tokio::time::Instant::now() < end + PATIENCE * 6, "two decide");
    }
}

/// A server whose disk is full ends itself; acknowledged writes are on disk.
pub(super) async fn a_server_with_a_full_disk_acknowledges_nothing() {
    let mut own = Ensemble::start(1).expect("the other one started, too");
    let store = session_with(&own).await;
    done(&*store, create("/advice/before", "")).await;
    own.fill_disk(0).expect("there is prlimit");

    let error = store.commit(create("/advice/full", "")).await.expect_err("there is no room");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown));
    says(&error, "see the server's log");
    // The server needs some time to end.
    let end = tokio::time::Instant::now() + PATIENCE;
    while !why(options(own.addresses()).access(Access::Open))
        .await
        .to_string()
        .contains("nothing listens")
    {
        assert!(tokio::time::Instant::now() < end, "it goes on");
        sleep(Duration::from_millis(50)).await;
    }

    own.restart(0).expect("there is room");
    is_live(&*store).await;
    assert!(there(&*store, "/advice/before").await);
    done(&*store, create("/advice/after", "")).await;
}
