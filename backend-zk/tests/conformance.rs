//! The laws of stores, kept by real `ZooKeeper` servers.

use std::process::ExitCode;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use synod_conformance::harness::{Ability, Harness, Profile};
use synod_conformance::run::Suite;
use synod_conformance::server::zookeeper::{Ensemble, TICK};
use synod_core::store::Backend;
use synod_zk::{Access, ZkBackend, ZkOptions};

static SERVERS: LazyLock<Result<Ensemble, String>> = LazyLock::new(|| Ensemble::start(1));

#[derive(Debug)]
struct ZooKeeper(ZkBackend);

#[async_trait]
impl Harness for ZooKeeper {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.0.clone())
    }

    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(1), Duration::from_secs(10))
            .crowd(3_000)
            .offers(&[Ability::TtlNodes])
            .lacks(Ability::Truth, "the servers' logs are not read")
    }
}

fn main() -> ExitCode {
    Suite::fallible(|| {
        let servers = SERVERS.as_ref().map_err(Clone::clone)?;
        let hosts = servers.addresses().into_iter().map(|address| address.to_string());
        let options = ZkOptions::new(hosts).access(Access::Open).tick(TICK);
        Ok(ZooKeeper(ZkBackend::new(options).map_err(|error| error.to_string())?))
    })
    .main()
}
