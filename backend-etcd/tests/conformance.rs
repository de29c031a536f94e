//! The laws of stores, checked on etcd.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, EventType, WatchOptions};
use synod_conformance::harness::{Ability, Harness, Link, Profile};
use synod_conformance::run::Suite;
use synod_core::error::Error;
use synod_core::path::Path;
use synod_core::store::{Backend, Change, Kind, Revision, SessionId, SessionOptions, Store};
use synod_etcd::{EtcdBackend, EtcdOptions};
use synod_servers::etcd::{Cluster, Flavour};
use synod_servers::pipe::Pipe;
use synod_servers::{failure, required};

type Servers = LazyLock<Result<Cluster, String>>;

/// Nearly all cases share them.
static ONE: Servers = LazyLock::new(|| cluster(1));
static THREE: Servers = LazyLock::new(|| cluster(3));

/// The cases wait more than they compute.
const AT_ONCE: usize = 16;

/// More than the machine may have processors, so that the threads interrupt each other at any
/// point.
const WORKERS: usize = 4;

/// Abilities that need servers and links of the case alone: etcd counts the watches of all clients
/// together and keeps the writes of all clients, and links are kept going by tasks.
const ALONE: &[Ability] = &[Ability::WatchCount, Ability::Truth, Ability::TaskCount];

/// Servers whose followers wait longer for their leader than usual: no case is about another
/// leader, and a busy machine is not to cause one. A time to live of one second is still granted.
fn cluster(size: usize) -> Result<Cluster, String> {
    let mut flavour = Flavour::default();
    flavour.arguments = ["--election-timeout", "600"].map(str::to_owned).to_vec();
    Cluster::start_with(size, &flavour)
}

#[derive(Debug)]
enum Etcd {
    Linked(Linked),
    Alone(Alone),
}

/// The servers of all cases. Every session has its own link.
#[derive(Clone, Debug)]
struct Linked {
    servers: &'static Cluster,
    /// The link of the next session.
    next: Arc<Mutex<Option<Link>>>,
    pipes: Arc<Mutex<BTreeMap<SessionId, Arc<Pipe>>>>,
}

/// Servers of a single case, without a proxy between them and the store.
#[derive(Debug)]
struct Alone {
    servers: Cluster,
    backend: EtcdBackend,
}

impl Etcd {
    fn start(shared: &'static Servers, needs: &[Ability]) -> Result<Self, String> {
        let servers = shared.as_ref().map_err(Clone::clone)?;
        if needs.iter().any(|need| ALONE.contains(need)) {
            let servers = cluster(servers.addresses().len())?;
            let backend = EtcdBackend::new(options(&servers)).map_err(|error| error.to_string())?;
            return Ok(Self::Alone(Alone { servers, backend }));
        }
        Ok(Self::Linked(Linked { servers, next: Arc::default(), pipes: Arc::default() }))
    }

    fn servers(&self) -> &Cluster {
        match self {
            Self::Linked(linked) => linked.servers,
            Self::Alone(alone) => &alone.servers,
        }
    }

    /// The plain client of the crate `etcd-client`.
    async fn raw(&self) -> Client {
        let hosts = self.servers().addresses();
        Client::connect([hosts[0].to_string()], None).await.expect("valid")
    }
}

fn options(servers: &Cluster) -> EtcdOptions {
    EtcdOptions::new(servers.addresses().iter().map(ToString::to_string))
}

#[async_trait]
impl Backend for Linked {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>, Error> {
        let pipe = Pipe::start(&self.servers.addresses()).expect("free ports");
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        pipe.set(next.unwrap_or(Link::Open));
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
        match self {
            Self::Linked(linked) => Arc::new(linked.clone()),
            Self::Alone(alone) => Arc::new(alone.backend.clone()),
        }
    }

    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(3), Duration::from_secs(10))
            .crowd(3_000)
            .offers(&[Ability::Expiry, Ability::TtlNodes, Ability::Links, Ability::Openings])
            .offers(ALONE)
            .lacks(
                Ability::SequenceEnd,
                "a sequence is a revision of etcd, of which there are 2^63",
            )
    }

    async fn expire(&self, session: SessionId) {
        let lease = i64::from_ne_bytes(session.get().to_ne_bytes());
        self.raw().await.lease_client().revoke(lease).await.expect("it lives");
    }

    async fn link(&self, session: SessionId, link: Link) {
        let Self::Linked(linked) = self else { panic!("servers of one's own have no links") };
        let pipes = linked.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        pipes[&session].set(link);
    }

    async fn link_next(&self, link: Link) {
        let Self::Linked(linked) = self else { panic!("servers of one's own have no links") };
        *linked.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(link);
    }

    async fn watches(&self) -> usize {
        usize::try_from(self.servers().watches()).expect("few")
    }

    /// etcd keeps its whole history, because nothing compacts it here.
    async fn truth(&self) -> Vec<Change> {
        let mut client = self.raw().await;
        let now = client.get("now", None).await.expect("answered");
        let now = now.header().expect("always there").revision();
        let all = WatchOptions::new().with_all_keys().with_start_revision(1);
        let mut history = client.watch("", Some(all)).await.expect("answered");
        let (mut truth, mut last) = (Vec::new(), 1);
        while last < now {
            let told = history.message().await.expect("answered").expect("it goes on");
            for event in told.events() {
                let kv = event.kv().expect("always there");
                let kind = match event.event_type() {
                    EventType::Delete => Kind::Deleted,
                    EventType::Put if kv.version() == 1 => Kind::Created,
                    EventType::Put => Kind::Updated,
                };
                last = kv.mod_revision();
                let revision = Revision::new(u64::try_from(last).expect("positive"));
                truth.push(Change::new(path(kv.key()), kind).at(revision));
            }
        }
        truth
    }
}

/// The path of the node that a key belongs to: `/a/b//c` is `/a/b/c`.
fn path(key: &[u8]) -> Path {
    let key = std::str::from_utf8(key).expect("only nodes are here");
    let (dir, name) = key.rsplit_once("//").expect("only nodes are here");
    Path::new(&format!("{dir}/{name}")).expect("only nodes are here")
}

fn main() -> ExitCode {
    let suite = |servers: &'static Servers| {
        Suite::by_need(move |needs| Etcd::start(servers, needs)).at_once(AT_ONCE)
    };
    let obstacles = [&ONE, &THREE].map(|servers| servers.as_ref().err().map(String::as_str));
    if let Some(why) = failure(required(), obstacles) {
        panic!("{why}");
    }
    // Every case on both kinds of runtime, and on one kind for each size: twice as many runs would
    // find little more.
    Suite::main_of(vec![("one", suite(&ONE)), ("three", suite(&THREE).on_workers(WORKERS))])
}
