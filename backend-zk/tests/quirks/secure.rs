//! Encrypted connections.

use std::fs;
use std::process::Command;
use std::time::Duration;

use synod_core::error::{Error, ErrorKind};
use synod_core::store::{Backend as _, Lifetime, SessionOptions, Store, Txn};
use synod_testkit::server::home::Home;
use synod_testkit::server::ports::Ports;
use synod_testkit::server::zookeeper::Ensemble;
use synod_zk::{Access, Tls, ZkBackend, ZkOptions};
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
    let port = Ports::draw(1).expect("there are ports")[0];
    let _server = Ensemble::start_with(
        1,
        &[
            "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            &format!("-Dzookeeper.ssl.keyStore.location={}", keys.at("right-both.pem")),
            &format!("-Dzookeeper.ssl.trustStore.location={}", keys.at("right.pem")),
            "-Dzookeeper.ssl.clientAuth=need",
        ],
        &[&format!("secureClientPort={port}")],
    )
    .expect("the other one started, too");
    let host = format!("localhost:{port}");
    // The server opens it after the other port, by which it is known to run.
    let listens = async {
        while TcpStream::connect(&host).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, listens).await.expect("the port for TLS is opened, too");

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
    let plain = server().addresses()[0].port();
    for (host, tls, words) in [
        (host.clone(), known(trusting("wrong"), "right"), "from a CA that"),
        (host.clone(), known(trusting("right"), "wrong"), "want one of ours"),
        (host.clone(), Some(trusting("right")), "want one of ours"),
        (format!("127.0.0.1:{port}"), right(), "for this name"),
        (host, None, "use zks://"),
        (format!("localhost:{plain}"), right(), "does not speak TLS on this port"),
    ] {
        // A quarter of it is the time in which the server is to show the reason.
        let refused = open(host, tls, 10).await.expect_err("it is not vouched for");
        assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused}");
        says(&refused, words);
    }
}
