//! A client tells which server it is on, even after that server was killed.

use std::net::SocketAddr;
use std::time::Duration;

use synod::{Client, path};
use synod_servers::available;
use synod_servers::etcd::Cluster;
use synod_servers::home::Home;
use synod_servers::zookeeper::Ensemble;
use tokio::time::{sleep, timeout};

const LIMIT: Duration = Duration::from_secs(60);

/// Connects to these servers, kills the server that the client reports, and waits until it reports
/// another one.
async fn follows(scheme: &str, servers: &[SocketAddr], kill: impl FnOnce(usize)) {
    let names: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let url = format!("{scheme}://{}/server", names.join(","));
    let url = if scheme == "zk" { format!("{url}?acl=open") } else { url };
    let client = synod::connect(&url).await.expect("the servers run");
    let first = client.server().expect("it is connected");
    assert_eq!(client.servers(), names);
    let place = names.iter().position(|name| *name == first);
    kill(place.unwrap_or_else(|| panic!("{first} is none of {names:?}")));

    let next = another(&client, &first).await;
    assert!(next != first && names.contains(&next), "{next} of {names:?}");
    client.close().await.expect("two servers run");
    assert_eq!(client.server(), None, "there is no session");
    assert!(client.servers().is_empty(), "there is no session");
}

async fn another(client: &Client, first: &str) -> String {
    loop {
        // The client notices at its next call or heartbeat.
        let _answer = client.get(&path!("/any")).await.is_ok();
        match client.server() {
            Some(server) if server != first => return server,
            _ => sleep(Duration::from_millis(50)).await,
        }
    }
}

#[tokio::test]
async fn a_client_of_zookeeper_names_its_server() {
    let Some(mut servers) = available(Ensemble::start(3)) else { return };
    let addresses = servers.addresses();
    let work = follows("zk", &addresses, |place| servers.kill(place).expect("it runs"));
    timeout(LIMIT, work).await.expect("it finds another server");
}

#[tokio::test]
async fn a_client_of_etcd_names_its_member() {
    let Some(mut servers) = available(Cluster::start(3)) else { return };
    let addresses = servers.addresses();
    let work = follows("etcd", &addresses, |place| servers.kill(place).expect("it runs"));
    timeout(LIMIT, work).await.expect("it finds another member");
}

#[tokio::test]
async fn memory_and_a_directory_have_no_server() {
    let home = Home::in_memory("server").expect("a directory can be created");
    let directory = format!("file://{}/store", home.path().display());
    for url in ["mem://server", &directory] {
        let client = synod::connect(url).await.expect("both are always there");
        assert_eq!(client.server(), None, "{url}");
        assert!(client.servers().is_empty(), "{url}");
        client.close().await.expect("it is open");
    }
}
