//! The laws of stores, kept by etcd.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::Client;
use synod_conformance::harness::{Ability, Harness, Link, Profile};
use synod_conformance::run::Suite;
use synod_conformance::server::etcd::Cluster;
use synod_conformance::server::pipe::Pipe;
use synod_conformance::server::required;
use synod_core::error::Error;
use synod_core::store::{Backend, SessionId, SessionOptions, Store};
use synod_etcd::{EtcdBackend, EtcdOptions};

type Servers = LazyLock<Result<Cluster, String>>;

/// All cases share them.
static ONE: Servers = LazyLock::new(|| Cluster::start(1));
static THREE: Servers = LazyLock::new(|| Cluster::start(3));

/// The cases wait more than they work.
const AT_ONCE: usize = 8;

/// Every session has a link of its own.
#[derive(Clone, Debug)]
struct Etcd {
    servers: &'static Cluster,
    pipes: Arc<Mutex<BTreeMap<SessionId, Arc<Pipe>>>>,
}

impl Etcd {
    fn start(servers: &'static Servers) -> Result<Self, String> {
        let servers = servers.as_ref().map_err(Clone::clone)?;
        Ok(Self { servers, pipes: Arc::default() })
    }
}

#[async_trait]
impl Backend for Etcd {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>, Error> {
        let pipe = Pipe::start(&self.servers.addresses()).expect("free ports");
        let hosts = EtcdOptions::new(pipe.addresses().iter().map(ToString::to_string));
        let store = EtcdBackend::new(hosts)?.open(options).await?;
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        pipes.insert(store.session().id, Arc::new(pipe));
        Ok(store)
    }
}

#[async_trait]
impl Harness for Etcd {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.clone())
    }

    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(1), Duration::from_secs(10))
            .crowd(3_000)
            .offers(&[Ability::Expiry, Ability::TtlNodes, Ability::Links])
            .lacks(Ability::WatchCount, "etcd counts the watches of everybody together")
            .lacks(Ability::TaskCount, "each session has a link of its own, which stays")
            .lacks(Ability::Truth, "the servers' logs are not read")
    }

    async fn expire(&self, session: SessionId) {
        let lease = i64::from_ne_bytes(session.get().to_ne_bytes());
        let hosts = self.servers.addresses();
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let client = Client::connect(&hosts[..1], None).await.expect("valid");
        client.lease_client().revoke(lease).await.expect("it lives");
    }

    async fn link(&self, session: SessionId, link: Link) {
        let pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        pipes[&session].set(link);
    }
}

fn main() -> ExitCode {
    let suite =
        |servers: &'static Servers| Suite::fallible(move || Etcd::start(servers)).at_once(AT_ONCE);
    if let (true, Err(why)) = (required(), &*ONE) {
        panic!("{why}");
    }
    Suite::main_of(vec![("one", suite(&ONE)), ("three", suite(&THREE))])
}
