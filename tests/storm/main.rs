//! Each of three real servers is killed and started again, one after the other. The connections of a thousand nodes that are
//! kept, and of a hundred caches of them, are lost at one moment, and come back.
//!
//! `SYNOD_MISTAKES=1` lets every member make the mistakes that this must find, one after the other, and fails if one is
//! not found.

#![expect(clippy::print_stdout, reason = "it says what the storm cost")]

mod counted;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use futures_util::{FutureExt as _, StreamExt as _};
use libtest_mimic::{Arguments, Failed, Trial};
use synod::client::{Client, ClientOptions};
use synod::recipe::{Cache, CacheEvent, Extent, KeptNode, PersistentNode};
use synod::store::{Backend, Node, Revision, SessionId, SessionOptions};
use synod::{Config, Path, path};
use synod_conformance::wrong::{Mistake, Wrong};
use synod_core::mutant::Mutant;
use synod_testkit::limit::{limited, waits_for};
use synod_testkit::server::etcd::Cluster;
use synod_testkit::server::members::{Kind, Members};
use synod_testkit::server::required;
use synod_testkit::server::zookeeper::{Ensemble, TICK};
use tokio::time::{Instant, sleep};

use crate::counted::{Calls, Counted};

const SERVERS: usize = 3;
const CLIENTS: usize = 10;
/// The nodes that each client keeps.
const NODES: usize = 100;
/// The caches that each client has.
const CACHES: usize = 10;
/// So long that sessions outlive the election of the next leader.
const TTL: Duration = Duration::from_secs(20);
/// How many calls each node and each cache may cost, whatever happens, and in each second of the outage.
const CALLS: usize = 4;
/// Longer than a slow machine takes.
const LIMIT: Duration = Duration::from_secs(600);

/// Longer than a storm takes that shows a mistake.
const LIMIT_OF_MISTAKES: Duration = Duration::from_secs(180);

/// A mistake of every member.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Store(Mistake),
    Core(Mutant),
}

/// The mistakes that this must find, each with what it says then.
const FAULTS: &[(Fault, &str)] = &[
    (Fault::Core(Mutant::RetriesInAStorm), " calls of member "),
    (Fault::Store(Mistake::WatchSilentAfterOutage), "still waiting for all show it"),
];

/// A process that keeps nodes and has caches.
struct Member {
    client: Client,
    calls: Calls,
    nodes: Vec<KeptNode>,
    caches: Vec<Cache>,
}

impl Member {
    async fn join(url: &str, number: usize, fault: Option<Fault>) -> synod::Result<Self> {
        let mut backend = Config::new(url)?.backend()?;
        if let Some(Fault::Store(mistake)) = fault {
            backend = Arc::new(Wrong::new(backend, mistake)) as Arc<dyn Backend>;
        }
        let calls = Calls::default();
        let options = ClientOptions::default()
            .session(SessionOptions::new(TTL))
            .connect_deadline(LIMIT)
            .deadline(LIMIT);
        let counted = Counted { backend, calls: calls.clone() };
        let client = Client::open(counted, options).await?;
        let names = (0..NODES).map(|node| format!("{number:02}-{node:03}"));
        let keeping = names.map(|name| {
            let client = client.clone();
            async move { PersistentNode::new(&client, dir().join(&name)?).keep("first").await }
        });
        let nodes = try_join_all(keeping).await?;
        Ok(Self { client, calls, nodes, caches: Vec::new() })
    }

    /// Fills the caches, once all nodes are there.
    async fn copy(&mut self) -> synod::Result<()> {
        let opening = (0..CACHES).map(|_| Cache::open(&self.client, Extent::children(dir())));
        self.caches = try_join_all(opening).await?;
        Ok(())
    }

    fn is_back(&self, data: &str) -> bool {
        let shows = |cache: &Cache| {
            let nodes = cache.children(&dir());
            cache.state().is_live()
                && nodes.len() == CLIENTS * NODES
                && nodes.iter().all(|node| node.data == data.as_bytes())
        };
        self.nodes.iter().all(KeptNode::is_there) && self.caches.iter().all(shows)
    }
}

fn dir() -> Path {
    path!("/storm")
}

fn created(nodes: &[Node]) -> BTreeMap<String, Option<Revision>> {
    nodes.iter().map(|node| (node.path.to_string(), node.stat.map(|stat| stat.created))).collect()
}

async fn sessions(members: &[Member]) -> synod::Result<Vec<SessionId>> {
    let of_member = |member: &Member| {
        let client = member.client.clone();
        async move { Ok(client.session().await?.info().id) }
    };
    try_join_all(members.iter().map(of_member)).await
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    waits_for(what);
    while !is_so() {
        sleep(Duration::from_millis(20)).await;
    }
}

async fn storm<K: Kind>(
    servers: &mut Members<K>,
    url: &str,
    fault: Option<Fault>,
) -> Result<(), Failed> {
    waits_for("the members join");
    let joining = (0..CLIENTS).map(|number| Member::join(url, number, fault));
    let mut members = try_join_all(joining).await?;
    waits_for("the caches are complete");
    try_join_all(members.iter_mut().map(Member::copy)).await?;
    until("all is quiet", || members.iter().all(|member| member.is_back("first"))).await;
    let before = created(&members[0].caches[0].children(&dir()));
    let were = sessions(&members).await?;
    let mut readers: Vec<_> = members
        .iter()
        .flat_map(|member| &member.caches)
        .map(|cache| Box::pin(cache.events()))
        .collect();
    // Each reader begins with all nodes.
    join_all(readers.iter_mut().map(|reader| reader.by_ref().take(CLIENTS * NODES).count())).await;
    let sent: Vec<usize> =
        members.iter().map(|member| member.calls.load(Ordering::Relaxed)).collect();

    let began = Instant::now();
    // Whichever server a member is connected to, that is among them.
    for server in 0..SERVERS {
        servers.kill(server)?;
        until("another server leads", || servers.leader().is_some()).await;
        servers.restart(server)?;
        until("all are back", || members.iter().all(|member| member.is_back("first"))).await;
    }
    let outage = began.elapsed();

    // The sessions live, so no node has gone, and no client has made one again.
    if sessions(&members).await? != were {
        return Err(format!("a session ended in {outage:?}: too busy for a verdict").into());
    }
    for (number, (member, before)) in members.iter().zip(sent).enumerate() {
        let calls = member.calls.load(Ordering::Relaxed) - before;
        let seconds = usize::try_from(outage.as_secs())? + 1;
        let most = CALLS * (NODES + CACHES) * seconds;
        println!("member {number}: {calls} calls, {outage:?}");
        assert!(calls <= most, "{calls} calls of member {number} in {outage:?}, and not {most}");
    }
    for member in &members {
        for cache in &member.caches {
            assert_eq!(created(&cache.children(&dir())), before, "a node was made again");
        }
    }

    // They are more than a picture of what was: the caches show what is written now.
    waits_for("the nodes are written");
    try_join_all(members.iter().flat_map(|member| &member.nodes).map(|node| node.set("second")))
        .await?;
    until("all show it", || members.iter().all(|member| member.is_back("second"))).await;
    for reader in &mut readers {
        while let Some(Some(event)) = reader.next().now_or_never() {
            match event {
                CacheEvent::Created(node) | CacheEvent::Deleted(node) => {
                    return Err(format!("a cache reported {} as made or gone", node.path).into());
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn play<K: Kind>(
    start: fn(usize) -> Result<Members<K>, String>,
    url: fn(&[String]) -> String,
    fault: Option<Fault>,
) -> Result<(), Failed> {
    let mut servers = start(SERVERS)?;
    let hosts: Vec<String> = servers.addresses().iter().map(ToString::to_string).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut play = || runtime.block_on(storm(&mut servers, &url(&hosts), fault));
    let played = match fault {
        Some(Fault::Core(mutant)) => with(mutant, play),
        Some(Fault::Store(_)) | None => play(),
    };
    runtime.shutdown_background();
    played
}

/// Plays it with a mistake of core, on this thread as the members do.
#[cfg(feature = "mutants")]
fn with<T>(mutant: Mutant, play: impl FnOnce() -> T) -> T {
    synod_core::mutant::with(mutant, play)
}

#[cfg(not(feature = "mutants"))]
fn with<T>(mutant: Mutant, _play: impl FnOnce() -> T) -> T {
    panic!("{mutant} is not in this program: it needs the feature mutants")
}

type Play = fn(Option<Fault>) -> Result<(), Failed>;

fn zookeeper(fault: Option<Fault>) -> Result<(), Failed> {
    let url =
        |hosts: &[String]| format!("zk://{}?acl=open&tick={}ms", hosts.join(","), TICK.as_millis());
    play(Ensemble::start, url, fault)
}

fn etcd(fault: Option<Fault>) -> Result<(), Failed> {
    play(Cluster::start, |hosts| format!("etcd://{}", hosts.join(",")), fault)
}

/// Checks that it fails as it should when every member makes this mistake.
fn shows(play: Play, fault: Fault, sign: &str) -> Result<(), Failed> {
    let limit = LIMIT_OF_MISTAKES;
    let shown = catch_unwind(AssertUnwindSafe(|| limited(limit, move || play(Some(fault)))));
    let said = match shown {
        Ok(Ok(Ok(()))) => return Err(format!("{fault:?} was not noticed").into()),
        Ok(Ok(Err(failed))) => failed.message().unwrap_or_default().to_owned(),
        Ok(Err(over_limit)) => over_limit,
        Err(panicked) => panicked.downcast_ref::<String>().cloned().unwrap_or_default(),
    };
    if said.contains(sign) {
        return Ok(());
    }
    Err(format!("{fault:?}, and this is not about it: {said}").into())
}

/// The storm, or one trial for each mistake that it must find, if that is requested.
fn trials(store: &str, missing: Option<String>, play: Play) -> Vec<Trial> {
    let name = format!("{store}::what_was_kept_stays_when_servers_die");
    let trials = if std::env::var_os("SYNOD_MISTAKES").is_some() {
        let of_fault = |&(fault, sign): &(Fault, &'static str)| {
            let name = format!("{name}::shows_{fault:?}");
            Trial::test(name, move || shows(play, fault, sign))
        };
        FAULTS.iter().map(of_fault).collect()
    } else {
        vec![Trial::test(name, move || limited(LIMIT, move || play(None))?)]
    };
    let Some(why) = missing else { return trials };
    assert!(!required(), "{why}");
    let cannot_run =
        |trial: Trial| trial.with_ignored_flag(true).with_kind(format!("cannot run: {why}"));
    trials.into_iter().map(cannot_run).collect()
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each has three servers.
    arguments.test_threads = arguments.test_threads.or(Some(1));
    let mut all = trials("zookeeper", Ensemble::missing(), zookeeper);
    all.extend(trials("etcd", Cluster::missing(), etcd));
    libtest_mimic::run(&arguments, all).exit_code()
}
