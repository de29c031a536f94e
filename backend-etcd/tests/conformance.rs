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

/// One server, or as many as are asked for: all cases share them.
static SERVERS: LazyLock<Result<Cluster, String>> = LazyLock::new(|| {
    let size = std::env::var("SYNOD_SERVERS").ok().and_then(|size| size.parse().ok());
    Cluster::start(size.unwrap_or(1))
});

/// Every session has a link of its own.
#[derive(Clone, Debug, Default)]
struct Etcd(Arc<Mutex<BTreeMap<SessionId, Arc<Pipe>>>>);

fn servers() -> Result<&'static Cluster, String> {
    SERVERS.as_ref().map_err(Clone::clone)
}

#[async_trait]
impl Backend for Etcd {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>, Error> {
        let pipe = Pipe::start(&servers().expect("running").addresses()).expect("free ports");
        let hosts = EtcdOptions::new(pipe.addresses().iter().map(ToString::to_string));
        let store = EtcdBackend::new(hosts)?.open(options).await?;
        let mut pipes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let hosts = servers().expect("running").addresses();
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let client = Client::connect(&hosts[..1], None).await.expect("valid");
        client.lease_client().revoke(lease).await.expect("it lives");
    }

    async fn link(&self, session: SessionId, link: Link) {
        let pipes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pipes[&session].set(link);
    }
}

fn main() -> ExitCode {
    let there = servers().map(drop);
    assert!(there.is_ok() || !required(), "{there:?}");
    Suite::fallible(|| servers().map(|_| Etcd::default())).main()
}
