//! [`WatchRegistry`]: the watches of a session.
//!
//! There is one watch at the server per path, shared by all observers: before 3.9, watches of two
//! kinds on one path interfere (ZOOKEEPER-4466). Events may be missed between two connections; so
//! each watch is set again on the next one (`persistent.rs`), and its observers are requested to
//! read again.
//!
//! An observer that needs only one event has a watch of another kind, if the path has no other
//! observer: see [`once`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::store::{Change, Detail, End, Feed, Kind, Query, Scope, SessionEnd, View, Watch};
use synod_core::task::Task;

use crate::client::Client;
use crate::connection::Connection;
use crate::error::{Sort, Trouble};
use crate::listing_cache::sole_contender::{SoleContender, WatchFired};
use crate::notification::{Notification, change_for};
use crate::read::{gather_through, is_too_long, read_through};
use crate::watch_registry::created_path::CreatedPath;

mod created_path;
mod directory_watches;
mod one_shot;
mod persistent;

/// The number of events that a watch keeps for a slow reader.
const MAX_EVENTS: usize = 4_096;

/// All observations of one session.
///
/// Requests are sent and watches are dropped under the lock of the state, so that the server
/// receives both in one order: each is a message to the task of the session. Under the lock, a
/// channel of that task may be polled for an event that has already arrived; nothing else is
/// polled, no reader is woken, and nothing is dropped that could use the registry again.
pub(crate) struct WatchRegistry {
    pub(crate) connection: Arc<Connection>,
    state: Mutex<State>,
}

struct State {
    observed: BTreeMap<Path, ObservedPath>,
    /// The observers that wait for one event.
    once: BTreeMap<u64, Feed>,
    watches: Watches,
    /// The state of the listing cache.
    sole_contender: SoleContender,
    next: u64,
}

/// The watches at the server, by path.
#[derive(Default)]
struct Watches(BTreeMap<Path, Watched>);

/// One watch at the server.
struct Watched {
    recursive: bool,
    /// The task that keeps the watch until this is dropped.
    _task: Task,
    /// One-event watches on the same path that observers no longer wait for.
    retired: Vec<WatchFired>,
}

/// One observed path.
#[derive(Default)]
struct ObservedPath {
    observers: BTreeMap<u64, Observer>,
    /// Containers that were found at paths of the watch: their changes are not reported.
    containers: BTreeSet<Path>,
    /// Unverified nodes: created and deleted before a read could show whether they were containers.
    unverified: BTreeSet<Path>,
    /// Nodes created by two writes of one transaction, of which the first was reported: the event
    /// of the second is a duplicate.
    duplicates: BTreeSet<Path>,
    /// The number of observed creations.
    created: u64,
}

struct Observer {
    query: Query,
    feed: Feed,
}

/// The message to an observer: a change, or `None` if it must read again.
type Delivery = (Feed, Option<Change>);

/// Ends an observation when its reader drops it.
struct Unwatch {
    registry: Weak<WatchRegistry>,
    path: Path,
    id: u64,
}

impl WatchRegistry {
    pub(crate) fn new(connection: Arc<Connection>) -> Arc<Self> {
        let state = State {
            observed: BTreeMap::new(),
            once: BTreeMap::new(),
            watches: Watches::default(),
            sole_contender: SoleContender::default(),
            next: 0,
        };
        Arc::new(Self { connection, state: Mutex::new(state) })
    }

    /// Watches and reads as one step: the watch is sent before the read.
    pub(crate) async fn watch(self: &Arc<Self>, query: Query) -> Result<(View, Watch)> {
        let client = self.connection.client("watch")?;
        if query.once
            && let Some(observed) = self.observe_once(&client, &query).await
        {
            return observed;
        }
        let (feed, watch) = Feed::new(MAX_EVENTS);
        let (unwatch, created) = self.add(&client, &query, feed.clone());
        let watch = watch.with_guard(unwatch);
        let view = self.read(&client, &query).await;
        let (view, containers) =
            view.map_err(|trouble| trouble.translate("watch", Sort::Read).or_at(&query.path))?;
        self.learn(&query.path, containers, created);
        if query.is_until_gone() && view.node().is_none() {
            feed.end(End::Delivered);
        }
        if let Some(why) = self.connection.life.loss() {
            self.end(why);
        }
        Ok((view, watch))
    }

    /// Reads. If the nodes do not fit into one request or one response, they are read under a
    /// watch. Returns the containers that were found, too.
    pub(crate) async fn read(
        self: &Arc<Self>,
        client: &Arc<Client>,
        query: &Query,
    ) -> Result<(View, Vec<Path>), Trouble> {
        let is_gathered = match query.scope {
            Scope::Node => false,
            Scope::Children => query.detail == Detail::Data && query.window.is_none(),
            Scope::Subtree => true,
        };
        match read_through(&self.connection, client, query).await {
            Err(Trouble::TooLarge) => {}
            answer if is_gathered && is_too_long(&answer) => {}
            answer => return answer,
        }
        // The watch belongs to the registry, because two kinds of watches on one path interfere.
        let (feed, _unread) = Feed::new(1);
        let (_unwatch, _) = self.add(client, query, feed);
        gather_through(&self.connection, client, &query.path, query).await
    }

    fn add(self: &Arc<Self>, client: &Arc<Client>, query: &Query, feed: Feed) -> (Unwatch, u64) {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        let (path, recursive) = (&query.path, needs_recursive(query));
        let resync = match state.watches.0.get(path) {
            None => Some(false),
            Some(watched) if recursive && !watched.recursive => Some(true),
            Some(_) => None,
        };
        if let Some(resync) = resync {
            let task = self.watch_task(client, path, recursive, resync);
            state.watches.add(path, recursive, task);
            state.release_directory_watch(path);
        }
        let path_state = state.observed.entry(path.clone()).or_default();
        path_state.observers.insert(id, Observer { query: query.clone(), feed });
        let created = path_state.created;
        (Unwatch { registry: Arc::downgrade(self), path: path.clone(), id }, created)
    }

    /// Records the containers that a view showed, unless a node may have replaced one since.
    fn learn(&self, path: &Path, containers: Vec<Path>, created: u64) {
        if let Some(path_state) = self.state().observed.get_mut(path)
            && path_state.created == created
        {
            path_state.containers.extend(containers);
        }
    }

    fn remove(&self, path: &Path, id: u64) {
        let mut state = self.state();
        let Some(path_state) = state.observed.get_mut(path) else { return };
        let observer = path_state.observers.remove(&id);
        if path_state.observers.is_empty() {
            state.observed.remove(path);
            state.watches.0.remove(path);
        }
        drop(state);
        drop(observer);
    }

    /// Ends every watch, because the session is over.
    pub(crate) fn end(&self, why: SessionEnd) {
        let mut state = self.state();
        let (observed, watches) = (take(&mut state.observed), take(&mut state.watches));
        let (once, directories) = (take(&mut state.once), take(&mut state.sole_contender));
        drop(state);
        drop((watches, directories));
        for feed in once.into_values() {
            feed.end(End::SessionOver(why));
        }
        for observer in
            observed.into_values().flat_map(|path_state| path_state.observers.into_values())
        {
            observer.feed.end(End::SessionOver(why));
        }
    }

    /// Ends the observations of a watch that could not be set.
    fn fail(&self, path: &Path, error: Error) {
        let mut state = self.state();
        let (failed, watched) = (state.observed.remove(path), state.watches.0.remove(path));
        drop(state);
        drop(watched);
        let error = Arc::new(error);
        for observer in failed.into_iter().flat_map(|path_state| path_state.observers.into_values())
        {
            observer.feed.end(End::Failed(error.clone()));
        }
    }

    /// Makes the observers of this watch read again, because events may have been missed.
    fn resync(&self, path: &Path) {
        let mut state = self.state();
        let Some(path_state) = state.observed.get_mut(path) else { return };
        path_state.forget_all();
        let feeds: Vec<Feed> =
            path_state.observers.values().map(|observer| observer.feed.clone()).collect();
        drop(state);
        for feed in feeds {
            let _delivered = feed.resync();
        }
    }

    /// Returns `true` if this watch has an observer that needs the event verified.
    fn verifies(&self, path: &Path, notification: &Notification) -> bool {
        self.state().observed.get(path).is_some_and(|path_state| path_state.verifies(notification))
    }

    /// Delivers an event of a watch to its observers. Only the task that keeps the watch calls
    /// this, so that observers get the events in order although they are woken without the lock.
    fn deliver(&self, path: &Path, notification: &Notification, found: Option<&CreatedPath>) {
        let mut state = self.state();
        let Some(path_state) = state.observed.get_mut(path) else { return };
        let mut deliveries = Vec::new();
        path_state.add_hints(notification, &mut deliveries);
        if path_state.verifies(notification) {
            path_state.deliver(notification, found, &mut deliveries);
        } else {
            path_state.forget(notification);
        }
        drop(state);
        for (feed, change) in deliveries {
            let _delivered = match change {
                Some(change) => feed.send(change),
                None => feed.resync(),
            };
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watches {
    /// Starts to watch a path, or replaces its watch by one of another mode.
    fn add(&mut self, path: &Path, recursive: bool, task: Task) {
        let retired = self.0.remove(path).map(|before| before.retired).unwrap_or_default();
        self.0.insert(path.clone(), Watched { recursive, _task: task, retired });
    }

    /// Keeps a one-event watch, which observers no longer wait for, as long as the persistent
    /// watch.
    fn retire(&mut self, path: &Path, watch: WatchFired) {
        match self.0.get_mut(path) {
            Some(watched) => watched.retired.push(watch),
            None => drop(watch),
        }
    }
}

impl ObservedPath {
    fn forget_all(&mut self) {
        self.containers.clear();
        self.unverified.clear();
        self.duplicates.clear();
        self.created += 1;
    }

    /// Forgets the state of a path before an event that is not verified: a later observer gets the
    /// state from its view.
    fn forget(&mut self, notification: &Notification) {
        let path = &notification.path;
        if matches!(notification.kind, Kind::Created | Kind::Deleted) {
            self.containers.remove(path);
            self.unverified.remove(path);
            self.created += 1;
        }
        self.duplicates.remove(path);
    }

    fn verifies(&self, notification: &Notification) -> bool {
        self.observers.values().any(|observer| observer.verified_change(notification).is_some())
    }

    /// Collects the deliveries to the observers that need no verified events (hints).
    fn add_hints(&self, notification: &Notification, deliveries: &mut Vec<Delivery>) {
        let hints = self.observers.values().filter(|observer| observer.query.hints);
        deliveries.extend(hints.filter_map(|observer| {
            let change = change_for(&observer.query, notification)?;
            Some((observer.feed.clone(), Some(change)))
        }));
    }

    /// Collects the deliveries to the observers that need the event verified.
    fn deliver(
        &mut self,
        notification: &Notification,
        found: Option<&CreatedPath>,
        deliveries: &mut Vec<Delivery>,
    ) {
        match (notification.kind, found) {
            (Kind::Created, Some(CreatedPath::Container)) => {
                self.containers.insert(notification.path.clone());
                return;
            }
            // Its deletion is reported by the next event.
            (Kind::Created, Some(CreatedPath::Gone)) => {
                self.unverified.insert(notification.path.clone());
                return;
            }
            // The first observer that needs the event verified came after this was decided, or no
            // more reads are possible.
            (Kind::Created, None) => {
                self.forget(notification);
                return self.resync(notification, deliveries);
            }
            (Kind::Created, _) => {
                self.containers.remove(&notification.path);
                self.unverified.remove(&notification.path);
                self.created += 1;
                if matches!(found, Some(CreatedPath::Node { duplicate: true, .. })) {
                    self.duplicates.insert(notification.path.clone());
                } else {
                    self.duplicates.remove(&notification.path);
                }
            }
            // The second write of its creation, which was reported already, or a write of a deleted
            // node.
            (Kind::Updated, _) if self.duplicates.remove(&notification.path) => return,
            (Kind::Updated, _) if self.unverified.contains(&notification.path) => return,
            (Kind::Deleted, _) if self.containers.remove(&notification.path) => return,
            // A node may have been at the path, or only a container, whose deletion is not
            // reported.
            (Kind::Deleted, _) if self.unverified.remove(&notification.path) => {
                return self.resync(notification, deliveries);
            }
            _ => {}
        }
        for observer in self.observers.values() {
            if let Some(mut change) = observer.verified_change(notification) {
                if let Some(CreatedPath::Node { node, .. }) = found {
                    change.revision = node.stat.map(|stat| stat.created);
                    change.node = Some((**node).clone());
                }
                deliveries.push((observer.feed.clone(), Some(change)));
            }
        }
    }

    /// Requests the observers that need the event verified to read again.
    fn resync(&self, notification: &Notification, deliveries: &mut Vec<Delivery>) {
        let observers =
            self.observers.values().filter(|it| it.verified_change(notification).is_some());
        deliveries.extend(observers.map(|observer| (observer.feed.clone(), None)));
    }
}

impl Observer {
    /// The change to report to this observer for a verified event.
    fn verified_change(&self, notification: &Notification) -> Option<Change> {
        change_for(&self.query, notification).filter(|_| !self.query.hints)
    }
}

impl Drop for Unwatch {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.remove(&self.path, self.id);
        }
    }
}

impl fmt::Debug for WatchRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchRegistry")
            .field("observed", &self.state().observed.len())
            .finish_non_exhaustive()
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
    use super::*;
    use crate::client::{EventType, WatchedEvent};

    fn event(event_type: EventType) -> Notification {
        let session_state = crate::client::SessionState::SyncConnected;
        let event = WatchedEvent { event_type, session_state, path: "/d/a".to_owned(), zxid: -1 };
        Notification::of(&event).expect("it is of a node")
    }

    fn path_state() -> ObservedPath {
        let (feed, _watch) = Feed::new(MAX_EVENTS);
        let query = Query::children(Path::new("/d").expect("valid"));
        ObservedPath {
            observers: [(0, Observer { query, feed })].into(),
            ..ObservedPath::default()
        }
    }

    /// A view that was requested before must not show a container.
    #[test]
    fn whatever_may_take_the_place_of_a_container_is_counted() {
        let created = event(EventType::NodeCreated);
        let mut path_state = path_state();
        let mut grows = |what: &str, act: &dyn Fn(&mut ObservedPath)| {
            let before = path_state.created;
            act(&mut path_state);
            assert!(path_state.created > before, "{what}");
        };
        for _ in 0..2 {
            grows("missed events", &ObservedPath::forget_all);
            grows("not verified", &|path_state| path_state.forget(&created));
            grows("verified", &|path_state| {
                path_state.deliver(&created, Some(&CreatedPath::Unclear), &mut Vec::new());
            });
        }
    }

    #[test]
    fn what_could_not_be_verified_is_to_be_read_again() {
        let (mut path_state, mut deliveries) = (path_state(), Vec::new());
        path_state.deliver(&event(EventType::NodeCreated), None, &mut deliveries);
        assert!(matches!(deliveries[..], [(_, None)]), "{} deliveries", deliveries.len());
    }
}
