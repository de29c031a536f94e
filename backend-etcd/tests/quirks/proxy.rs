//! etcd's gRPC proxy, which keeps leases alive by itself.

use std::process::Command;
use std::time::Duration;

use synod_core::error::{Effect, ErrorKind, Result};
use synod_core::store::{Query, Store};
use synod_etcd::EtcdOptions;
use synod_servers::child::Child;
use synod_servers::home::Home;
use synod_servers::ports::Ports;
use tokio::net::TcpStream;

use crate::world::{World, eventually, open, path};

struct Proxy {
    address: String,
    _child: Child,
    _home: Home,
}

/// A proxy in front of the first member, which advertises this address.
async fn proxy(world: &World, advertised: &str) -> Proxy {
    let home = Home::new("proxy").expect("temporary");
    let port = Ports::draw(1).expect("one is free")[0];
    let address = format!("127.0.0.1:{port}");
    let mut etcd = Command::new("etcd");
    etcd.args(["grpc-proxy", "start", "--endpoints", &world.hosts()[0]]);
    etcd.args(["--listen-addr", &address, "--advertise-client-url", advertised]);
    etcd.arg("--data-dir").arg(home.path().join("data"));
    let child = Child::start(&etcd, &home.path().join("log")).expect("etcd is installed");
    let listens = async || TcpStream::connect(&address).await.is_ok();
    eventually("the proxy listens", listens).await;
    Proxy { address, _child: child, _home: home }
}

fn refused<T>(result: Result<T>) {
    let error = result.err().expect("a proxy is refused");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unsupported, Effect::None), "{error}");
    for word in ["gRPC proxy", "connect to the members themselves"] {
        assert!(error.to_string().contains(word), "{error}");
    }
}

async fn through(proxy: &Proxy) -> Result<Box<dyn Store>> {
    open(EtcdOptions::new([&*proxy.address]).timeout(Duration::from_secs(10))).await
}

pub(crate) async fn a_session_through_the_grpc_proxy_is_refused_by_name() {
    let world = World::alone();
    refused(through(&proxy(&world, "127.0.0.1:23790").await).await);
    assert!(open(world.options()).await.is_ok(), "the member itself is fine");
}

pub(crate) async fn a_watch_through_a_proxy_that_hides_is_refused_by_name() {
    let world = World::alone();
    // Without its own address the proxy forwards the request for the member list.
    let proxy = proxy(&world, "").await;
    let ann = through(&proxy).await.expect("it looks like a member");
    for _ in 0..2 {
        refused(ann.watch(Query::node(path("/n"))).await);
    }
}
