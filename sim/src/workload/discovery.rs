//! Three processes that register instances of one service, with one client or two, follow it, and
//! choose among them.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cluster::Site;
use futures_util::StreamExt as _;
use futures_util::future::join;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::Error;
use synod_core::path::Path;
use synod_core::store::{Kind, Node, Query, Revision, Stat};
use synod_core::task::{Task, spawn};
use synod_core::value::decode;
use synod_recipes::discovery::{Discovery, Instance, Provider, Service, ServiceView, Strategy};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::presence::nothing_is_left;

/// Three processes register instances under their names and without, update them, follow the
/// service, and choose.
pub(super) struct Discoveries;

const ROUNDS: u64 = 3;

const SERVICE: &str = "web";
const STALE: &str = "a view was stale";
const ANEW: &str = "an instance was registered anew";
const BAD: &str = "what is no instance was reported";
const REFUSED: &str = "an instance of that id was there";
const DOWN: &str = "an instance was marked down";
const COMPARED: &str = "a view was compared with the store";

/// The views of all processes. Clones share them.
#[derive(Clone, Debug, Default)]
struct Book(Arc<Mutex<SeenByAll>>);

#[derive(Debug, Default)]
struct SeenByAll {
    /// The payload of each version of a node.
    shown: BTreeMap<(Path, Revision), Option<String>>,
    /// Instances that disappeared from the view, with the number of commits at that time.
    gone: Vec<(Path, Stat, usize)>,
}

impl Workload for Discoveries {
    fn name(&self) -> &'static str {
        "discovery"
    }

    fn about(&self) -> &'static str {
        "three processes register instances of a service, follow it, and choose among them"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-SD-1", "L-SD-2", "L-SD-3", "L-SD-4", "L-PE-4"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, STALE, ANEW, BAD, REFUSED, DOWN, COMPARED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::NearTheEnd, Site::BeatsCut]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let book = Book::default();
        let [written, shown] = [(); 2].map(|()| book.clone());
        sim.processes(3, move |me| work(me, written.clone()))
            .must_end("L-OUT-5")
            .eventually("L-PE-4", |me| nothing_is_left(me, place()))
            .check("L-SD-1", move |truth| shown.check_versions(truth))
            .check("L-SD-3", move |truth| book.check_gone(truth))
    }
}

async fn work(me: Process, book: Book) {
    let Ok(client) = me.impatient_client().await else { return };
    let Ok(service) = discovery(&client).open(SERVICE).await else { return };
    let _follower = follows(&me, &service, book);
    let seller = Seller { me, client, service };
    let rounds = seller.me.rounds(ROUNDS);
    for round in 0..rounds {
        let is_last = round + 1 == rounds;
        if is_last {
            Box::pin(seller.round(round, is_last)).await;
        } else {
            Box::pin(join(seller.round(round, is_last), seller.register_beside(round))).await;
        }
    }
}

struct Seller {
    me: Process,
    client: Client,
    service: Service<String>,
}

impl Seller {
    /// Registers another instance in the same process, in the same session or in another one, and
    /// perhaps under the same id.
    async fn register_beside(&self, round: u64) {
        let me = &self.me;
        let second = match me.pick(8) {
            0 => Some(self.client.clone()),
            1 => me.second_client().await.ok(),
            _ => None,
        };
        let Some(client) = second else { return };
        let id = if me.pick(2) == 0 { me.name().to_owned() } else { format!("{}.too", me.name()) };
        let says = format!("{}.{}.{round}.too", me.name(), me.life());
        let instance = Instance::new(SERVICE, "here").payload(says).id(id);
        let registered = me.perhaps(discovery(&client).register(instance)).await;
        me.sometimes(REFUSED, matches!(registered, Some(Err(_))));
        let Some(Ok(registration)) = registered else { return };
        me.rest(me.ttl()).await;
        if me.pick(2) == 0 {
            drop(me.perhaps(registration.unregister()).await);
        }
    }

    async fn round(&self, round: u64, is_last: bool) {
        let me = &self.me;
        let says = format!("{}.{}.{round}", me.name(), me.life());
        let instance = |text: &str| Instance::new(SERVICE, "here").payload(text.to_owned());
        let discovery = discovery(&self.client);
        let named = instance(&says).id(me.name());
        let registered = match me.pick(4) {
            0 => me.perhaps(discovery.register(instance(&says))).await,
            1 => me.perhaps(discovery.take_over().register(named)).await,
            _ => me.perhaps(discovery.register(named)).await,
        };
        // The node of an earlier registration may still exist.
        me.sometimes(REFUSED, matches!(registered, Some(Err(_))));
        if me.pick(4) == 0 {
            let rubbish = place().join("rubbish").expect("it is valid");
            drop(me.perhaps(self.client.put(&rubbish, says.clone())).await);
        }
        self.chooses();
        let Some(Ok(registration)) = registered else {
            if is_last {
                self.compares().await;
            }
            return me.rest(me.ttl()).await;
        };
        me.rest(me.ttl()).await;
        if me.pick(2) == 0 {
            drop(me.perhaps(registration.update(instance(&format!("{says}.new")).id(""))).await);
            me.rest(me.ttl() / 2).await;
        }
        self.chooses();
        if is_last {
            self.compares().await;
        }
        if me.pick(4) == 0 {
            drop(registration);
        } else {
            drop(me.perhaps(registration.unregister()).await);
        }
        me.rest(me.ttl() / 4).await;
    }

    /// L-SD-4: each instance is chosen in its turn, and none that is marked as down.
    fn chooses(&self) {
        let provider = Provider::new(&self.service, Strategy::RoundRobin);
        let provider = provider.down_for(self.me.ttl(), NonZeroU32::MIN);
        let all: BTreeSet<_> = provider.all().iter().map(|it| it.path.clone()).collect();
        let turn = |times: usize| -> BTreeSet<Path> {
            (0..times).filter_map(|_| provider.choose()).map(|it| it.path.clone()).collect()
        };
        let chosen = turn(all.len());
        if chosen != all {
            self.me.wrong("L-SD-4", || format!("{chosen:?} were chosen from {all:?}"));
        }
        let Some(down) = provider.choose() else { return };
        provider.failed(&down);
        self.me.sometimes(DOWN, true);
        if turn(all.len() + 1).contains(&down.path) {
            self.me.wrong("L-SD-4", || format!("{down:?} is marked down, and was chosen"));
        }
    }

    /// L-SD-1, L-SD-2: once everything is repaired, the view has the content of the store.
    async fn compares(&self) {
        const TIMES: u32 = 100;
        self.me.mended().await;
        let mut different = None;
        for _ in 0..TIMES {
            match self.difference().await {
                Ok(None) => return self.me.sometimes(COMPARED, true),
                Ok(found) => different = found,
                Err(_unreachable) => {}
            }
            if self.client.is_closed() {
                return;
            }
            clock::sleep(self.me.ttl() / 4).await;
        }
        if let Some(different) = different {
            self.me.wrong("L-SD-1", || different);
        }
    }

    async fn difference(&self) -> Result<Option<String>, Error> {
        let there = self.client.read(Query::children(place())).await?.nodes;
        let view = self.service.view();
        let nodes = there.iter().filter_map(|node| Some((node, node.stat?)));
        let (good, bad): (Vec<_>, Vec<_>) = nodes.partition(|(node, _)| payload(node).is_ok());
        let shown = view.endpoints.iter().map(|it| (&it.path, it.stat));
        let is_same = shown.eq(good.iter().map(|(node, stat)| (&node.path, *stat)))
            && view.endpoints.unreadable().len() == bad.len()
            && view.state.is_live();
        self.me.sometimes(BAD, is_same && !bad.is_empty());
        Ok((!is_same).then(|| format!("there is {there:?}, and the view is {view:?}")))
    }
}

fn payload(node: &Node) -> Result<Option<String>, Error> {
    decode::<Instance<String>>(&node.path, &node.data).map(|it| it.payload)
}

/// Records all views of a service.
fn follows(me: &Process, service: &Service<String>, book: Book) -> Task {
    let (me, changes) = (me.clone(), service.changes());
    spawn(async move {
        let mut changes = pin!(changes);
        let mut follower = Follower { me, book, last: BTreeMap::new(), newest: BTreeMap::new() };
        while let Some(view) = changes.next().await {
            follower.takes(&view);
            follower.me.dawdle().await;
        }
    })
}

struct Follower {
    me: Process,
    book: Book,
    last: BTreeMap<Path, Stat>,
    newest: BTreeMap<Path, Stat>,
}

impl Follower {
    /// L-SD-1: no instance returns to an earlier version.
    fn takes(&mut self, view: &ServiceView<String>) {
        self.me.sometimes(STALE, !view.state.is_live());
        let mut now = BTreeMap::new();
        for endpoint in view.endpoints.iter() {
            let (path, stat) = (&endpoint.path, endpoint.stat);
            let version = (path.clone(), stat.modified);
            let _known = self.book.pages().shown.insert(version, endpoint.instance.payload.clone());
            now.insert(path.clone(), stat);
            let Some(last) = self.newest.insert(path.clone(), stat) else { continue };
            self.me.sometimes(ANEW, last.created < stat.created);
            if last.modified > stat.modified {
                self.me.wrong("L-SD-1", || format!("{endpoint:?} comes after {last:?}"));
            }
        }
        let at = self.me.committed();
        let gone = self.last.iter().filter(|(path, _)| !now.contains_key(*path));
        let gone = gone.map(|(path, stat)| (path.clone(), *stat, at));
        self.book.pages().gone.extend(gone);
        self.last = now;
    }
}

impl Book {
    fn pages(&self) -> MutexGuard<'_, SeenByAll> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// L-SD-1: each version that was shown existed.
    fn check_versions(&self, truth: &Truth) -> Result<(), String> {
        let log = truth.log.iter().flat_map(|entry| &entry.changes);
        let there: BTreeMap<_, _> = log
            .filter_map(|change| {
                let node = change.node.as_ref()?;
                Some(((change.path.clone(), change.revision?), payload(node).ok()?))
            })
            .collect();
        for (version, shown) in &self.pages().shown {
            if there.get(version) != Some(shown) {
                return Err(format!("{shown:?} of {version:?} was never there"));
            }
        }
        Ok(())
    }

    /// L-SD-3: an instance that disappeared from the view was removed before, or its data became
    /// invalid.
    fn check_gone(&self, truth: &Truth) -> Result<(), String> {
        for (path, stat, at) in &self.pages().gone {
            let changes = truth.log.iter().take(*at).flat_map(|entry| &entry.changes);
            let mut later = changes.filter(|change| {
                change.path == *path && change.revision.is_some_and(|at| at > stat.modified)
            });
            // Data that another client writes there need not be an instance.
            let is_gone = later.any(|change| match &change.node {
                Some(node) => payload(node).is_err(),
                None => change.kind == Kind::Deleted,
            });
            if !is_gone {
                return Err(format!(
                    "{path} of {stat:?} was there, or could be read, when {at} were committed"
                ));
            }
        }
        Ok(())
    }
}

fn discovery(client: &Client) -> Discovery<String> {
    Discovery::new(client, Path::new("/services").expect("it is one"))
}

/// The directory of the service.
fn place() -> Path {
    Path::new("/services/web").expect("it is one")
}
