//! The etcd backend against the crate that it is built on, on one real server.
//!
//! `cargo bench -p synod-bench --features etcd --bench etcd [-- --quick]`; docs/benchmarks.md tells
//! what the columns are.

use std::future::Ready;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, Compare, CompareOp, GetOptions, PutOptions, Txn as Request, TxnOp};
use synod::path::Path;
use synod::store::{Backend as _, SessionOptions};
use synod_bench::heard::heard;
use synod_bench::ours::{DATA, Door, Floor, made, node};
use synod_bench::race::{self, Race, Racer, Work, on_one_thread};
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
        let floor: Arc<dyn Racer> = Arc::new(Floor::prepare(store).await);
        let url = format!("etcd://{address}?session=60s");
        let door: Arc<dyn Racer> =
            Arc::new(Door::new(synod::connect(&url).await.expect("a session")));
        let ours = || [("store", floor.clone()), ("client", door.clone())];
        let bare = Arc::new(Bare::connect(&address).await);
        let same = Arc::new(Same::connect(&address).await);
        let all = [Work::GetLocal, Work::Get, Work::Set, Work::CreateDelete];
        Race::new(("bare", bare), ours()).all(&all).await;
        // What both read with is the same anyway.
        Race::new(("same", same), ours()).all(&[Work::Set, Work::CreateDelete]).await;
        if race::is_all() {
            changes(&backend, &address).await;
        }
    });
    ExitCode::SUCCESS
}

/// How soon a change is heard of, when nothing else goes on and amid other writes.
async fn changes(backend: &EtcdBackend, address: &str) {
    let session = SessionOptions::new(TTL);
    let writer = backend.open(&session).await.expect("a session");
    let reader = backend.open(&session).await.expect("a session");
    let stores = (&*writer, &*reader);
    let client = Client::connect([address], None).await.expect("a connection");
    let other = |number: u64| {
        let (mut kv, key) = (client.kv_client(), format!("/unrelated//{}", number % 100));
        async move {
            let _put = kv.put(key, DATA, None).await.expect("the server answers");
        }
    };
    table::print_heard_head();
    table::print_heard("nothing", heard(stores, None::<fn(u64) -> Ready<()>>).await);
    table::print_heard("1,000 other writes a second", heard(stores, Some(other)).await);
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

/// The bare crate, sending what the store sends: requests that keep a tree.
struct Same(Bare);

impl Same {
    async fn connect(address: &str) -> Self {
        Self(Bare::connect(address).await)
    }
}

/// The keys of a node and of the nodes above it, and the first and the last of those below.
struct Keys {
    own: String,
    above: Vec<String>,
    below: (String, String),
}

impl Keys {
    fn of(path: &Path) -> Self {
        let key = |path: &Path| match path.as_str().rsplit_once('/') {
            Some((dir, name)) => format!("{dir}//{name}"),
            None => unreachable!("paths begin with a slash"),
        };
        let (own, above) = (key(path), path.ancestors().map(|above| key(&above)).collect());
        Self { own, above, below: (format!("{path}/"), format!("{path}0")) }
    }

    fn childless(&self) -> Compare {
        let (first, last) = &self.below;
        Compare::version(first.as_str(), CompareOp::Equal, 0).with_range(last.as_str())
    }

    /// What is asked when a node could not be made or deleted.
    fn questions(&self) -> [TxnOp; 2] {
        let (first, last) = &self.below;
        let some = GetOptions::new().with_range(last.as_str()).with_keys_only().with_limit(1);
        [get(&self.own), TxnOp::get(first.as_str(), Some(some))]
    }

    fn create(&self, lease: i64) -> Request {
        let absent = Compare::version(self.own.as_str(), CompareOp::Equal, 0);
        let unleased = |key: &String| Compare::lease(key.as_str(), CompareOp::Equal, 0);
        let above = self.above.iter().map(unleased);
        let conditions = [absent, self.childless()].into_iter().chain(above);
        let put = TxnOp::put(self.own.as_str(), DATA, Some(PutOptions::new().with_lease(lease)));
        let asked = self.above.iter().map(|above| get(above));
        let questions = self.questions().into_iter().chain(asked);
        let request = Request::new().when(conditions.collect::<Vec<_>>()).and_then([put]);
        request.or_else(questions.collect::<Vec<_>>())
    }

    fn delete(&self) -> Request {
        let there = Compare::version(self.own.as_str(), CompareOp::Greater, 0);
        let delete = TxnOp::delete(self.own.as_str(), None);
        Request::new().when([there, self.childless()]).and_then([delete]).or_else(self.questions())
    }
}

fn get(key: &str) -> TxnOp {
    TxnOp::get(key, Some(GetOptions::new().with_keys_only()))
}

#[async_trait]
impl Racer for Same {
    async fn run(&self, work: Work, lane: usize, laps: usize) {
        let (node, made) = (Keys::of(&node(lane)), Keys::of(&made(lane)));
        let (mut kv, lease) = (self.0.client.kv_client(), self.0.lease);
        for _ in 0..laps {
            match work {
                Work::GetLocal | Work::Get => unreachable!("the bare one reads"),
                Work::Set => {
                    let keep = PutOptions::new().with_ignore_lease().with_prev_key();
                    let put = kv.put(node.own.as_str(), DATA, Some(keep)).await;
                    assert!(put.expect("the server answers").prev_key().is_some(), "it was made");
                }
                Work::CreateDelete => {
                    for request in [made.create(lease), made.delete()] {
                        let done = kv.txn(request).await.expect("the server answers");
                        assert!(done.succeeded(), "nobody else is there");
                    }
                }
            }
        }
    }
}
