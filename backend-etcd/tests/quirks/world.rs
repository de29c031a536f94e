//! [`World`]: servers of one test, sessions on them, and a plain client for other requests.

use std::time::Duration;

use etcd_client::Client;
use synod_core::error::Error;
use synod_core::path::Path;
use synod_core::store::{
    Backend as _, Event, Expect, Lifetime, Query, SessionOptions, Store, Txn, Watch,
};
use synod_etcd::{EtcdBackend, EtcdOptions};
use synod_servers::etcd::{Cluster, Flavour};
use synod_servers::pipe::Pipe;
use synod_testkit::limit::waits_for;
use tokio::time::{sleep, timeout};

pub(crate) struct World {
    pub(crate) cluster: Cluster,
}

/// The limit for everything that must eventually happen.
const LONG: Duration = Duration::from_secs(20);

impl World {
    pub(crate) fn new(size: usize, flavour: &Flavour) -> Self {
        Self { cluster: Cluster::start_with(size, flavour).expect("servers start") }
    }

    pub(crate) fn alone() -> Self {
        Self::new(1, &Flavour::default())
    }

    pub(crate) fn hosts(&self) -> Vec<String> {
        self.cluster.addresses().iter().map(ToString::to_string).collect()
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        EtcdOptions::new(self.hosts())
    }

    pub(crate) async fn session(&self, ttl: Duration) -> Box<dyn Store> {
        let backend = EtcdBackend::new(self.options()).expect("valid");
        backend.open(&SessionOptions::new(ttl)).await.expect("a session is opened")
    }

    /// The plain client of the crate `etcd-client`, connected to one server.
    pub(crate) async fn raw(&self) -> Client {
        Client::connect(&self.hosts()[..1], None).await.expect("valid")
    }
}

/// A session with its own link.
pub(crate) async fn through(world: &World, ttl: Duration) -> (Pipe, Box<dyn Store>) {
    let pipe = Pipe::start(&world.cluster.addresses()).expect("free ports");
    let hosts = EtcdOptions::new(pipe.addresses().iter().map(ToString::to_string));
    let backend = EtcdBackend::new(hosts).expect("valid");
    let store = backend.open(&SessionOptions::new(ttl)).await.expect("a session is opened");
    (pipe, store)
}

pub(crate) async fn open(options: EtcdOptions) -> Result<Box<dyn Store>, Error> {
    EtcdBackend::new(options)?.open(&SessionOptions::new(Duration::from_secs(5))).await
}

pub(crate) fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

pub(crate) async fn create(store: &dyn Store, at: &str, lifetime: Lifetime) {
    let txn = Txn::new().create(path(at), "x", lifetime);
    store.commit(txn).await.expect("answered").required().expect("free");
}

/// Sets a node that exists, repeatedly until a set is answered.
pub(crate) async fn set_in_the_end(store: &dyn Store, at: &str) {
    eventually("a set is answered", async || {
        let txn = Txn::new().set(path(at), "y", Expect::Any);
        store.commit(txn).await.is_ok()
    })
    .await;
}

pub(crate) async fn exists(store: &dyn Store, at: &str) -> bool {
    let view = store.read(Query::node(path(at))).await;
    view.expect("answered").node().is_some()
}

/// Waits for a change of this path.
pub(crate) async fn hears_of(watch: &mut Watch, at: &str) {
    waits_for(format_args!("an event of {at}"));
    let at = path(at);
    let hearing = async {
        loop {
            match watch.next().await {
                Some(Event::Changed(change)) if change.path == at => return,
                Some(Event::Changed(_)) => {}
                other => panic!("a change of {at} was to be reported, and not {other:?}"),
            }
        }
    };
    timeout(LONG, hearing).await.expect("reported in time");
}

pub(crate) async fn next(watch: &mut Watch) -> Event {
    timeout(LONG, watch.next()).await.expect("reported in time").expect("the watch goes on")
}

pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    waits_for(what);
    let waiting = async {
        while !holds().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(LONG, waiting).await.is_ok(), "{what}: not within {LONG:?}");
}
