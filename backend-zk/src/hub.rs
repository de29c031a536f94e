//! [`Hub`]: the watches of a session.
//!
//! There is one watch at the server per path, shared by all observers: before 3.9, watches of two
//! kinds on one path destroy each other (ZOOKEEPER-4466). The crate forgets persistent watches when
//! it reconnects; so each is set again then (`hub/persistent.rs`), and its observers get a request to read
//! again.
//!
//! An observer that needs only one event has a watch of another kind, if the path has no other
//! observer: see [`once`].
//!
//! When very many paths are watched, several share one watch: see [`Watches::for_path`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::client::{Client, StateWatcher};
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::store::{Change, Detail, End, Feed, Kind, Loss, Query, Scope, View, Watch};
use synod_core::task::Task;

use crate::connection::Connection;
use crate::error::{Sort, Trouble};
use crate::hub::draws::Draws;
use crate::hub::proof::Proof;
use crate::notification::{Notification, change_for};
use crate::read::{gather_through, read_through};
use crate::sole_contender::Coming;

mod draw;
mod draws;
mod one_shot;
mod persistent;
mod proof;

/// How many events a watch keeps for a slow reader.
const EVENTS: usize = 4_096;

/// How often the path of retired watches is sent to the server on a new connection: once for
/// watches of a node, and once for watches of its children.
const RETIRED: usize = 2;

/// All observations of one session.
///
/// Requests are sent and watches are dropped under the lock of the state, so that the server
/// receives both in one order: each is a message to the crate. Under the lock, a channel of the
/// crate may be polled for an event that is already there; nothing else is polled, no reader is
/// woken, and nothing is dropped that could use the hub again.
pub(crate) struct Hub {
    pub(crate) wire: Arc<Connection>,
    state: Mutex<State>,
}

struct State {
    places: BTreeMap<Path, Place>,
    /// The observers that wait for one event.
    once: BTreeMap<u64, Feed>,
    watches: Watches,
    draws: Draws,
    next: u64,
}

/// The watches at the server.
#[derive(Default)]
struct Watches {
    by_path: BTreeMap<Path, Watched>,
    /// The sum of the lengths of their paths.
    bytes: usize,
}

/// One watch at the server.
struct Watched {
    recursive: bool,
    /// The observed paths that this watch serves.
    places: BTreeSet<Path>,
    /// Keeps the watch alive until this is dropped.
    _keeper: Task,
    /// One-event watches on the same path that no observer waits for any more.
    retired: Vec<Coming>,
}

/// One observed path.
struct Place {
    /// The path of the watch that reports its changes: its own, or one above.
    by: Path,
    observers: BTreeMap<u64, Observer>,
    /// Containers that were seen there: their changes are not reported.
    containers: BTreeSet<Path>,
    /// Nodes that were created and deleted before it could be read whether they were containers.
    ghosts: BTreeSet<Path>,
    /// Nodes created by two writes of one transaction, of which the first was reported.
    echoes: BTreeSet<Path>,
    /// How often the creation of a node was seen.
    created: u64,
}

struct Observer {
    query: Query,
    feed: Feed,
}

/// What an observer gets: a change, or `None` if it must read again.
type Delivery = (Feed, Option<Change>);

/// Ends an observation when its reader drops it.
struct Unwatch {
    hub: Weak<Hub>,
    path: Path,
    id: u64,
}

impl Hub {
    pub(crate) fn new(wire: Arc<Connection>, states: StateWatcher) -> Arc<Self> {
        let state = State {
            places: BTreeMap::new(),
            once: BTreeMap::new(),
            watches: Watches::default(),
            draws: Draws::new(states),
            next: 0,
        };
        Arc::new(Self { wire, state: Mutex::new(state) })
    }

    /// Watches and reads as one step: the watch is sent before the read.
    pub(crate) async fn observe(self: &Arc<Self>, query: Query) -> Result<(View, Watch)> {
        let client = self.wire.client("observe")?;
        if query.once
            && let Some(observed) = self.observe_once(&client, &query).await
        {
            return observed;
        }
        let (feed, watch) = Feed::new(EVENTS);
        let (unwatch, created) = self.add(&client, &query, feed.clone());
        let watch = watch.with_guard(unwatch);
        let view = self.read(&client, &query).await;
        let (view, containers) =
            view.map_err(|trouble| trouble.translate("observe", Sort::Read).at(&query.path))?;
        self.learn(&query.path, containers, created);
        if query.is_until_gone() && view.node().is_none() {
            feed.end(End::Told);
        }
        if let Some(why) = self.wire.life.loss() {
            self.end(why);
        }
        Ok((view, watch))
    }

    /// Reads, and under a watch what does not fit into one request. With the containers that were found.
    pub(crate) async fn read(
        self: &Arc<Self>,
        client: &Arc<Client>,
        query: &Query,
    ) -> Result<(View, Vec<Path>), Trouble> {
        match read_through(&self.wire, client, query).await {
            Err(Trouble::TooLarge) => {}
            answer => return answer,
        }
        // The watch is one of the hub's, as two kinds of watches on one path destroy each other.
        let (feed, _unread) = Feed::new(1);
        let (_unwatch, _) = self.add(client, query, feed);
        let watched = self.watched_by(&query.path);
        gather_through(&self.wire, client, watched.as_ref().unwrap_or(&query.path), query).await
    }

    /// The path of the watch that reports the changes at a path.
    fn watched_by(&self, path: &Path) -> Option<Path> {
        self.state().places.get(path).map(|place| place.by.clone())
    }

    fn add(self: &Arc<Self>, client: &Arc<Client>, query: &Query, feed: Feed) -> (Unwatch, u64) {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        let by = match state.places.get(&query.path) {
            Some(place) => place.by.clone(),
            None => state.watches.for_path(&query.path),
        };
        let recursive = needs_recursive(query) || by != query.path;
        let resync = match state.watches.by_path.get(&by) {
            None => Some(false),
            Some(watched) if recursive && !watched.recursive => Some(true),
            Some(_) => None,
        };
        if let Some(resync) = resync {
            let keeper = self.keeper(client, &by, recursive, resync);
            state.watches.add(&by, recursive, keeper);
            state.leave_to_hub(&by);
        }
        if let Some(watched) = state.watches.by_path.get_mut(&by) {
            watched.places.insert(query.path.clone());
        }
        let place =
            state.places.entry(query.path.clone()).or_insert_with(|| Place::reported_by(by));
        place.observers.insert(id, Observer { query: query.clone(), feed });
        let created = place.created;
        (Unwatch { hub: Arc::downgrade(self), path: query.path.clone(), id }, created)
    }

    /// Records the containers that a view showed, unless a node may have replaced one since.
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
        let observer = place.observers.remove(&id);
        if place.observers.is_empty()
            && let Some(place) = state.places.remove(path)
        {
            state.watches.release(&place.by, path);
        }
        drop(state);
        drop(observer);
    }

    /// Ends every watch, because the session is over.
    pub(crate) fn end(&self, why: Loss) {
        let mut state = self.state();
        let (places, watches) = (take(&mut state.places), take(&mut state.watches));
        let (once, alone) = (take(&mut state.once), take(&mut state.draws.alone));
        drop(state);
        drop((watches, alone));
        for feed in once.into_values() {
            feed.end(End::SessionOver(why));
        }
        for observer in places.into_values().flat_map(|place| place.observers.into_values()) {
            observer.feed.end(End::SessionOver(why));
        }
    }

    /// Ends the observations of a watch that could not be set.
    fn fail(&self, by: &Path, error: Error) {
        let mut state = self.state();
        let failed: Vec<Place> =
            state.watches.told_by(by).iter().filter_map(|path| state.places.remove(path)).collect();
        state.watches.remove(by);
        drop(state);
        let error = Arc::new(error);
        for observer in failed.into_iter().flat_map(|place| place.observers.into_values()) {
            observer.feed.end(End::Failed(error.clone()));
        }
    }

    /// Makes the observers of this watch read again, because events may have been missed.
    fn resync(&self, by: &Path) {
        let mut state = self.state();
        let mut feeds = Vec::new();
        for path in state.watches.told_by(by) {
            if let Some(place) = state.places.get_mut(&path) {
                place.forget_what_is_there();
                feeds.extend(place.observers.values().map(|observer| observer.feed.clone()));
            }
        }
        drop(state);
        for feed in feeds {
            let _heard = feed.resync();
        }
    }

    /// Whether this watch has an observer that gets the event only verified.
    fn verifies(&self, by: &Path, notification: &Notification) -> bool {
        let state = self.state();
        let mut places = about(&notification.path).filter_map(|path| state.places.get(&path));
        places.any(|place| place.by == *by && place.verifies(notification))
    }

    /// Delivers an event of a watch to its observers. Only the task that keeps the watch calls
    /// this, so that observers get the events in order although they are woken without the lock.
    fn deliver(&self, by: &Path, notification: &Notification, proof: Option<&Proof>) {
        let mut state = self.state();
        let mut deliveries = Vec::new();
        for path in about(&notification.path) {
            if let Some(place) = state.places.get_mut(&path)
                && place.by == *by
            {
                place.hint(notification, &mut deliveries);
                if place.verifies(notification) {
                    place.deliver(notification, proof, &mut deliveries);
                } else {
                    place.forget(notification);
                }
            }
        }
        drop(state);
        for (feed, change) in deliveries {
            let _heard = match change {
                Some(change) => feed.send(change),
                None => feed.resync(),
            };
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The paths whose observers may be concerned by an event at this path.
fn about(path: &Path) -> impl Iterator<Item = Path> {
    let root = (!path.is_root()).then(Path::root);
    std::iter::once(path.clone()).chain(path.ancestors()).chain(root)
}

impl Watches {
    /// The path to watch for changes at `path`: its own, while there is room.
    ///
    /// With more than 128 KiB of paths the crate never connects again: it then sends its watches to
    /// the server in several requests, and takes the answer to the second for an answer without a
    /// request. It keeps the session alive all the time. So when there are very many watches,
    /// further ones below one directory share a recursive watch there, and in the end all share one
    /// at the root.
    fn for_path(&self, path: &Path) -> Path {
        const ALL: usize = 90_000;

        if self.by_path.contains_key(path) || self.fits(path) {
            return path.clone();
        }
        let dir = path.parent().unwrap_or_else(Path::root);
        let recursive = |path: &Path| self.by_path.get(path).is_some_and(|it| it.recursive);
        match about(path).find(recursive) {
            Some(above) => above,
            None if self.bytes + dir.as_str().len() <= ALL => dir,
            None => Path::root(),
        }
    }

    /// Whether there is room for a watch of this path alone.
    fn fits(&self, path: &Path) -> bool {
        const OWN: usize = 60_000;

        self.bytes + path.as_str().len() <= OWN
    }

    /// Starts to watch a path, or replaces its watch by one of another mode.
    fn add(&mut self, path: &Path, recursive: bool, keeper: Task) {
        let before = self.remove(path).map(|before| (before.places, before.retired));
        let (places, retired) = before.unwrap_or_default();
        self.bytes += path.as_str().len() * (1 + retired.len().min(RETIRED));
        let watched = Watched { recursive, places, _keeper: keeper, retired };
        self.by_path.insert(path.clone(), watched);
    }

    /// Keeps a one-event watch, which no observer waits for any more, as long as the persistent
    /// watch.
    fn retire(&mut self, path: &Path, coming: Coming) {
        match self.by_path.get_mut(path) {
            Some(watched) => {
                watched.retired.push(coming);
                // The crate sends a path once per kind of watch, and two kinds can be retired.
                if watched.retired.len() <= RETIRED {
                    self.bytes += path.as_str().len();
                }
            }
            None => drop(coming),
        }
    }

    fn remove(&mut self, path: &Path) -> Option<Watched> {
        let removed = self.by_path.remove(path)?;
        self.bytes -= path.as_str().len() * (1 + removed.retired.len().min(RETIRED));
        Some(removed)
    }

    /// Releases a place that has no observer any more.
    fn release(&mut self, by: &Path, place: &Path) {
        let Some(watched) = self.by_path.get_mut(by) else { return };
        watched.places.remove(place);
        if watched.places.is_empty() {
            self.remove(by);
        }
    }

    /// The places of a watch.
    fn told_by(&self, by: &Path) -> Vec<Path> {
        self.by_path.get(by).into_iter().flat_map(|it| it.places.iter().cloned()).collect()
    }
}

impl Place {
    fn reported_by(by: Path) -> Self {
        Self {
            by,
            observers: BTreeMap::new(),
            containers: BTreeSet::new(),
            ghosts: BTreeSet::new(),
            echoes: BTreeSet::new(),
            created: 0,
        }
    }

    fn forget_what_is_there(&mut self) {
        self.containers.clear();
        self.ghosts.clear();
        self.echoes.clear();
        self.created += 1;
    }

    /// Forgets what was there before an event that is not verified: an observer that begins later learns it by its view.
    fn forget(&mut self, notification: &Notification) {
        let path = &notification.path;
        if matches!(notification.kind, Kind::Created | Kind::Deleted) {
            self.containers.remove(path);
            self.ghosts.remove(path);
            self.created += 1;
        }
        self.echoes.remove(path);
    }

    fn verifies(&self, notification: &Notification) -> bool {
        self.observers.values().any(|observer| observer.fact(notification).is_some())
    }

    /// Collects the deliveries to the observers that find out by themselves what an event means.
    fn hint(&self, notification: &Notification, deliveries: &mut Vec<Delivery>) {
        let hints = self.observers.values().filter(|observer| observer.query.hints);
        deliveries.extend(hints.filter_map(|observer| {
            let change = change_for(&observer.query, notification)?;
            Some((observer.feed.clone(), Some(change)))
        }));
    }

    /// Collects the deliveries to the observers that get the event only verified.
    fn deliver(
        &mut self,
        notification: &Notification,
        proof: Option<&Proof>,
        deliveries: &mut Vec<Delivery>,
    ) {
        match (notification.kind, proof) {
            (Kind::Created, Some(Proof::Container)) => {
                self.containers.insert(notification.path.clone());
                return;
            }
            // Its deletion is reported by the next event.
            (Kind::Created, Some(Proof::Gone)) => {
                self.ghosts.insert(notification.path.clone());
                return;
            }
            // Its first observer that has it verified began after this was decided, or nothing can be read any more.
            (Kind::Created, None) => {
                self.forget(notification);
                return self.resync(notification, deliveries);
            }
            (Kind::Created, _) => {
                self.containers.remove(&notification.path);
                self.ghosts.remove(&notification.path);
                self.created += 1;
                if matches!(proof, Some(Proof::Node { echo: true, .. })) {
                    self.echoes.insert(notification.path.clone());
                } else {
                    self.echoes.remove(&notification.path);
                }
            }
            // The second write of its creation, which is reported already, or a write of a deleted
            // node.
            (Kind::Updated, _) if self.echoes.remove(&notification.path) => return,
            (Kind::Updated, _) if self.ghosts.contains(&notification.path) => return,
            (Kind::Deleted, _) if self.containers.remove(&notification.path) => return,
            // A node may have been here, or only a container, whose deletion is not reported.
            (Kind::Deleted, _) if self.ghosts.remove(&notification.path) => {
                return self.resync(notification, deliveries);
            }
            _ => {}
        }
        for observer in self.observers.values() {
            if let Some(mut change) = observer.fact(notification) {
                if let Some(Proof::Node { node, .. }) = proof {
                    change.revision = node.stat.map(|stat| stat.created);
                    change.node = Some((**node).clone());
                }
                deliveries.push((observer.feed.clone(), Some(change)));
            }
        }
    }

    /// Requests the observers that have an event verified to read again.
    fn resync(&self, notification: &Notification, deliveries: &mut Vec<Delivery>) {
        let heard = self.observers.values().filter(|it| it.fact(notification).is_some());
        deliveries.extend(heard.map(|observer| (observer.feed.clone(), None)));
    }
}

impl Observer {
    /// The change that it gets for an event, if that has to be verified.
    fn fact(&self, notification: &Notification) -> Option<Change> {
        change_for(&self.query, notification).filter(|_| !self.query.hints)
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

#[cfg(test)]
mod tests {
    use synod_core::task::spawn;

    use super::*;

    fn path(text: &str) -> Path {
        Path::new(text).expect("valid")
    }

    #[tokio::test]
    async fn of_very_many_paths_the_rest_is_watched_from_above() {
        let mut watches = Watches::default();
        let observe = |watches: &mut Watches, at: &str| {
            let by = watches.for_path(&path(at));
            let recursive = by != path(at);
            if !watches.by_path.contains_key(&by) {
                watches.add(&by, recursive, spawn(std::future::pending()));
            }
            watches.by_path.get_mut(&by).expect("it is watched").places.insert(path(at));
            by
        };
        let long = |number: usize| format!("/long/{}{number:04}", "x".repeat(190));
        for number in 0..300 {
            assert_eq!(observe(&mut watches, &long(number)), path(&long(number)));
        }
        for number in 300..1_000 {
            assert_eq!(observe(&mut watches, &long(number)), path("/long"));
        }
        assert_eq!(observe(&mut watches, &long(7)), path(&long(7)), "it has its own");
        assert_eq!(observe(&mut watches, "/long/a/b"), path("/long"));
        for number in 0..1_000 {
            let by =
                observe(&mut watches, &format!("{}/node", long(number).replace("long", "deep")));
            assert!(by.parent_str() == Some("/deep") || by.is_root(), "{by}");
        }
        assert_eq!(observe(&mut watches, "/other"), Path::root());
        assert!(watches.bytes < 100_000, "{}", watches.bytes);

        let all: Vec<(Path, Path)> = watches
            .by_path
            .iter()
            .flat_map(|(by, it)| it.places.iter().map(|place| (by.clone(), place.clone())))
            .collect();
        for (by, place) in all {
            watches.release(&by, &place);
        }
        assert!(watches.by_path.is_empty() && watches.bytes == 0);
    }

    #[tokio::test]
    async fn retired_watches_count_as_long_as_they_are_kept() {
        let mut watches = Watches::default();
        let retire = |watches: &mut Watches| {
            watches.retire(&path("/a"), futures_util::FutureExt::boxed(std::future::pending()));
        };
        retire(&mut watches);
        assert_eq!(watches.bytes, 0, "it is dropped where nothing is watched");

        watches.add(&path("/a"), false, spawn(std::future::pending()));
        for bytes in [4, 6, 6] {
            retire(&mut watches);
            assert_eq!(watches.bytes, bytes);
        }
        watches.add(&path("/a"), true, spawn(std::future::pending()));
        assert_eq!(watches.bytes, 6, "the watch is another, what is retired stays");
        watches.remove(&path("/a"));
        assert_eq!(watches.bytes, 0);
    }
}
