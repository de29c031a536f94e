//! A client whose servers are all replaced through their file keeps its session and its lock.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use synod::lock::Mutex;
use synod::value::Counter;
use synod::{Client, SessionId, path};
use synod_servers::available;
use synod_servers::etcd::Cluster;
use synod_servers::home::Home;
use synod_servers::pipe::Pipe;
use synod_servers::zookeeper::Ensemble;
use tokio::time::{sleep, timeout};

/// A list that changes is read within ten seconds, by a busy machine a little later.
const LIMIT: Duration = Duration::from_secs(120);

/// The file of the servers.
struct ServersOnDisk {
    home: Home,
}

impl ServersOnDisk {
    fn new() -> Self {
        Self { home: Home::new("servers").expect("a temporary directory") }
    }

    fn path(&self) -> PathBuf {
        self.home.path().join("servers")
    }

    /// Replaces the file as a whole.
    fn write(&self, text: &str) {
        let next = self.home.path().join("next");
        std::fs::write(&next, text).expect("there is room");
        std::fs::rename(next, self.path()).expect("the same file system");
    }

    fn name(&self, servers: &Pipe) {
        let lines: Vec<String> = names(servers).iter().map(|name| format!("{name}\n")).collect();
        self.write(&lines.concat());
    }
}

fn names(servers: &Pipe) -> Vec<String> {
    servers.addresses().iter().map(ToString::to_string).collect()
}

async fn waits_for(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, wait).await.unwrap_or_else(|_| panic!("{what}"));
}

async fn session(client: &Client) -> SessionId {
    client.session().await.expect("it is connected").info().id
}

/// Each proxy is an address of the same servers, so that all addresses can be replaced.
fn proxies(servers: &[SocketAddr]) -> Pipe {
    Pipe::start(servers).expect("ports are free")
}

/// Holds a lock and counts, while the addresses of all servers are replaced repeatedly.
async fn keeps_its_lock(scheme: &str, servers: &[SocketAddr], parameters: &str) {
    let file = ServersOnDisk::new();
    let url = |rest: &str| format!("{scheme}://{rest}{parameters}");
    let query = format!("/replaced?servers=file:{}&session=20s&", file.path().display());
    let missing = synod::connect(&url(&query)).await.expect_err("there is no file yet");
    assert!(missing.has_no_server(), "{missing}");
    let shown = format!("{missing:?}");
    assert!(shown.contains(&file.path().display().to_string()), "{shown}");

    let first = proxies(servers);
    file.name(&first);
    let client = synod::connect(&url(&query)).await.expect("the servers run");
    assert_eq!(client.servers(), names(&first));
    let direct = servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let rival = synod::connect(&url(&format!("{direct}/replaced?"))).await.expect("they run");
    let lock = |client: &Client| Mutex::new(client, path!("/lock"));
    let guard = lock(&client).lock().await.expect("it is free");
    let counter = Counter::new(&client, path!("/count"));
    let (id, token) = (session(&client).await, guard.token());
    let holds = async |when: &str, sum: i64| {
        assert_eq!(counter.add(1).await.expect("servers run").after, sum, "{when}");
        assert!(guard.is_held() && guard.token() == token, "{when}");
        assert_eq!(session(&client).await, id, "{when}");
        assert!(lock(&rival).try_lock().await.expect("they run").is_none(), "{when}");
    };
    holds("at the beginning", 1).await;

    // All at once: none of the first addresses is alive when the next file is read.
    let second = proxies(servers);
    file.name(&second);
    drop(first);
    holds("all servers were replaced", 2).await;
    assert_eq!(client.servers(), names(&second));

    // The next addresses are there beside the old ones: the client moves by itself.
    let third = proxies(servers);
    file.name(&third);
    let is_on_third = || client.server().is_some_and(|server| names(&third).contains(&server));
    waits_for("the client moves to a server in the list", is_on_third).await;
    holds("the server left the list", 3).await;
    drop(second);
    holds("the server that was left is gone", 4).await;

    // A wrong list leaves the client where it is.
    file.write("127.0.0.1:1\n");
    waits_for("the wrong list is read", || client.servers() == ["127.0.0.1:1"]).await;
    for sum in 5..10 {
        holds("no server in the list is reachable", sum).await;
        sleep(Duration::from_millis(100)).await;
    }
    assert!(is_on_third(), "{:?}", client.server());

    guard.release().await.expect("it is held");
    assert!(lock(&rival).try_lock().await.expect("they run").is_some(), "it was released");
    rival.close().await.expect("the servers run");
    client.close().await.expect("the servers run");
}

#[tokio::test]
async fn a_client_of_zookeeper_whose_servers_are_all_replaced_keeps_its_lock() {
    let Some(servers) = available(Ensemble::start(3)) else { return };
    let addresses = servers.addresses();
    timeout(LIMIT, keeps_its_lock("zk", &addresses, "acl=open")).await.expect("it ends");
}

#[tokio::test]
async fn a_client_of_etcd_whose_members_are_all_replaced_keeps_its_lock() {
    let Some(servers) = available(Cluster::start(3)) else { return };
    timeout(LIMIT, keeps_its_lock("etcd", &servers.addresses(), "")).await.expect("it ends");
}
