//! The laws of stores, checked on real ZooKeeper servers.

use std::process::ExitCode;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use synod_conformance::harness::{Ability, Harness, Link, Profile};
use synod_conformance::run::Suite;
use synod_core::path::Path;
use synod_core::store::{Backend, Change, Kind, Revision, SessionId};
use synod_servers::clients::{self, entry::Fact};
use synod_servers::counter::Counter;
use synod_servers::links::Links;
use synod_servers::zookeeper::{Ensemble, TICK};
use synod_servers::{failure, required};
use synod_zk::{Access, ZkBackend, ZkOptions};

/// The last sequence that the backend gives: see `docs/zookeeper.md`.
const LAST_SEQUENCE: u32 = i32::MAX.unsigned_abs() - (1 << 20);

type Servers = LazyLock<Result<Ensemble, String>>;

/// All cases share them, each through links of its own.
static ONE: Servers = LazyLock::new(|| Ensemble::start(1));
static THREE: Servers = LazyLock::new(|| Ensemble::start(3));

/// The cases wait more than they compute.
const CONCURRENT_CASES: usize = 8;

/// More than the machine may have processors, so that the threads interrupt each other at any
/// point.
const WORKERS: usize = 4;

#[derive(Debug)]
struct ZooKeeper {
    servers: &'static Ensemble,
    links: Links,
    /// A server for this case alone, which is used in place of the others.
    counter: Option<Counter>,
}

impl ZooKeeper {
    fn start(servers: &'static Servers, needs: &[Ability]) -> Result<Self, String> {
        let servers = servers.as_ref().map_err(Clone::clone)?;
        let counter = needs.contains(&Ability::SequenceEnd).then(Counter::start).transpose()?;
        let addresses = match &counter {
            Some(counter) => vec![counter.address()],
            None => servers.followers(),
        };
        let links = Links::start(&addresses).map_err(|error| error.to_string())?;
        Ok(Self { servers, links, counter })
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
        Profile::new(Duration::from_secs(3), Duration::from_secs(10))
            .crowd(3_000)
            .offers(&[Ability::Expiry, Ability::TtlNodes, Ability::Links, Ability::Openings])
            .offers(&[Ability::WatchCount, Ability::TaskCount, Ability::SequenceEnd])
            .offers(&[Ability::Truth])
    }

    async fn expire(&self, session: SessionId) {
        self.links.expire(session).await.expect("a server runs");
    }

    async fn link(&self, session: SessionId, link: Link) {
        self.links.set(session, link);
    }

    async fn link_next(&self, link: Link) {
        self.links.set_next(link);
    }

    /// A majority of the servers has every answered write in its log.
    async fn truth(&self) -> Vec<Change> {
        let facts = self.servers.facts().expect("the servers' logs can be read");
        let change = |fact: Fact| {
            let kind = match fact.kind {
                clients::entry::Kind::Created => Kind::Created,
                clients::entry::Kind::Updated => Kind::Updated,
                clients::entry::Kind::Deleted => Kind::Deleted,
            };
            let path = Path::new(&fact.path).ok()?;
            Some(Change::new(path, kind).at(Revision::new(fact.revision)))
        };
        facts.into_iter().filter_map(change).collect()
    }

    async fn near_sequence_end(&self, dir: &Path) {
        let counter = self.counter.as_ref().expect("the case needs it");
        counter.bring(dir.as_str(), LAST_SEQUENCE - 10).expect("it runs");
    }

    async fn watches(&self) -> usize {
        self.servers.watches(&self.links.sessions()) + self.links.child_watches()
    }
}

fn main() -> ExitCode {
    let suite = |servers: &'static Servers| {
        Suite::by_need(move |needs| ZooKeeper::start(servers, needs)).at_once(CONCURRENT_CASES)
    };
    let obstacles = [&ONE, &THREE].map(|servers| servers.as_ref().err().map(String::as_str));
    if let Some(why) = failure(required(), obstacles) {
        panic!("{why}");
    }
    // Every case on both kinds of runtime, and on one kind for each size: twice as many runs would
    // find little more.
    Suite::main_of(vec![("one", suite(&ONE)), ("three", suite(&THREE).on_workers(WORKERS))])
}
