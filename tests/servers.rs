//! A client whose servers are all replaced keeps its session and its lock: through their file, or
//! through the list that the servers report.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use synod::lock::Mutex;
use synod::value::Counter;
use synod::{Client, SessionId, path};
use synod_core::task::spawn;
use synod_servers::available;
use synod_servers::etcd::{Cluster, Flavour};
use synod_servers::home::Home;
use synod_servers::pipe::Pipe;
use synod_servers::zookeeper::Ensemble;
use tokio::sync::oneshot;
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

/// Servers that join and leave.
trait Growing {
    fn addresses(&self) -> Vec<SocketAddr>;
    fn join(&mut self) -> Result<usize, String>;
    fn leave(&mut self, member: usize) -> Result<(), String>;
}

impl Growing for Ensemble {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses()
    }

    fn join(&mut self) -> Result<usize, String> {
        self.join()
    }

    fn leave(&mut self, member: usize) -> Result<(), String> {
        self.leave(member)
    }
}

impl Growing for Cluster {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses()
    }

    fn join(&mut self) -> Result<usize, String> {
        self.join()
    }

    fn leave(&mut self, member: usize) -> Result<(), String> {
        self.leave(member)
    }
}

fn some(servers: &impl Growing, members: &[usize]) -> Vec<String> {
    let all = servers.addresses();
    let mut names: Vec<String> = members.iter().map(|member| all[*member].to_string()).collect();
    names.sort();
    names
}

fn reported(client: &Client) -> Vec<String> {
    let mut names = client.servers();
    names.sort();
    names
}

/// Counts until it is stopped, and returns the number of additions.
async fn count(client: Client, stop: Arc<AtomicBool>) -> i64 {
    let counter = Counter::new(&client, path!("/count"));
    let mut sum = 0;
    while !stop.load(Ordering::Relaxed) {
        sum += 1;
        assert_eq!(counter.add(1).await.expect("a majority runs").after, sum);
        sleep(Duration::from_millis(5)).await;
    }
    sum
}

/// Holds a lock and counts, while three servers become five and three again, and each of the first
/// three is replaced. Nobody tells the clients.
async fn follows(scheme: &str, servers: &mut impl Growing, parameters: &str) {
    let first = some(servers, &[0, 1, 2]);
    let hosts = first.join(",");
    let url =
        format!("{scheme}://{hosts}/grown?servers=follow&session=20s&timeout=60s{parameters}");
    let client = synod::connect(&url).await.expect("the servers run");
    let rival = synod::connect(&url).await.expect("the servers run");
    assert_eq!(reported(&client), first, "the list is read with the session");
    let lock = |client: &Client| Mutex::new(client, path!("/lock"));
    let guard = lock(&client).lock().await.expect("it is free");
    let (id, token) = (session(&client).await, guard.token());
    let stop = Arc::<AtomicBool>::default();
    let (sender, sum) = oneshot::channel();
    let counting = count(client.clone(), stop.clone());
    let _counting = spawn(async move {
        let _scene_waits = sender.send(counting.await).is_ok();
    });
    let followed = async |names: &[String]| {
        for client in [&client, &rival] {
            waits_for("the clients follow", || reported(client) == names).await;
        }
    };
    let holds = async |members: &[usize]| {
        assert!(guard.is_held() && guard.token() == token, "{members:?}");
        assert_eq!(session(&client).await, id, "{members:?}");
        assert!(lock(&rival).try_lock().await.expect("they run").is_none(), "{members:?}");
    };

    for next in [3, 4] {
        assert_eq!(servers.join(), Ok(next));
    }
    holds(&[0, 1, 2, 3, 4]).await;
    for member in [0, 1] {
        assert_eq!(servers.leave(member), Ok(()));
    }
    // Without that, the clients would know none of the servers that remain in the end.
    followed(&some(servers, &[2, 3, 4])).await;
    holds(&[2, 3, 4]).await;
    assert_eq!(servers.join(), Ok(5));
    assert_eq!(servers.leave(2), Ok(()));
    let last = some(servers, &[3, 4, 5]);
    followed(&last).await;
    holds(&[3, 4, 5]).await;

    stop.store(true, Ordering::Relaxed);
    let sum = sum.await.expect("it counts");
    let counter = Counter::new(&rival, path!("/count"));
    assert_eq!(counter.add(1).await.expect("they run").after, sum + 1, "each addition counts once");
    for client in [&client, &rival] {
        assert!(client.server().is_some_and(|server| last.contains(&server)));
    }
    let late = synod::connect(&url).await.expect_err("none of the first servers is alive");
    assert!(late.has_no_server(), "{late}");
    guard.release().await.expect("it is held");
    assert!(lock(&rival).try_lock().await.expect("they run").is_some(), "it was released");
    for client in [client, rival] {
        client.close().await.expect("the servers run");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_follows_an_ensemble_of_zookeeper_whose_servers_are_all_replaced() {
    let Some(mut servers) = available(Ensemble::start_growing(3, 6)) else { return };
    timeout(LIMIT, follows("zk", &mut servers, "&acl=open")).await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_follows_a_cluster_of_etcd_whose_members_are_all_replaced() {
    let Some(mut servers) = available(Cluster::start_growing(3, 6)) else { return };
    timeout(LIMIT, follows("etcd", &mut servers, "")).await.expect("it ends");
}

/// Of a static configuration each server knows its own address for clients only.
#[tokio::test]
async fn an_ensemble_that_does_not_name_all_its_servers_leaves_the_configured_ones_in_use() {
    for size in [1, 3] {
        let Some(servers) = available(Ensemble::start(size)) else { return };
        let hosts: Vec<String> = servers.addresses().iter().map(ToString::to_string).collect();
        let url = format!("zk://{}/static?servers=follow&acl=open", hosts.join(","));
        let client = synod::connect(&url).await.expect("the servers run");
        let list = client.servers();
        assert!(hosts.iter().all(|host| list.contains(host)), "{hosts:?}, {list:?}");
        client.close().await.expect("the servers run");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_never_follows_a_member_of_another_cluster() {
    let Some(other) = available(Cluster::start(1)) else { return };
    let wrong = other.addresses()[0].to_string();
    let mut flavour = Flavour::default();
    flavour.fsync = true;
    flavour.arguments = vec!["--advertise-client-urls".into(), format!("http://{wrong}")];
    let Some(mut servers) = available(Cluster::start_with(1, &flavour)) else { return };
    let host = servers.addresses()[0].to_string();
    let url = format!("etcd://{host}/followed?servers=follow&session=20s");
    let client = synod::connect(&url).await.expect("the servers run");
    assert_eq!(client.servers(), [wrong.as_str()]);
    let guard = Mutex::new(&client, path!("/lock")).lock().await.expect("it is free");
    let id = session(&client).await;
    let counter = Counter::new(&client, path!("/count"));
    for sum in 1..4 {
        servers.kill(0).expect("it runs");
        let (restarted, added) = tokio::join!(
            async {
                // The member is called, and is not there.
                sleep(Duration::from_millis(100)).await;
                servers.restart(0).map_err(|error| error.to_string())?;
                servers.await_ready()
            },
            counter.add(1)
        );
        assert_eq!(restarted, Ok(()));
        assert_eq!(added.expect("it runs again").after, sum);
        assert_eq!(client.server(), Some(host.clone()));
    }
    assert!(guard.is_held());
    assert_eq!(session(&client).await, id);
    let stranger = synod::connect(&format!("etcd://{wrong}/followed")).await.expect("it runs");
    assert!(
        !stranger.exists(&path!("/count")).await.expect("it runs"),
        "nothing was written there"
    );
    for client in [client, stranger] {
        client.close().await.expect("the servers run");
    }
}
