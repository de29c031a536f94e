//! The ZooKeeper backend against the crate that it is built on, on one real server.
//!
//! `cargo bench -p synod-bench --features zookeeper --bench zookeeper [-- --quick]`;
//! docs/benchmarks.md tells what the columns are.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use synod::store::{Backend as _, SessionOptions};
use synod_bench::ours::{DATA, Door, Floor, made, node};
use synod_bench::race::{Race, Racer, Work, on_one_thread};
use synod_bench::table;
use synod_conformance::server::required;
use synod_conformance::server::zookeeper::Ensemble;
use synod_zk::{Access, ZkBackend, ZkOptions};
use zookeeper_client::{Acls, Client, CreateMode};

const TTL: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let servers = match Ensemble::start(1) {
        Ok(servers) => servers,
        Err(why) => {
            table::print_missing(&why);
            return if required() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let address = servers.addresses()[0].to_string();
    on_one_thread(async {
        let options = ZkOptions::new([&address]).access(Access::Open);
        let backend = ZkBackend::new(options).expect("they fit");
        let store = backend.open(&SessionOptions::new(TTL)).await.expect("a session");
        let floor = Floor::prepare(store).await;
        let url = format!("zk://{address}?acl=open&session=60s");
        let door = Door::new(synod::connect(&url).await.expect("a session"));
        let bare = Bare::connect(&address).await;
        let race = Race::new(
            ("bare", Arc::new(bare)),
            [("store", Arc::new(floor) as Arc<dyn Racer>), ("client", Arc::new(door))],
        );
        race.all(&[Work::GetLocal, Work::Get, Work::Set, Work::CreateDelete]).await;
    });
    ExitCode::SUCCESS
}

/// The bare crate, in the way of its documentation.
struct Bare(Client);

impl Bare {
    async fn connect(address: &str) -> Self {
        let connector = Client::connector().with_session_timeout(TTL);
        Self(connector.connect(address).await.expect("a session"))
    }
}

#[async_trait]
impl Racer for Bare {
    async fn run(&self, work: Work, lane: usize, laps: usize) {
        let (node, made, client) = (node(lane), made(lane), &self.0);
        let (node, made) = (node.as_str(), made.as_str());
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        for _ in 0..laps {
            match work {
                Work::GetLocal => {
                    let found = client.get_data(node).await.expect("it was made");
                    assert_eq!(found.0.len(), DATA.len(), "whole");
                }
                Work::Get => {
                    // Both leave before either is answered.
                    let (ahead, data) = (client.sync("/"), client.get_data(node));
                    ahead.await.expect("the server answers");
                    let found = data.await.expect("it was made");
                    assert_eq!(found.0.len(), DATA.len(), "whole");
                }
                Work::Set => {
                    let _stat = client.set_data(node, DATA, None).await.expect("it was made");
                }
                Work::CreateDelete => {
                    let created = client.create(made, DATA, &ephemeral).await;
                    let _stat = created.expect("nobody else is there");
                    client.delete(made, None).await.expect("it was made");
                }
            }
        }
    }
}
