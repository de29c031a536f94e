//! Each of three real servers is killed and started again, one after the other, and then all of
//! them. The connections of a thousand nodes that are kept and written, and of a hundred caches of
//! them, are lost at the same time, and are restored.
//!
//! `SYNOD_MISTAKES=1` lets every member make the mistakes that this must find, one after the other,
//! and fails if one is not found.

#![expect(clippy::print_stdout, reason = "it says what the storm cost")]

mod counted;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{join, join_all, try_join_all};
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use libtest_mimic::{Arguments, Failed, Trial};
use synod::cache::{Cache, CacheEvent, Extent};
use synod::presence::{KeptNode, PersistentNode};
use synod::{Client, ClientOptions};
use synod::{Config, Path, path};
use synod_conformance::wrong::{Mistake, Wrong};
use synod_core::store::{Backend, Node, Revision, SessionId, SessionOptions};
use synod_servers::etcd::Cluster;
use synod_servers::members::{Kind, Members};
use synod_servers::required;
use synod_servers::zookeeper::{Ensemble, TICK};
use synod_testkit::limit::{limited, waits_for};
use tokio::time::{Instant, sleep};

use crate::counted::{Calls, Counted};

const SERVERS: usize = 3;
const CLIENTS: usize = 10;
/// The nodes that each client keeps.
const NODES: usize = 100;
/// The caches that each client has.
const CACHES: usize = 10;
/// The TTL: so long that sessions outlive the election of the next leader.
const TTL: Duration = Duration::from_secs(20);
/// The time for which servers are down.
const OUTAGE: Duration = Duration::from_millis(500);
/// The maximum number of calls for each node and each cache, in any case, and again in each second
/// of the outage.
const CALLS: usize = 4;
/// The time limit of calls and of a storm: longer than a slow machine needs.
const LIMIT: Duration = Duration::from_secs(600);

/// The time limit of a storm with a mistake: longer than the time to show the mistake.
const LIMIT_OF_MISTAKES: Duration = Duration::from_secs(120);

/// The mistakes of stores that this must find.
const MISTAKES: &[Mistake] = &[Mistake::WatchSilentAfterOutage, Mistake::EventDropped];
/// The message when a mistake is found: the caches do not show the last writes.
const SIGN: &str = "still waiting for all";

/// A process that keeps nodes and has caches.
struct Member {
    client: Client,
    calls: Calls,
    nodes: Vec<KeptNode>,
    caches: Vec<Cache>,
}

impl Member {
    async fn join(url: &str, number: usize, mistake: Option<Mistake>) -> synod::Result<Self> {
        let mut backend = Config::new(url)?.backend()?;
        if let Some(mistake) = mistake {
            backend = Arc::new(Wrong::new(backend, mistake)) as Arc<dyn Backend>;
        }
        let calls = Calls::default();
        let options = ClientOptions::default()
            .session(SessionOptions::new(TTL))
            .connect_timeout(LIMIT)
            .timeout(LIMIT);
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

/// Writes all nodes.
async fn write(members: &[Member], data: &str) -> synod::Result<()> {
    let nodes = members.iter().flat_map(|member| &member.nodes);
    try_join_all(nodes.map(|node| node.set(data.to_owned()))).await?;
    Ok(())
}

/// Checks that these readers are shown neither the removal of a node nor its repeated creation.
fn only_updates(readers: &mut [impl Stream<Item = CacheEvent> + Unpin]) -> Result<(), Failed> {
    for reader in readers {
        while let Some(Some(event)) = reader.next().now_or_never() {
            match event {
                CacheEvent::Created(node) | CacheEvent::Deleted(node) => {
                    return Err(format!("a cache reported {} as made or gone", node.path).into());
                }
                CacheEvent::Reset => return Err("a reader missed events".into()),
                _ => {}
            }
        }
    }
    Ok(())
}

async fn storm<K: Kind>(
    servers: &mut Members<K>,
    url: &str,
    mistake: Option<Mistake>,
) -> Result<(), Failed> {
    waits_for("the members join");
    let joining = (0..CLIENTS).map(|number| Member::join(url, number, mistake));
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
    // Each alone: the server of each member is among them. Then all: no server answers for a while.
    for round in 0..=SERVERS {
        let lost = if round < SERVERS { round..round + 1 } else { 0..SERVERS };
        for server in lost.clone() {
            servers.kill(server)?;
        }
        // The writes fail at first, and are tried again.
        let data = format!("round {round}");
        waits_for("the nodes are written while servers are down");
        let writing = write(&members, &data);
        let coming_back = async {
            if round < SERVERS {
                until("another server leads", || servers.leader().is_some()).await;
            }
            sleep(OUTAGE).await;
            for server in lost {
                servers.restart(server)?;
            }
            Ok(())
        };
        let (written, restarted): (_, std::io::Result<()>) = join(writing, coming_back).await;
        written?;
        restarted?;
        until("all are back", || members.iter().all(|member| member.is_back(&data))).await;
        // Where the sessions are alive, no node was removed, and no client has created one again.
        if sessions(&members).await? != were {
            let elapsed = began.elapsed();
            return Err(format!("a session ended in {elapsed:?}: too busy for a verdict").into());
        }
        only_updates(&mut readers)?;
    }
    let outage = began.elapsed();

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

    // The caches are not stale copies: they show the new writes.
    waits_for("the nodes are written");
    write(&members, "second").await?;
    until("all show it", || members.iter().all(|member| member.is_back("second"))).await;
    only_updates(&mut readers)
}

fn play<K: Kind>(
    start: fn(usize) -> Result<Members<K>, String>,
    url: fn(&[String]) -> String,
    mistake: Option<Mistake>,
) -> Result<(), Failed> {
    let mut servers = start(SERVERS)?;
    let hosts: Vec<String> = servers.addresses().iter().map(ToString::to_string).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let played = runtime.block_on(storm(&mut servers, &url(&hosts), mistake));
    runtime.shutdown_background();
    played
}

type Play = fn(Option<Mistake>) -> Result<(), Failed>;

fn zookeeper(mistake: Option<Mistake>) -> Result<(), Failed> {
    let url =
        |hosts: &[String]| format!("zk://{}?acl=open&tick={}ms", hosts.join(","), TICK.as_millis());
    play(Ensemble::start, url, mistake)
}

fn etcd(mistake: Option<Mistake>) -> Result<(), Failed> {
    play(Cluster::start, |hosts| format!("etcd://{}", hosts.join(",")), mistake)
}

/// Checks that it fails as it should when every member makes this mistake.
fn shows(play: Play, mistake: Mistake) -> Result<(), Failed> {
    match limited(LIMIT_OF_MISTAKES, move || play(Some(mistake))) {
        Err(why) if why.contains(SIGN) => Ok(()),
        Err(why) => Err(format!("every member {}, and this: {why}", mistake.what()).into()),
        Ok(Err(failed)) => Err(failed),
        Ok(Ok(())) => Err(format!("not noticed: every member {}", mistake.what()).into()),
    }
}

/// The storm, or one trial for each mistake that it must find, if that is requested.
fn trials(store: &str, missing: Option<String>, play: Play) -> Vec<Trial> {
    let name = format!("{store}::what_was_kept_stays_when_servers_die");
    let trials = if std::env::var_os("SYNOD_MISTAKES").is_some() {
        let shows = |&mistake: &Mistake| {
            Trial::test(format!("{name}::shows_{mistake}"), move || shows(play, mistake))
        };
        MISTAKES.iter().map(shows).collect()
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
