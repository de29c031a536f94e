//! [`Hub`]: the watches of a session.
//!
//! There is one watch at the server per path, shared by all observers: before 3.9, watches of two
//! kinds on one path destroy each other (ZOOKEEPER-4466). Events may be missed between two connections; so each watch is set
//! again on the next one (`hub/persistent.rs`), and its observers get a request to read again.
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

use crate::client::{Client, StateWatcher};
use crate::connection::Connection;
use crate::error::{Sort, Trouble};
use crate::hub::draws::Draws;
use crate::hub::proof::Proof;
use crate::notification::{Notification, change_for};
use crate::read::{gather_through, is_too_long, read_through};
use crate::sole_contender::Coming;

mod draw;
mod draws;
mod one_shot;
mod persistent;
mod proof;

/// How many events a watch keeps for a slow reader.
const EVENTS: usize = 4_096;

/// All observations of one session.
///
/// Requests are sent and watches are dropped under the lock of the state, so that the server
/// receives both in one order: each is a message to the task of the session. Under the lock, a channel of
/// that task may be polled for an event that is already there; nothing else is polled, no reader is
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

/// The watches at the server, each with the path that it is of.
#[derive(Default)]
struct Watches(BTreeMap<Path, Watched>);

/// One watch at the server.
struct Watched {
    recursive: bool,
    /// Keeps the watch alive until this is dropped.
    _keeper: Task,
    /// One-event watches on the same path that no observer waits for any more.
    retired: Vec<Coming>,
}

/// One observed path.
#[derive(Default)]
struct Place {
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
    pub(crate) async fn watch(self: &Arc<Self>, query: Query) -> Result<(View, Watch)> {
        let client = self.wire.client("watch")?;
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
            view.map_err(|trouble| trouble.translate("watch", Sort::Read).or_at(&query.path))?;
        self.learn(&query.path, containers, created);
        if query.is_until_gone() && view.node().is_none() {
            feed.end(End::Delivered);
        }
        if let Some(why) = self.wire.life.loss() {
            self.end(why);
        }
        Ok((view, watch))
    }

    /// Reads, and under a watch what does not fit into one request or one answer. With the containers that were found.
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
        match read_through(&self.wire, client, query).await {
            Err(Trouble::TooLarge) => {}
            answer if is_gathered && is_too_long(&answer) => {}
            answer => return answer,
        }
        // The watch is one of the hub's, as two kinds of watches on one path destroy each other.
        let (feed, _unread) = Feed::new(1);
        let (_unwatch, _) = self.add(client, query, feed);
        gather_through(&self.wire, client, &query.path, query).await
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
            let keeper = self.keeper(client, path, recursive, resync);
            state.watches.add(path, recursive, keeper);
            state.leave_to_hub(path);
        }
        let place = state.places.entry(path.clone()).or_default();
        place.observers.insert(id, Observer { query: query.clone(), feed });
        let created = place.created;
        (Unwatch { hub: Arc::downgrade(self), path: path.clone(), id }, created)
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
        if place.observers.is_empty() {
            state.places.remove(path);
            state.watches.0.remove(path);
        }
        drop(state);
        drop(observer);
    }

    /// Ends every watch, because the session is over.
    pub(crate) fn end(&self, why: SessionEnd) {
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
    fn fail(&self, path: &Path, error: Error) {
        let mut state = self.state();
        let (failed, watched) = (state.places.remove(path), state.watches.0.remove(path));
        drop(state);
        drop(watched);
        let error = Arc::new(error);
        for observer in failed.into_iter().flat_map(|place| place.observers.into_values()) {
            observer.feed.end(End::Failed(error.clone()));
        }
    }

    /// Makes the observers of this watch read again, because events may have been missed.
    fn resync(&self, path: &Path) {
        let mut state = self.state();
        let Some(place) = state.places.get_mut(path) else { return };
        place.forget_what_is_there();
        let feeds: Vec<Feed> =
            place.observers.values().map(|observer| observer.feed.clone()).collect();
        drop(state);
        for feed in feeds {
            let _heard = feed.resync();
        }
    }

    /// Whether this watch has an observer that gets the event only verified.
    fn verifies(&self, path: &Path, notification: &Notification) -> bool {
        self.state().places.get(path).is_some_and(|place| place.verifies(notification))
    }

    /// Delivers an event of a watch to its observers. Only the task that keeps the watch calls
    /// this, so that observers get the events in order although they are woken without the lock.
    fn deliver(&self, path: &Path, notification: &Notification, proof: Option<&Proof>) {
        let mut state = self.state();
        let Some(place) = state.places.get_mut(path) else { return };
        let mut deliveries = Vec::new();
        place.hint(notification, &mut deliveries);
        if place.verifies(notification) {
            place.deliver(notification, proof, &mut deliveries);
        } else {
            place.forget(notification);
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

impl Watches {
    /// Starts to watch a path, or replaces its watch by one of another mode.
    fn add(&mut self, path: &Path, recursive: bool, keeper: Task) {
        let retired = self.0.remove(path).map(|before| before.retired).unwrap_or_default();
        self.0.insert(path.clone(), Watched { recursive, _keeper: keeper, retired });
    }

    /// Keeps a one-event watch, which no observer waits for any more, as long as the persistent
    /// watch.
    fn retire(&mut self, path: &Path, coming: Coming) {
        match self.0.get_mut(path) {
            Some(watched) => watched.retired.push(coming),
            None => drop(coming),
        }
    }
}

impl Place {
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
    use super::*;
    use crate::client::{EventType, WatchedEvent};

    fn event(event_type: EventType) -> Notification {
        let session_state = crate::client::SessionState::SyncConnected;
        let event = WatchedEvent { event_type, session_state, path: "/d/a".to_owned(), zxid: -1 };
        Notification::of(&event).expect("it is of a node")
    }

    fn place() -> Place {
        let (feed, _watch) = Feed::new(EVENTS);
        let query = Query::children(Path::new("/d").expect("valid"));
        Place { observers: [(0, Observer { query, feed })].into(), ..Place::default() }
    }

    /// A view that was asked for before must not say that there is a container.
    #[test]
    fn whatever_may_take_the_place_of_a_container_is_counted() {
        let created = event(EventType::NodeCreated);
        let mut place = place();
        let mut grows = |what: &str, act: &dyn Fn(&mut Place)| {
            let before = place.created;
            act(&mut place);
            assert!(place.created > before, "{what}");
        };
        for _ in 0..2 {
            grows("missed events", &Place::forget_what_is_there);
            grows("not verified", &|place| place.forget(&created));
            grows("verified", &|place| {
                place.deliver(&created, Some(&Proof::Unclear), &mut Vec::new());
            });
        }
    }

    #[test]
    fn what_could_not_be_verified_is_to_be_read_again() {
        let (mut place, mut deliveries) = (place(), Vec::new());
        place.deliver(&event(EventType::NodeCreated), None, &mut deliveries);
        assert!(matches!(deliveries[..], [(_, None)]), "{} deliveries", deliveries.len());
    }
}
