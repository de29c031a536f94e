//! Sessions at one of three servers that no longer works, while the others do.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use synod_conformance::harness::Link;
use synod_core::store::{Backend as _, SessionOptions, Status, Store};
use synod_servers::peers::Peers;
use synod_servers::zookeeper::Ensemble;
use synod_zk::{Access, ZkBackend, ZkOptions};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// ZooKeeper's stock settings.
const STOCK: &[&str] = &[
    "tickTime=2000",
    "initLimit=10",
    "syncLimit=5",
    "minSessionTimeout=4000",
    "maxSessionTimeout=40000",
];
const TICK: Duration = Duration::from_secs(2);

/// A client needs two fifths of it to notice that its server is silent.
const TTL: Duration = Duration::from_secs(20);

/// Enough sessions that each server has some of them.
const SESSIONS: usize = 24;

/// Three servers, and the proxies between them.
struct Three {
    servers: Arc<Ensemble>,
    peers: Peers,
    runtime: Runtime,
}

impl Three {
    /// Starts them on a separate runtime, because the start blocks.
    fn start() -> Self {
        let start = || {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = runtime.expect("the system lets it start");
            let started = runtime.block_on(async { Ensemble::start_apart_with(3, STOCK) });
            let (servers, peers) = started.expect("the other ones started, too");
            Self { servers: Arc::new(servers), peers, runtime }
        };
        std::thread::spawn(start).join().expect("no panic")
    }

    /// Waits until all servers serve, and returns the one that leads.
    async fn leader(&self) -> usize {
        let (servers, (tell, leader)) = (self.servers.clone(), oneshot::channel());
        let look = move || {
            servers.await_ready().expect("they come back");
            let _waited_for = tell.send(servers.leader()).is_ok();
        };
        std::thread::spawn(look);
        leader.await.expect("no panic").expect("one of them leads")
    }

    async fn sessions(&self) -> Vec<Box<dyn Store>> {
        let hosts = self.servers.addresses().into_iter().map(|host| host.to_string());
        let options = ZkOptions::new(hosts).access(Access::Open).tick(TICK);
        let backend = ZkBackend::new(options).expect("valid");
        let opened = (0..SESSIONS).map(async |_| {
            backend.open(&SessionOptions::new(TTL)).await.expect("three servers run")
        });
        join_all(opened).await
    }
}

/// Waits for a time to live, which is longer than noticing a silent server and moving. Returns the
/// number of sessions that were not certain.
async fn outlive(sessions: &[Box<dyn Store>]) -> usize {
    let each = sessions.iter().map(async |store| {
        let (mut status, mut was_suspended) = (store.status(), false);
        let seen = async {
            loop {
                match &*status.borrow_and_update() {
                    Status::Lost { reason } => panic!("lost ({reason}), with two healthy servers"),
                    Status::Suspended { .. } => was_suspended = true,
                    Status::Live { .. } => {}
                }
                status.changed().await.expect("the store is there");
            }
        };
        let _over = timeout(TTL, seen).await.is_err();
        usize::from(was_suspended)
    });
    join_all(each).await.into_iter().sum()
}

pub(super) async fn a_follower_that_stands_still_or_is_cut_off_ends_no_session() {
    let three = Three::start();

    let follower = (three.leader().await + 1) % 3;
    let sessions = three.sessions().await;
    three.servers.pause(follower).expect("it runs");
    let affected = outlive(&sessions).await;
    three.servers.resume(follower).expect("it stands still");
    assert!(
        (1..SESSIONS).contains(&affected),
        "{affected} sessions were at the one that stood still"
    );

    let follower = (three.leader().await + 2) % 3;
    let sessions = three.sessions().await;
    three.peers.set(follower, Link::Cut);
    let affected = outlive(&sessions).await;
    three.peers.set(follower, Link::Open);
    assert!(
        (1..SESSIONS).contains(&affected),
        "{affected} sessions were at the one that was cut off"
    );

    drop(three.peers);
    three.runtime.shutdown_background();
}
