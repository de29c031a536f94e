//! The etcd backend against the crate that it is built on, on one real server.
//!
//! `cargo bench -p synod-bench --features etcd --bench etcd [-- --quick]`; docs/benchmarks.md tells
//! what the columns are.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, Compare, CompareOp, GetOptions, PutOptions, Txn as Request, TxnOp};
use synod::store::{Backend as _, SessionOptions};
use synod_bench::ours::{DATA, Door, Floor, made, node};
use synod_bench::race::{Race, Racer, Work, on_one_thread};
use synod_bench::table;
use synod_conformance::server::etcd::Cluster;
use synod_conformance::server::required;
use synod_etcd::{EtcdBackend, EtcdOptions};

const TTL: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let servers = match Cluster::start(1) {
        Ok(servers) => servers,
        Err(why) => {
            table::print_missing(&why);
            return if required() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let address = servers.addresses()[0].to_string();
    on_one_thread(async {
        let backend = EtcdBackend::new(EtcdOptions::new([&address])).expect("they fit");
        let store = backend.open(&SessionOptions::new(TTL)).await.expect("a session");
        let floor = Floor::prepare(store).await;
        let url = format!("etcd://{address}?session=60s");
        let door = Door::new(synod::connect(&url).await.expect("a session"));
        let bare = Bare::connect(&address).await;
        let race = Race::new(
            ("bare", Arc::new(bare)),
            [("store", Arc::new(floor) as Arc<dyn Racer>), ("client", Arc::new(door))],
        );
        let all = [Work::GetLocal, Work::Get, Work::Set, Work::SetIfThere, Work::CreateDelete];
        race.all(&all).await;
    });
    ExitCode::SUCCESS
}

/// The bare crate, in the way of its documentation.
struct Bare {
    client: Client,
    lease: i64,
}

impl Bare {
    async fn connect(address: &str) -> Self {
        let client = Client::connect([address], None).await.expect("a connection");
        // Long enough for all of it.
        let lease = client.lease_client().grant(3_600, None).await.expect("a lease").id();
        for lane in 0..64 {
            client.kv_client().put(node(lane).as_str(), DATA, None).await.expect("answered");
        }
        Self { client, lease }
    }
}

#[async_trait]
impl Racer for Bare {
    async fn run(&self, work: Work, lane: usize, laps: usize) {
        let (node, made, mut kv) = (node(lane), made(lane), self.client.kv_client());
        let (node, made) = (node.as_str(), made.as_str());
        for _ in 0..laps {
            match work {
                Work::GetLocal | Work::Get => {
                    let local =
                        (work == Work::GetLocal).then(|| GetOptions::new().with_serializable());
                    let found = kv.get(node, local).await.expect("the server answers");
                    assert_eq!(found.kvs()[0].value().len(), DATA.len(), "whole");
                }
                Work::Set => {
                    let _put = kv.put(node, DATA, None).await.expect("the server answers");
                }
                Work::SetIfThere => {
                    let there = Compare::version(node, CompareOp::Greater, 0);
                    let put = TxnOp::put(node, DATA, Some(PutOptions::new().with_ignore_lease()));
                    let get = TxnOp::get(node, Some(GetOptions::new().with_keys_only()));
                    let request = Request::new().when([there]).and_then([put, get]);
                    let done = kv.txn(request).await.expect("the server answers");
                    assert!(done.succeeded(), "it was made");
                }
                Work::CreateDelete => {
                    let absent = Compare::version(made, CompareOp::Equal, 0);
                    let leased = PutOptions::new().with_lease(self.lease);
                    let put = TxnOp::put(made, DATA, Some(leased));
                    let request = Request::new().when([absent]).and_then([put]);
                    let done = kv.txn(request).await.expect("the server answers");
                    assert!(done.succeeded(), "nobody else is there");
                    let deleted = kv.delete(made, None).await.expect("the server answers");
                    assert_eq!(deleted.deleted(), 1, "it was made");
                }
            }
        }
    }
}
