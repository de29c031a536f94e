//! A tree that three processes write and cache, and a value in it that each watches.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cluster::Site;
use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use synod_core::client::{Client, ConnectionState};
use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::{Expect, Node, Query, Revision, Stat, Txn};
use synod_core::value::decode;
use synod_recipes::cache::{Cache, CacheEvent, Extent, Snapshot, Watched};
use synod_recipes::value::CopyState;

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;

/// Three processes write to a tree, and have a cache of all or of a part of it.
pub(super) struct Caches;

const ROUNDS: u64 = 5;

/// The nodes of the tree. The first one is its root, and the second one is watched.
const PLACES: [&str; 6] = ["/tree", "/tree/a", "/tree/a-b", "/tree/a/c", "/tree/d/e", "/tree/.f"];

const STALE: &str = "a cache was stale";
const AGAIN: &str = "a cache was complete again";
const REMADE: &str = "a cache saw that a node was made again";
const COMPARED: &str = "a cache was compared with the store";

/// The content that the events of a cache produced when it was complete.
#[derive(Clone, Debug)]
struct Complete {
    /// The process, and its life.
    by: (u64, u32),
    /// The numbers of commits when the cache was started, and when it was complete.
    since: usize,
    at: usize,
    shown: BTreeMap<Path, Stat>,
    extent: Part,
}

/// All complete contents, and all reported versions. Clones share them.
#[derive(Clone, Debug, Default)]
struct Book(Arc<Mutex<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    complete: Vec<Complete>,
    shown: BTreeMap<(Path, Revision), Node>,
}

/// The part of the tree that a cache has.
#[derive(Clone, Copy, Debug)]
enum Part {
    All,
    Children,
    Near,
    Plain,
}

impl Part {
    fn extent(self) -> Extent {
        let tree = Extent::subtree(place(0));
        match self {
            Self::All => tree,
            Self::Children => Extent::children(place(0)),
            Self::Near => tree.depth(1),
            Self::Plain => tree.filtered(|path| !path.name().starts_with('.')),
        }
    }

    fn has(self, path: &Path) -> bool {
        let depth = path.segments().count();
        match self {
            Self::All => true,
            Self::Children => depth == 2,
            Self::Near => depth <= 2,
            Self::Plain => !path.name().starts_with('.'),
        }
    }
}

impl Workload for Caches {
    fn name(&self) -> &'static str {
        "cache"
    }

    fn about(&self) -> &'static str {
        "three processes write to a tree, and each has a cache of it and its events"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-CA-1", "L-CA-2", "L-CA-3", "L-CA-4", "L-CA-5", "L-CA-7", "L-WAT-8"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, STALE, AGAIN, REMADE, COMPARED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let book = Book::default();
        let [complete, shown] = [(); 2].map(|()| book.clone());
        sim.processes(3, move |me| Box::pin(work(me, book.clone())))
            .must_end("L-CA-1")
            .check("L-CA-4", move |truth| complete.check_complete(truth))
            .check("L-WAT-8", move |truth| shown.check_versions(truth))
    }
}

async fn work(me: Process, book: Book) {
    let Ok(client) = me.impatient_client().await else { return };
    let extent = match me.pick(6) {
        0 => Part::Children,
        1 => Part::Near,
        2 => Part::Plain,
        _ => Part::All,
    };
    let since = me.committed();
    let cache = Cache::start(&client, extent.extent());
    let worker = Worker { me, client, book, extent, since };
    worker.follows(&cache).await;
}

struct Worker {
    me: Process,
    client: Client,
    book: Book,
    extent: Part,
    since: usize,
}

/// The content that the events of a cache have produced so far.
#[derive(Debug, Default)]
struct Shadow {
    nodes: BTreeMap<Path, Node>,
    newest: BTreeMap<Path, Stat>,
    is_complete: bool,
    was_complete: bool,
}

impl Worker {
    async fn follows(&self, cache: &Cache) {
        let shadow = Mutex::new(Shadow::default());
        let works = async {
            self.writes(cache).await;
            self.compares(cache, &shadow).await;
        };
        // The events end with the client, or with the process.
        match select(pin!(works), pin!(self.reads(cache, &shadow))).await {
            Either::Left(((), _)) => {}
            Either::Right(((), works)) => works.await,
        }
    }

    async fn reads(&self, cache: &Cache, shadow: &Mutex<Shadow>) {
        let mut events = pin!(cache.events());
        while let Some(event) = events.next().await {
            self.takes(event, &mut shadow.lock().unwrap_or_else(PoisonError::into_inner));
            self.me.dawdle().await;
        }
    }

    /// L-CA-2, L-CA-3, L-CA-4: an event fits the events before it.
    fn takes(&self, event: CacheEvent, shadow: &mut Shadow) {
        let (node, known) = match &event {
            CacheEvent::Created(node) => (node, false),
            CacheEvent::Updated { node, .. } | CacheEvent::Deleted(node) => (node, true),
            CacheEvent::Complete(_) => return self.completes(shadow),
            CacheEvent::Stale | CacheEvent::Reset => {
                shadow.is_complete = false;
                return event.apply(&mut shadow.nodes);
            }
        };
        let Some(stat) = node.stat else {
            return self.me.wrong("L-CA-3", || format!("{event:?} without a stat"));
        };
        if shadow.nodes.contains_key(&node.path) != known {
            self.me.wrong("L-CA-3", || format!("{event:?} does not fit {:?}", shadow.nodes));
        }
        if let Some(last) = shadow.newest.insert(node.path.clone(), stat) {
            self.me.sometimes(REMADE, last.created < stat.created);
            if last.modified > stat.modified {
                self.me.wrong("L-CA-2", || format!("{event:?} comes after {last:?}"));
            }
        }
        self.book.show(node.clone());
        event.apply(&mut shadow.nodes);
    }

    fn completes(&self, shadow: &mut Shadow) {
        self.me.sometimes(AGAIN, shadow.was_complete);
        if shadow.is_complete {
            self.me.wrong("L-CA-4", || "it was complete already".to_owned());
        }
        (shadow.is_complete, shadow.was_complete) = (true, true);
        let shown = shadow.nodes.values().filter_map(|node| Some((node.path.clone(), node.stat?)));
        let (by, at) = ((self.me.number(), self.me.life()), self.me.committed());
        let (since, extent) = (self.since, self.extent);
        let complete = Complete { by, since, at, shown: shown.collect(), extent };
        self.book.pages().complete.push(complete);
    }

    async fn writes(&self, cache: &Cache) {
        for round in 0..self.me.rounds(ROUNDS) {
            self.looks(cache);
            let path = place(self.me.pick(6));
            let data = format!("{}.{}.{round}", self.me.name(), self.me.life());
            match self.me.pick(6) {
                0 | 1 => drop(self.me.perhaps(self.client.delete(&path, Expect::Any)).await),
                2 => {
                    let other = place(self.me.pick(6));
                    let txn = Txn::new().delete(path.clone(), Expect::Any);
                    let txn = if other == path { txn } else { txn.set(other, data, Expect::Any) };
                    drop(self.me.perhaps(self.client.commit(txn)).await);
                }
                3 => drop(self.me.perhaps(self.client.put(&path, "no JSON")).await),
                _ => drop(self.me.perhaps(self.client.put_value(&path, &data)).await),
            }
            self.me.rest(self.me.ttl() / 6).await;
        }
    }

    /// L-CA-5: a cache without a session is not live.
    fn looks(&self, cache: &Cache) {
        let is_live = cache.state().is_live();
        self.me.sometimes(STALE, !is_live);
        let connection = *self.client.state().borrow();
        if is_live
            && !matches!(
                connection,
                ConnectionState::Connected
                    | ConnectionState::Reconnected
                    | ConnectionState::Suspended
            )
        {
            self.me.wrong("L-CA-5", || format!("it is live, and the client is {connection:?}"));
        }
    }

    /// L-CA-1, L-CA-3, L-CA-7: at the end the cache, its events and its watched values have the
    /// content of the store.
    async fn compares(&self, cache: &Cache, shadow: &Mutex<Shadow>) {
        const TIMES: u32 = 100;
        self.me.mended().await;
        let Ok(watched) = Watched::<String>::open(&self.client, place(1)).await else { return };
        let mut different = None;
        for _ in 0..TIMES {
            if let Ok(view) = self.client.read(Query::subtree(place(0))).await {
                let nodes = view.nodes.into_iter().filter(|node| node.stat.is_some());
                let nodes: Vec<_> = nodes.filter(|node| self.extent.has(&node.path)).collect();
                different = self.difference(&nodes, &cache.snapshot(), shadow, &watched);
                if different.is_none() {
                    return self.me.sometimes(COMPARED, true);
                }
            }
            if self.client.is_closed() {
                return;
            }
            clock::sleep(self.me.ttl() / 4).await;
        }
        if let Some((law, what)) = different {
            self.me.wrong(law, || what);
        }
    }

    fn difference(
        &self,
        nodes: &[Node],
        cached: &Snapshot,
        shadow: &Mutex<Shadow>,
        watched: &Watched<String>,
    ) -> Option<(&'static str, String)> {
        if !cached.state().is_live() || !cached.iter().eq(nodes) {
            let cached = (cached.state(), cached.iter().collect::<Vec<_>>());
            return Some(("L-CA-1", format!("there is {nodes:?}, and the cache is {cached:?}")));
        }
        let made = shadow.lock().unwrap_or_else(PoisonError::into_inner).nodes.clone();
        if !made.values().eq(nodes) {
            return Some(("L-CA-3", format!("there is {nodes:?}, and the events make {made:?}")));
        }
        let last = watched.get();
        let node = nodes.iter().find(|node| node.path == place(1));
        let value = node.map(|node| decode::<String>(&node.path, &node.data).ok());
        let is_it = match (value, &last.state) {
            (Some(Some(value)), CopyState::Current) => last.value.as_deref() == Some(&value),
            (Some(None), CopyState::Unreadable(_)) | (None, CopyState::Removed) => true,
            _ => !self.extent.has(&place(1)),
        };
        (!is_it).then(|| ("L-CA-7", format!("there is {node:?}, and the value is {last:?}")))
    }
}

impl Book {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, node: Node) {
        let Some(stat) = node.stat else { return };
        self.pages().shown.insert((node.path.clone(), stat.modified), node);
    }

    /// L-CA-4: the content that was reported as complete existed, each node at some time since the
    /// cache was started.
    fn check_complete(&self, truth: &Truth) -> Result<(), String> {
        let versions = versions(truth);
        for complete in &self.pages().complete {
            let Complete { by, since, at, shown, extent } = complete;
            let paths: BTreeSet<&Path> = versions.keys().chain(shown.keys()).collect();
            for path in paths.into_iter().filter(|path| extent.has(path)) {
                let of_path = versions.get(path).map_or(&[][..], |all| &all[..]);
                let shown = shown.get(path).map(|stat| stat.modified);
                if !was_so(of_path, shown, *since, *at) {
                    return Err(format!("{by:?} at {path}: {of_path:?} in {complete:?}"));
                }
            }
        }
        Ok(())
    }

    /// L-WAT-8: each version that was shown existed.
    fn check_versions(&self, truth: &Truth) -> Result<(), String> {
        let log = truth.log.iter().flat_map(|entry| &entry.changes);
        let there: BTreeMap<_, _> = log
            .filter_map(|change| {
                Some(((change.path.clone(), change.revision?), change.node.clone()?))
            })
            .collect();
        for (place, node) in &self.pages().shown {
            let real = there.get(place).map(|real| (&real.data, real.stat));
            if real != Some((&node.data, node.stat)) {
                return Err(format!("{node:?} was never there, but {real:?}"));
            }
        }
        Ok(())
    }
}

/// The changes of each node: after how many commits, and the revision of the write if it was one.
type Versions = BTreeMap<Path, Vec<(usize, Option<Revision>)>>;

fn versions(truth: &Truth) -> Versions {
    let mut versions = Versions::new();
    for (at, entry) in truth.log.iter().enumerate() {
        for change in
            entry.changes.iter().filter(|it| it.path == place(0) || it.path.is_below(&place(0)))
        {
            let written = change.node.as_ref().and_then(|node| Some(node.stat?.modified));
            versions.entry(change.path.clone()).or_default().push((at + 1, written));
        }
    }
    versions
}

/// Returns `true` if a path had this version, or no node, at some time between two numbers of
/// commits.
fn was_so(
    versions: &[(usize, Option<Revision>)],
    shown: Option<Revision>,
    since: usize,
    at: usize,
) -> bool {
    let first = [(0, None)];
    let all: Vec<_> = first.iter().chain(versions).collect();
    all.iter().enumerate().any(|(place, (from, version))| {
        let until = all.get(place + 1).map_or(usize::MAX, |next| next.0);
        *version == shown && *from <= at && until > since
    })
}

fn place(number: impl TryInto<usize>) -> Path {
    let number = number.try_into().unwrap_or_default();
    Path::new(PLACES[number]).expect("it is one")
}
