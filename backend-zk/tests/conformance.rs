//! The laws of stores, kept by real ZooKeeper servers.

use std::process::ExitCode;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use synod_conformance::harness::{Ability, Harness, Link, Profile};
use synod_conformance::run::Suite;
use synod_conformance::server::links::Links;
use synod_conformance::server::required;
use synod_conformance::server::zookeeper::{Ensemble, TICK};
use synod_core::store::{Backend, SessionId};
use synod_zk::{Access, ZkBackend, ZkOptions};

/// One server, or as many as are asked for: all cases share them, each through links of its own.
static SERVERS: LazyLock<Result<Ensemble, String>> = LazyLock::new(|| {
    let size = std::env::var("SYNOD_SERVERS").ok().and_then(|size| size.parse().ok());
    Ensemble::start(size.unwrap_or(1))
});

#[derive(Debug)]
struct ZooKeeper {
    servers: &'static Ensemble,
    links: Links,
}

impl ZooKeeper {
    fn start() -> Result<Self, String> {
        let servers = SERVERS.as_ref().map_err(Clone::clone)?;
        let links = Links::start(&servers.addresses()).map_err(|error| error.to_string())?;
        Ok(Self { servers, links })
    }
}

#[async_trait]
impl Harness for ZooKeeper {
    fn backend(&self) -> Arc<dyn Backend> {
        let hosts = self.links.addresses().iter().map(ToString::to_string);
        let options = ZkOptions::new(hosts).access(Access::Open).tick(TICK);
        Arc::new(ZkBackend::new(options).expect("valid"))
    }

    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(1), Duration::from_secs(10))
            .crowd(3_000)
            .offers(&[Ability::Expiry, Ability::TtlNodes, Ability::Links])
            .offers(&[Ability::WatchCount, Ability::TaskCount])
            .lacks(Ability::Truth, "the servers' logs are not read")
    }

    async fn expire(&self, session: SessionId) {
        self.links.expire(session).await.expect("a server runs");
    }

    async fn link(&self, session: SessionId, link: Link) {
        self.links.set(session, link);
    }

    async fn watches(&self) -> usize {
        self.servers.watches(&self.links.sessions())
    }
}

fn main() -> ExitCode {
    if let (true, Err(why)) = (required(), &*SERVERS) {
        panic!("{why}");
    }
    Suite::fallible(ZooKeeper::start).main()
}
