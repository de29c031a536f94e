//! [`Hub`]: what a session watches.
//!
//! One watch at the server for each path, shared by all who observe it: servers before 3.9 let
//! watches of two kinds on one path destroy each other (ZOOKEEPER-4466). The crate forgets persistent
//! watches when it reconnects; so each is made again then, and whoever observes is told to read
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::store::{
    Change, Detail, End, Feed, Kind, Loss, Query, Revision, Scope, View, Watch,
};
use synod_core::task::{Task, spawn};
use zookeeper_client::{
    AddWatchMode, Error as ZkError, EventType, PersistentWatcher, SessionState, WatchedEvent,
};

use crate::container::{is_container, is_probe};
use crate::error::{Sort, Trouble};
use crate::read::{read_through, translate};
use crate::sift::is_ours;
use crate::wire::Wire;

/// How many events a watch keeps for a reader who is slow.
const EVENTS: usize = 4_096;

/// Everything that one session observes.
pub(crate) struct Hub {
    wire: Arc<Wire>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    places: BTreeMap<Path, Place>,
    next: u64,
}

/// One path that is watched.
#[derive(Default)]
struct Place {
    recursive: bool,
    observers: BTreeMap<u64, Observer>,
    /// Containers that were seen there: no change of them is told.
    containers: BTreeSet<Path>,
    /// What came and went before anybody could see whether it was a container.
    ghosts: BTreeSet<Path>,
    /// What was born by two writes of one transaction, and told of the first.
    echoes: BTreeSet<Path>,
    /// How often a node was seen to be created.
    created: u64,
    /// Watches for as long as this is here.
    keeper: Option<Task>,
}

struct Observer {
    query: Query,
    feed: Feed,
}

/// Ends an observation when its reader drops it.
struct Unwatch {
    hub: Weak<Hub>,
    path: Path,
    id: u64,
}

impl Hub {
    pub(crate) fn new(wire: Arc<Wire>) -> Arc<Self> {
        Arc::new(Self { wire, state: Mutex::default() })
    }

    /// Watches and reads as one step: the watch leaves ahead of the read.
    pub(crate) async fn observe(self: &Arc<Self>, query: Query) -> Result<(View, Watch)> {
        let client = self.wire.client("observe")?;
        let (feed, watch) = Feed::new(EVENTS);
        let (unwatch, created) = self.add(&query, feed);
        let watch = watch.with_guard(unwatch);
        let view = read_through(&self.wire, &client, &query).await;
        let (view, containers) =
            view.map_err(|trouble| trouble.translate("observe", Sort::Read).at(&query.path))?;
        self.learn(&query.path, containers, created);
        if let Some(why) = self.wire.life.loss() {
            self.end(why);
        }
        Ok((view, watch))
    }

    fn add(self: &Arc<Self>, query: &Query, feed: Feed) -> (Unwatch, u64) {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        let recursive = needs_recursive(query);
        let upgrade = match state.places.get(&query.path) {
            None => Some(false),
            Some(place) if recursive && !place.recursive => Some(true),
            Some(_) => None,
        };
        if let Some(resync) = upgrade {
            let keeper = Some(self.keeper(&query.path, recursive, resync));
            let place = state.places.entry(query.path.clone()).or_default();
            (place.recursive, place.keeper) = (recursive, keeper);
        }
        let mut created = 0;
        if let Some(place) = state.places.get_mut(&query.path) {
            place.observers.insert(id, Observer { query: query.clone(), feed });
            created = place.created;
        }
        (Unwatch { hub: Arc::downgrade(self), path: query.path.clone(), id }, created)
    }

    /// Starts to watch a path. The request has left when this returns.
    fn keeper(self: &Arc<Self>, path: &Path, recursive: bool, resync: bool) -> Task {
        let mode =
            if recursive { AddWatchMode::PersistentRecursive } else { AddWatchMode::Persistent };
        let keep = keep(Arc::downgrade(self), self.wire.clone(), path.clone(), mode, resync);
        let mut keep = Box::pin(keep);
        let _not_yet = keep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        spawn(keep)
    }

    /// What a view showed to be containers, unless it may have become something else since.
    fn learn(&self, path: &Path, containers: Vec<Path>, created: u64) {
        if let Some(place) = self.state().places.get_mut(path)
            && place.created == created
        {
            place.containers.extend(containers);
        }
    }

    fn remove(&self, path: &Path, id: u64) {
        let mut state = self.state();
        let Some(place) = state.places.get_mut(path) else { return };
        place.observers.remove(&id);
        if place.observers.is_empty() {
            state.places.remove(path);
        }
    }

    /// The session is over, and so is every watch.
    pub(crate) fn end(&self, why: Loss) {
        let places = std::mem::take(&mut self.state().places);
        for observer in places.into_values().flat_map(|place| place.observers.into_values()) {
            observer.feed.end(End::SessionOver(why));
        }
    }

    fn fail(&self, path: &Path, error: Error) {
        let Some(place) = self.state().places.remove(path) else { return };
        let error = Arc::new(error);
        for observer in place.observers.into_values() {
            observer.feed.end(End::Failed(error.clone()));
        }
    }

    /// Something may have been missed at this path.
    fn resync(&self, path: &Path) {
        let mut state = self.state();
        let Some(place) = state.places.get_mut(path) else { return };
        place.containers.clear();
        place.ghosts.clear();
        place.echoes.clear();
        place.created += 1;
        for observer in place.observers.values() {
            observer.feed.resync();
        }
    }

    fn wants(&self, path: &Path, news: &News) -> bool {
        let state = self.state();
        let Some(place) = state.places.get(path) else { return false };
        place.observers.values().any(|observer| told(&observer.query, news).is_some())
    }

    fn tell(&self, path: &Path, news: &News, proof: Option<&Proof>) {
        let mut state = self.state();
        let Some(place) = state.places.get_mut(path) else { return };
        match (news.kind, proof) {
            (Kind::Created, Some(Proof::Container)) => {
                place.containers.insert(news.path.clone());
                return;
            }
            // That it is gone again is said next.
            (Kind::Created, Some(Proof::Gone)) => {
                place.ghosts.insert(news.path.clone());
                return;
            }
            (Kind::Created, _) => {
                place.containers.remove(&news.path);
                place.ghosts.remove(&news.path);
                place.created += 1;
                if matches!(proof, Some(Proof::Node { echo: true, .. })) {
                    place.echoes.insert(news.path.clone());
                } else {
                    place.echoes.remove(&news.path);
                }
            }
            // The second write of its birth, which is told already, or of what is gone.
            (Kind::Updated, _) if place.echoes.remove(&news.path) => return,
            (Kind::Updated, _) if place.ghosts.contains(&news.path) => return,
            (Kind::Deleted, _) if place.containers.remove(&news.path) => return,
            (Kind::Deleted, _) if place.ghosts.remove(&news.path) => {
                // A node may have been here, or a container only, of which nothing is told.
                let heard = place.observers.values().filter(|it| told(&it.query, news).is_some());
                for observer in heard {
                    let _heard = observer.feed.resync();
                }
                return;
            }
            _ => {}
        }
        for observer in place.observers.values() {
            if let Some(mut change) = told(&observer.query, news) {
                if let Some(Proof::Node { node, .. }) = proof {
                    change.revision = node.stat.map(|stat| stat.created);
                    change.node = Some((**node).clone());
                }
                let _heard = observer.feed.send(change);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Unwatch {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.remove(&self.path, self.id);
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("places", &self.state().places.len()).finish_non_exhaustive()
    }
}

fn needs_recursive(query: &Query) -> bool {
    match query.scope {
        Scope::Node => false,
        Scope::Children => query.detail == Detail::Data,
        Scope::Subtree => true,
    }
}

/// An event of the server, in our words.
#[derive(Debug, PartialEq, Eq)]
struct News {
    path: Path,
    kind: Kind,
    revision: Option<Revision>,
}

impl News {
    /// `None` if it is nobody's business.
    fn of(event: &WatchedEvent) -> Option<Self> {
        let kind = match event.event_type {
            EventType::NodeCreated => Kind::Created,
            EventType::NodeDeleted => Kind::Deleted,
            EventType::NodeDataChanged => Kind::Updated,
            EventType::NodeChildrenChanged => Kind::Children,
            EventType::Session => return None,
        };
        if is_probe(&event.path) {
            return None;
        }
        let path = Path::new(&event.path).ok()?;
        // Only newer servers tell it (ZOOKEEPER-4655).
        let revision = u64::try_from(event.zxid).ok().filter(|zxid| *zxid > 0).map(Revision::new);
        Some(Self { path, kind, revision })
    }
}

/// What is told of an event to whoever observes this, if anything.
fn told(query: &Query, news: &News) -> Option<Change> {
    let own = news.path == query.path;
    let covered = match (query.scope, news.kind) {
        (Scope::Node | Scope::Subtree, Kind::Children) => false,
        (Scope::Node, _) => own,
        (Scope::Children, Kind::Children) => own && query.detail == Detail::Names,
        (Scope::Children, kind) => {
            news.path.parent_str() == Some(query.path.as_str())
                && news.path.name().starts_with(&query.prefix)
                && (query.detail == Detail::Data || kind != Kind::Updated)
                && is_ours(&query.path, news.path.name())
        }
        (Scope::Subtree, _) => own || news.path.is_below(&query.path),
    };
    covered.then(|| {
        let mut change = Change::new(news.path.clone(), news.kind);
        change.revision = news.revision;
        change
    })
}

/// Watches one path until nobody observes it any more, or the session is over.
async fn keep(hub: Weak<Hub>, wire: Arc<Wire>, path: Path, mode: AddWatchMode, resync: bool) {
    let mut resync = resync;
    loop {
        let watcher = {
            let Ok(client) = wire.client("observe") else { return };
            client.watch(path.as_str(), mode).await
        };
        match watcher {
            Ok(mut watcher) => {
                let Some(held) = hub.upgrade() else { return };
                if resync {
                    held.resync(&path);
                }
                drop(held);
                if !listen(&hub, &wire, &path, &mut watcher).await {
                    return;
                }
            }
            Err(ZkError::SessionExpired | ZkError::ClientClosed | ZkError::AuthFailed) => return,
            Err(said) if crate::error::is_definite(&said) => {
                let error = Trouble::Said(said).translate("observe", Sort::Read).at(&path);
                if let Some(hub) = hub.upgrade() {
                    hub.fail(&path, error);
                }
                return;
            }
            // The connection was lost; the next request waits for the next one.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        resync = true;
    }
}

/// Tells what a watch says. `true` if it is to be made again.
async fn listen(
    hub: &Weak<Hub>,
    wire: &Wire,
    path: &Path,
    watcher: &mut PersistentWatcher,
) -> bool {
    let mut events: Vec<WatchedEvent> = Vec::new();
    loop {
        if events.is_empty() {
            events.push(watcher.changed().await);
        }
        drain(watcher, &mut events);
        let Some(held) = hub.upgrade() else { return false };
        let (now, doubtful) = (events.len(), doubtful(&held, path, &events));
        drop(held);
        let proofs = prove(wire, &doubtful).await;
        // Whatever the proofs reflect has come before them. It is told in the next round, when what
        // is doubtful of it was proved, too.
        drain(watcher, &mut events);
        let Some(held) = hub.upgrade() else { return false };
        for (place, event) in events.iter().enumerate().take(now) {
            if event.event_type == EventType::Session {
                match event.session_state {
                    SessionState::SyncConnected | SessionState::ConnectedReadOnly => return true,
                    state if state.is_terminated() => return false,
                    _ => continue,
                }
            }
            let Some(news) = News::of(event) else { continue };
            let later = events[place + 1..].iter().filter(|later| later.path == event.path);
            let later: Vec<EventType> = later.map(|later| later.event_type).collect();
            let proof = proofs.get(&news.path).map(|proof| proof.weaken(&later));
            held.tell(path, &news, proof.as_ref());
        }
        events.drain(..now);
    }
}

/// Takes what is there already, up to the end of the session.
fn drain(watcher: &mut PersistentWatcher, events: &mut Vec<WatchedEvent>) {
    let over = |event: &WatchedEvent| {
        event.event_type == EventType::Session && event.session_state.is_terminated()
    };
    while !events.last().is_some_and(over)
        && let Some(event) = watcher.changed().now_or_never()
    {
        events.push(event);
    }
}

/// What was created: it may be a container, of which nothing is told.
fn doubtful(hub: &Hub, path: &Path, events: &[WatchedEvent]) -> BTreeSet<Path> {
    let news = events.iter().filter_map(News::of);
    let created = news.filter(|news| news.kind == Kind::Created && hub.wants(path, news));
    created.map(|news| news.path).collect()
}

/// What something that was created turned out to be.
#[derive(Clone, Debug)]
enum Proof {
    Container,
    Gone,
    /// A node as it was created: by two writes of one transaction, if there is an echo.
    Node {
        node: Box<synod_core::store::Node>,
        echo: bool,
    },
    /// A node, but perhaps not that one.
    Unclear,
}

impl Proof {
    /// What it proves if these events of the path came behind the one in question before it was
    /// read.
    fn weaken(&self, later: &[EventType]) -> Self {
        match (self, later) {
            (Self::Node { echo: true, .. }, [EventType::NodeDataChanged]) => self.clone(),
            (Self::Node { .. }, [_, ..]) => Self::Unclear,
            _ => self.clone(),
        }
    }
}

async fn prove(wire: &Wire, doubtful: &BTreeSet<Path>) -> BTreeMap<Path, Proof> {
    if doubtful.is_empty() {
        return BTreeMap::new();
    }
    let Ok(client) = wire.client("observe") else { return BTreeMap::new() };
    let reads = doubtful.iter().map(|path| client.get_data(path.as_str()));
    let answers = join_all(reads.collect::<Vec<_>>()).await;
    let proofs = doubtful.iter().zip(answers).map(|(path, answer)| {
        let proof = match answer {
            Ok((data, stat)) if is_container(&data, &stat) => Proof::Container,
            Ok((data, stat)) if stat.mzxid == stat.czxid => {
                let node = synod_core::store::Node::new(path.clone());
                let node = Box::new(node.with(data.into(), translate(&stat)));
                Proof::Node { node, echo: stat.version > 0 }
            }
            Err(ZkError::NoNode) => Proof::Gone,
            _ => Proof::Unclear,
        };
        (path.clone(), proof)
    });
    proofs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        Path::new(text).expect("valid")
    }

    #[test]
    fn everybody_is_told_of_what_he_observes_and_of_nothing_else() {
        let node = Query::node(path("/a"));
        let names = Query::children(path("/a")).names_only();
        let data = Query::children(path("/a")).starting_with("b");
        let tree = Query::subtree(path("/a"));
        // Which of the four are told of it.
        let table = [
            ("/a", Kind::Updated, [true, false, false, true]),
            ("/a", Kind::Children, [false, true, false, false]),
            ("/a/b", Kind::Created, [false, true, true, true]),
            ("/a/b", Kind::Updated, [false, false, true, true]),
            ("/a/c", Kind::Deleted, [false, true, false, true]),
            ("/a/b/c", Kind::Deleted, [false, false, false, true]),
            ("/ab", Kind::Created, [false, false, false, false]),
        ];
        for (at, kind, expected) in table {
            let news = News { path: path(at), kind, revision: None };
            let heard = [&node, &names, &data, &tree].map(|query| told(query, &news).is_some());
            assert_eq!(heard, expected, "{at} {kind:?}");
        }
    }
}
