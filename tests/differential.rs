//! The same programs on memory, in a directory, on ZooKeeper and on etcd, compared: any difference
//! is a bug, or a sentence that the contract lacks.
//!
//! `SYNOD_PROGRAMS=10000` runs that many programs instead of the usual number, and `SYNOD_SEED`
//! repeats a failure.

#![expect(clippy::print_stdout, reason = "it says how much was compared")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::Client;
use libtest_mimic::{Arguments, Failed, Trial};
use synod::Config;
use synod::file::{FileBackend, FileOptions};
use synod::mem::MemBackend;
use synod_conformance::differential::Comparison;
use synod_conformance::harness::{Ability, Harness, Profile};
use synod_core::random::Random;
use synod_core::store::{Backend, SessionId, SessionOptions, Store};
use synod_servers::etcd::Cluster;
use synod_servers::home::Home;
use synod_servers::links::Links;
use synod_servers::required;
use synod_servers::zookeeper::{Ensemble, TICK};
use synod_testkit::limit::limited;

/// The seed of the usual run.
const ORDINARY: u64 = 1;

/// Programs whose results once differed between the stores. They are run first.
const KEPT: &[u64] = &[
    // A node that took the place of an empty container was reported as created, and then as
    // updated.
    0x0a30_b75c_9649_b445,
    // A delete of a ticket that was gone reported this, though a node was below its path by then.
    0x50e0_b743_1ced_e519,
];

/// The number of programs that are compared by default.
const USUAL: usize = 200;

/// The time limit: enough for ten thousand programs on a slow machine.
const LIMIT: Duration = Duration::from_secs(4 * 3_600);

static ZOOKEEPER: LazyLock<Result<Ensemble, String>> = LazyLock::new(|| Ensemble::start(size()));
static ETCD: LazyLock<Result<Cluster, String>> = LazyLock::new(|| Cluster::start(size()));

fn size() -> usize {
    std::env::var("SYNOD_SERVERS").ok().and_then(|size| size.parse().ok()).unwrap_or(1)
}

#[derive(Debug, Default)]
struct Memory(MemBackend);

/// A directory with two seats: each session is opened in the next one, as if there were two
/// processes.
#[derive(Clone, Debug)]
struct Directory(Arc<Seats>);

#[derive(Debug)]
struct Seats {
    _home: Home,
    backends: [FileBackend; 2],
    next: AtomicUsize,
}

#[derive(Debug)]
struct ZooKeeper(Links);

#[derive(Debug)]
struct Etcd(Vec<String>);

impl Directory {
    fn new() -> Result<Self, String> {
        let home = Home::in_memory("differential").map_err(|error| error.to_string())?;
        let options = FileOptions::new(home.path().join("store")).separate(true);
        let backends = [FileBackend::new(options.clone()), FileBackend::new(options)];
        Ok(Self(Arc::new(Seats { _home: home, backends, next: AtomicUsize::new(0) })))
    }
}

impl ZooKeeper {
    fn start() -> Result<Self, String> {
        let servers = ZOOKEEPER.as_ref().map_err(Clone::clone)?;
        Ok(Self(Links::start(&servers.addresses()).map_err(|error| error.to_string())?))
    }
}

impl Etcd {
    fn start() -> Result<Self, String> {
        let servers = ETCD.as_ref().map_err(Clone::clone)?;
        Ok(Self(servers.addresses().iter().map(ToString::to_string).collect()))
    }
}

fn at(url: &str) -> Arc<dyn Backend> {
    Config::new(url).and_then(|config| config.backend()).expect("the URL is valid")
}

fn profile() -> Profile {
    // No program waits for a session to expire, and no session should expire on a busy machine.
    Profile::new(Duration::from_secs(20), Duration::from_secs(10))
        .offers(&[Ability::Expiry, Ability::TtlNodes])
}

#[async_trait]
impl Harness for Memory {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.0.clone())
    }

    fn profile(&self) -> Profile {
        profile()
    }

    async fn expire(&self, session: SessionId) {
        self.0.expire(session);
    }
}

#[async_trait]
impl Backend for Directory {
    async fn open(&self, options: &SessionOptions) -> synod::Result<Box<dyn Store>> {
        let next = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.0.backends[next % self.0.backends.len()].open(options).await
    }
}

#[async_trait]
impl Harness for Directory {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.clone())
    }

    fn profile(&self) -> Profile {
        profile()
    }

    async fn expire(&self, session: SessionId) {
        self.0.backends[0].expire(session).await.expect("the directory is there");
    }
}

#[async_trait]
impl Harness for ZooKeeper {
    fn backend(&self) -> Arc<dyn Backend> {
        let hosts: Vec<_> = self.0.addresses().iter().map(ToString::to_string).collect();
        at(&format!("zk://{}?acl=open&tick={}ms", hosts.join(","), TICK.as_millis()))
    }

    fn profile(&self) -> Profile {
        profile()
    }

    async fn expire(&self, session: SessionId) {
        self.0.expire(session).await.expect("a server runs");
    }
}

#[async_trait]
impl Harness for Etcd {
    fn backend(&self) -> Arc<dyn Backend> {
        at(&format!("etcd://{}", self.0.join(",")))
    }

    fn profile(&self) -> Profile {
        profile()
    }

    async fn expire(&self, session: SessionId) {
        let lease = i64::from_ne_bytes(session.get().to_ne_bytes());
        let client = Client::connect(&self.0[..1], None).await.expect("valid");
        client.lease_client().revoke(lease).await.expect("it lives");
    }
}

type Start = fn() -> Result<Arc<dyn Harness>, String>;

fn compare(start: Start) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let compared = runtime.block_on(async {
        let stores: [Arc<dyn Harness>; 2] = [Arc::new(Memory::default()), start()?];
        for seed in KEPT {
            let kept = Comparison::new(&stores, *seed).programs(1).run().await;
            kept.map_err(|found| found.to_string())?;
        }
        // The default run is always the same; a run with more programs has a new seed each time.
        let more = std::env::var_os("SYNOD_PROGRAMS").is_some();
        let seed = if more { Random::from_system().number() } else { ORDINARY };
        let comparison = Comparison::new(&stores, seed).programs(USUAL);
        comparison.from_environment().run().await.map_err(|found| found.to_string())
    });
    runtime.shutdown_background();
    let tally = compared?;
    println!("{tally}");
    // Programs that end early prove little.
    assert!(tally.whole > tally.part, "{tally}");
    Ok(())
}

fn trial(other: &'static str, start: Start, there: Result<(), String>) -> Trial {
    let trial = Trial::test(format!("memory_and_{other}_do_the_same"), move || {
        limited(LIMIT, move || compare(start))?
    });
    match there {
        Ok(()) => trial,
        Err(why) => {
            assert!(!required(), "{why}");
            trial.with_ignored_flag(true).with_kind(format!("cannot run: {why}"))
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // A list of the tests starts no server.
    let there = |start: fn() -> Result<(), String>| if arguments.list { Ok(()) } else { start() };
    let zookeeper = there(|| ZOOKEEPER.as_ref().map(drop).map_err(Clone::clone));
    let etcd = there(|| ETCD.as_ref().map(drop).map_err(Clone::clone));
    let trials = vec![
        trial("memory", || Ok(Arc::new(Memory::default())), Ok(())),
        trial("a_directory", || Ok(Arc::new(Directory::new()?)), Ok(())),
        trial("zookeeper", || Ok(Arc::new(ZooKeeper::start()?)), zookeeper),
        trial("etcd", || Ok(Arc::new(Etcd::start()?)), etcd),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}
