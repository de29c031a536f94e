//! Encrypted connections.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use synod_core::client::{Client, ClientOptions};
use synod_core::error::{Error, ErrorKind};
use synod_core::store::{Backend as _, Expect, Lifetime, Query, SessionOptions, Store, Txn};
use synod_servers::home::Home;
use synod_servers::ports::Ports;
use synod_servers::zookeeper::Ensemble;
use synod_zk::{Access, ServerStats, Tls, ZkBackend, ZkOptions};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::advice::says;
use super::{PATIENCE, done, path, server, there};

/// A directory of keys and certificates that is removed on drop.
struct Keys(Home);

impl Keys {
    fn new() -> Self {
        Self(Home::new("keys").expect("there is room"))
    }

    fn openssl(&self, arguments: &str) {
        let status =
            Command::new("openssl").current_dir(self.0.path()).args(arguments.split(' ')).output();
        let output = status.expect("openssl is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A certificate authority, and a certificate for a server of this name.
    fn make(&self, name: &str, server: &str) {
        self.openssl(&format!("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"));
        self.openssl(&format!("req -newkey rsa:2048 -nodes -subj /CN={server} -keyout {name}-server.key -out {name}-server.csr"));
        fs::write(self.0.path().join("names"), format!("subjectAltName=DNS:{server}"))
            .expect("there is room");
        self.openssl(&format!("x509 -req -days 2 -in {name}-server.csr -CA {name}.pem -CAkey {name}.key -CAcreateserial -extfile names -out {name}-server.pem"));
        // The server requires both in one file.
        let both =
            [self.read(&format!("{name}-server.key")), self.read(&format!("{name}-server.pem"))];
        fs::write(self.0.path().join(format!("{name}-both.pem")), both.concat())
            .expect("there is room");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).expect("it was made")
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

/// A server that shows this certificate, and requires one of its clients.
async fn start(certificate: &str, authorities: &str) -> (Ensemble, u16) {
    let port = Ports::draw(1).expect("there are ports")[0];
    let server = Ensemble::start_with(
        1,
        &[
            "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            &format!("-Dzookeeper.ssl.keyStore.location={certificate}"),
            &format!("-Dzookeeper.ssl.trustStore.location={authorities}"),
            "-Dzookeeper.ssl.clientAuth=need",
        ],
        &[&format!("secureClientPort={port}")],
    )
    .expect("the other one started, too");
    // The server opens it after the other port, by which it is known to run.
    let listens = async {
        while TcpStream::connect(("localhost", port)).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, listens).await.expect("the port for TLS is opened, too");
    (server, port)
}

async fn open(host: String, tls: Option<Tls>, ttl: u64) -> Result<Box<dyn Store>, Error> {
    let mut options = ZkOptions::new([host]).access(Access::Open);
    options.tls = tls;
    let backend = ZkBackend::new(options).expect("valid");
    backend.open(&SessionOptions::new(Duration::from_secs(ttl))).await
}

pub(super) async fn only_a_server_that_is_vouched_for_is_talked_to() {
    let keys = Keys::new();
    keys.make("right", "localhost");
    keys.make("wrong", "localhost");
    let (_server, port) = start(&keys.at("right-both.pem"), &keys.at("right.pem")).await;
    let host = format!("localhost:{port}");

    let trusting = |whom: &str| Tls::trusting(keys.read(&format!("{whom}.pem")));
    let known = |tls: Tls, name: &str| {
        let [certificate, key] =
            ["pem", "key"].map(|file| keys.read(&format!("{name}-server.{file}")));
        Some(tls.identity(certificate, key))
    };
    let store = open(host.clone(), known(trusting("right"), "right"), 20).await;
    let store = store.expect("both are vouched for");
    done(&*store, Txn::new().create(path("/secure"), "", Lifetime::Persistent)).await;
    assert!(there(&*store, "/secure").await);

    let right = || known(trusting("right"), "right");
    let mut options = ZkOptions::new([host.clone()]).access(Access::Open);
    options.tls = right();
    let backend = ZkBackend::new(options).expect("valid");
    let client = Client::open(backend, ClientOptions::default()).await.expect("vouched for");
    let stats = ServerStats::of(&client).await.expect("its statistics, also encrypted");
    assert!(stats.version.starts_with("3.") && stats.mode == "standalone", "{stats:?}");
    client.close().await.expect("it answers");

    let plain = server().addresses()[0].port();
    for (host, tls, words) in [
        (host.clone(), known(trusting("wrong"), "right"), "from a CA that"),
        (host.clone(), known(trusting("right"), "wrong"), "want one of ours"),
        (host.clone(), Some(trusting("right")), "want one of ours"),
        (format!("127.0.0.1:{port}"), right(), "for this name"),
        (host, None, "use zks://"),
        (format!("localhost:{plain}"), right(), "does not speak TLS on this port"),
    ] {
        // The server must show the reason within a quarter of it.
        let refused = open(host, tls, 10).await.expect_err("it is not vouched for");
        assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused}");
        says(&refused, words);
    }
}

/// The subject of a certificate is an identity, for lists and for the creator of a node.
pub(super) async fn a_certificate_is_an_identity() {
    let keys = Keys::new();
    keys.make("ca", "localhost");
    for name in ["ann", "bob"] {
        keys.openssl(&format!("req -newkey rsa:2048 -nodes -subj /O=shop/CN={name} -keyout {name}-server.key -out {name}.csr"));
        keys.openssl(&format!("x509 -req -days 2 -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out {name}-server.pem"));
    }
    let (_server, port) = start(&keys.at("ca-both.pem"), &keys.at("ca.pem")).await;
    let options = |name: &str| {
        let [certificate, key] =
            ["pem", "key"].map(|file| keys.read(&format!("{name}-server.{file}")));
        let tls = Tls::trusting(keys.read("ca.pem")).identity(certificate, key);
        ZkOptions::new([format!("localhost:{port}")]).tls(tls)
    };
    let session = async |options: ZkOptions| {
        let backend = ZkBackend::new(options).expect("valid");
        let opened = backend.open(&SessionOptions::new(Duration::from_secs(20))).await;
        opened.expect("the certificate is of the authority")
    };
    let shared = "world:cdr,x509:CN=bob,O=shop:rw,x509:CN=ann,O=shop:cdrwa".parse();
    let ann = session(options("ann").acl(path("/x509/shared"), shared.expect("valid"))).await;
    let bob = session(options("bob").add_identity("bob", "canary-7f3a")).await;
    let create = |at: &str| Txn::new().create(path(at), "", Lifetime::Persistent);
    done(&*ann, create("/x509/own/node").create(path("/x509/shared"), "", Lifetime::Persistent))
        .await;
    let set = |at: &str| Txn::new().set(path(at), "x", Expect::Any);
    done(&*bob, set("/x509/shared")).await;
    let denied = bob.read(Query::node(path("/x509/own/node"))).await.expect_err("it is ann's");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    done(&*ann, set("/x509/own/node")).await;
    // A certificate beside a password: the node belongs to both.
    let of_both = bob.commit(create("/x509-both")).await.expect("answered");
    assert!(of_both.is_committed());
    let denied = ann.commit(set("/x509-both")).await.expect_err("it is bob's");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
}

/// The servers get certificates of another authority while a session is open, and so does the
/// client. Between the two, the client finds files that cannot be used.
pub(super) async fn a_session_outlives_its_certificates() {
    let keys = Arc::new(Keys::new());
    for name in ["old", "new"] {
        keys.make(name, "localhost");
    }
    let put = |from: &str, to: &str| {
        fs::write(keys.at(to), keys.read(from)).expect("there is room");
    };
    let renew_server = |name: &str| {
        put(&format!("{name}-both.pem"), "live-both.pem");
        put(&format!("{name}.pem"), "live-trust.pem");
    };
    let renew_client = |name: &str| {
        put(&format!("{name}-server.pem"), "live-client.pem");
        put(&format!("{name}-server.key"), "live-client.key");
        put(&format!("{name}.pem"), "live-ca.pem");
    };
    renew_server("old");
    renew_client("old");
    let (mut server, port) = start(&keys.at("live-both.pem"), &keys.at("live-trust.pem")).await;
    let reads = Arc::new(AtomicUsize::new(0));
    let read = {
        let (keys, reads) = (keys.clone(), reads.clone());
        move || {
            reads.fetch_add(1, Ordering::Relaxed);
            let [certificate, key] =
                ["pem", "key"].map(|end| keys.read(&format!("live-client.{end}")));
            Ok(Tls::trusting(keys.read("live-ca.pem")).identity(certificate, key))
        }
    };
    let tls = read().expect("they were made").reload(read);
    let store = open(format!("localhost:{port}"), Some(tls), 40).await.expect("both are right");
    done(&*store, Txn::new().create(path("/outlives"), "", Lifetime::Session)).await;

    server.kill(0).expect("it runs");
    renew_server("new");
    fs::write(keys.at("live-ca.pem"), "half a file").expect("there is room");
    server.restart(0).expect("it starts again");
    let before = reads.load(Ordering::Relaxed);
    let tries = async {
        while reads.load(Ordering::Relaxed) < before + 2 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, tries).await.expect("the client tries again");
    renew_client("new");

    let session = store.session().id;
    let is_there = timeout(PATIENCE * 2, async {
        while store.read(Query::node(path("/outlives"))).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    });
    is_there.await.expect("the session continues with the new certificates");
    let view = store.read(Query::node(path("/outlives"))).await.expect("it is connected");
    let owner = view.node().and_then(|node| node.stat?.owner);
    assert_eq!(owner, Some(session), "the node of the session outlived its server");
}
