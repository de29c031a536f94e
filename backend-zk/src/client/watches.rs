//! [`Watches`]: the watches of a session, and the removals to send to the server. Pure, except for
//! the channels to watchers.
//!
//! A server removes watches by path and kind, and persistent ones only together with all others of
//! their path (ZOOKEEPER-4472). So a removal is sent when the last watcher of a path and kind was
//! dropped, and not before all requests for such watches are answered: an earlier removal would be
//! answered first, and remove their watches, too. A persistent watch that stays at the server
//! because of other watches is removed after them.
//!
//! So the server has no watch without a watcher, except those whose removal is in flight, and an
//! event without a watcher needs no answer.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::{mpsc, oneshot};

use crate::client::event::{EventType, SessionState, WatchedEvent};
use crate::client::watcher::{Forget, OneshotWatcher, PersistentWatcher, Registered, Registration};
use crate::client::zk_error::NO_NODE;

/// The kinds of watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WatchKind {
    /// One event of an existing node.
    Data,
    /// One event of a node that does not exist.
    Exist,
    /// One event: a change of the children of a node.
    Child,
    Persistent,
    Recursive,
}

/// The watches of a path that a server removes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Removes {
    Child = 1,
    Data = 2,
    Any = 3,
}

/// A request for a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchRequest {
    path: String,
    kind: WatchKind,
    /// If the node does not exist, the server sets a watch for its creation.
    or_creation: bool,
}

/// A removal to be sent.
pub(super) type Removal = (String, Removes);

#[derive(Debug)]
pub(super) struct Watches {
    forget: Forget,
    next: u64,
    by_path: BTreeMap<String, Vec<Watcher>>,
    /// The paths of the watchers.
    paths: BTreeMap<u64, String>,
    /// The number of unanswered requests for watches, by path and kind.
    pending: BTreeMap<(String, WatchKind), usize>,
    /// Removals that wait for the answers to requests.
    deferred: BTreeSet<Removal>,
    /// The paths where the server may have a persistent watch without a watcher, because a removal
    /// would also remove the watches of other watchers.
    leftover: BTreeSet<String>,
}

#[derive(Debug)]
struct Watcher {
    id: u64,
    kind: WatchKind,
    events: Events,
}

#[derive(Debug)]
enum Events {
    One(oneshot::Sender<WatchedEvent>),
    All(mpsc::UnboundedSender<WatchedEvent>),
}

impl WatchRequest {
    pub(super) fn new(path: &str, kind: WatchKind) -> Self {
        Self { path: path.to_owned(), kind, or_creation: false }
    }

    /// A watch of a node's data, or else of its creation.
    pub(super) fn or_creation(path: &str) -> Self {
        Self { or_creation: true, ..Self::new(path, WatchKind::Data) }
    }
}

impl WatchKind {
    fn is_persistent(self) -> bool {
        matches!(self, Self::Persistent | Self::Recursive)
    }

    /// The removal that removes a watch of this kind.
    fn removed_by(self) -> Removes {
        match self {
            Self::Data | Self::Exist => Removes::Data,
            Self::Child => Removes::Child,
            Self::Persistent | Self::Recursive => Removes::Any,
        }
    }

    /// Returns `true` if a watch of this kind reports an event of its own path.
    fn reports(self, event: &WatchedEvent) -> bool {
        match event.event_type {
            EventType::NodeCreated | EventType::NodeDataChanged => self != Self::Child,
            EventType::NodeChildrenChanged => matches!(self, Self::Child | Self::Persistent),
            EventType::NodeDeleted => true,
            EventType::Session => event.session_state.is_terminated() || self.is_persistent(),
        }
    }
}

impl Watches {
    pub(super) fn new(forget: Forget) -> Self {
        Self {
            forget,
            next: 0,
            by_path: BTreeMap::new(),
            paths: BTreeMap::new(),
            pending: BTreeMap::new(),
            deferred: BTreeSet::new(),
            leftover: BTreeSet::new(),
        }
    }

    /// Records that a request for a watch is sent.
    pub(super) fn request_sent(&mut self, request: &WatchRequest) {
        *self.pending.entry((request.path.clone(), request.kind)).or_default() += 1;
    }

    /// Records the answer to a request for a watch. Returns the watcher, if the watch was set, and
    /// the removals that waited for the answer.
    pub(super) fn answered(
        &mut self,
        request: WatchRequest,
        code: i32,
    ) -> (Option<Registered>, Vec<Removal>) {
        let WatchRequest { path, kind, or_creation } = request;
        let key = (path, kind);
        if let Some(count) = self.pending.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.pending.remove(&key);
            }
        }
        let path = key.0;
        let kind = match (code, kind) {
            (0, kind) => kind,
            (NO_NODE, _) if or_creation => WatchKind::Exist,
            _ => {
                let mut due = self.take_due(&path);
                due.extend(self.remove_leftover(&path));
                return (None, due);
            }
        };
        // These removals would remove this watch as well.
        self.deferred.remove(&(path.clone(), kind.removed_by()));
        if self.deferred.remove(&(path.clone(), Removes::Any)) {
            self.leftover.insert(path.clone());
        }
        if kind.is_persistent() {
            self.leftover.remove(&path);
        }
        (Some(self.add(path, kind)), Vec::new())
    }

    fn add(&mut self, path: String, kind: WatchKind) -> Registered {
        let id = self.next;
        self.next += 1;
        let registration = Registration::new(id, self.forget.clone());
        let (events, registered) = if kind.is_persistent() {
            let (events, receiver) = mpsc::unbounded_channel();
            (Events::All(events), PersistentWatcher::registered(receiver, registration))
        } else {
            let (event, receiver) = oneshot::channel();
            (Events::One(event), OneshotWatcher::registered(receiver, registration))
        };
        self.paths.insert(id, path.clone());
        self.by_path.entry(path).or_default().push(Watcher { id, kind, events });
        registered
    }

    /// Forgets a watcher. Returns the removal to send now.
    pub(super) fn unwatch(&mut self, id: u64) -> Option<Removal> {
        let path = self.paths.remove(&id)?;
        let watchers = self.by_path.get_mut(&path)?;
        let index = watchers.iter().position(|watcher| watcher.id == id)?;
        let removes = watchers.swap_remove(index).kind.removed_by();
        if watchers.is_empty() {
            self.by_path.remove(&path);
            let all = if self.is_pending(&path, Removes::Any) { removes } else { Removes::Any };
            return self.remove(path, all);
        }
        let is_last = watchers.iter().all(|it| it.kind.removed_by() != removes);
        match (removes, is_last) {
            (_, false) => None,
            (Removes::Any, true) => {
                self.leftover.insert(path);
                None
            }
            (_, true) => self.remove(path, removes),
        }
    }

    fn remove(&mut self, path: String, removes: Removes) -> Option<Removal> {
        if self.is_pending(&path, removes) {
            self.deferred.insert((path, removes));
            return None;
        }
        if removes == Removes::Any {
            self.leftover.remove(&path);
        }
        Some((path, removes))
    }

    /// The removal of a persistent watch that was left at the server, if the path has no other
    /// watcher left.
    fn remove_leftover(&mut self, path: &str) -> Option<Removal> {
        let is_due = self.leftover.contains(path) && !self.by_path.contains_key(path);
        if is_due { self.remove(path.to_owned(), Removes::Any) } else { None }
    }

    /// Returns `true` if a request is unanswered whose watch this removal would remove.
    fn is_pending(&self, path: &str, removes: Removes) -> bool {
        let from = (path.to_owned(), WatchKind::Data);
        let watchers = self.pending.range(from..).take_while(|((at, _), _)| at == path);
        watchers
            .map(|((_, kind), _)| kind.removed_by())
            .any(|by| removes == Removes::Any || by == removes)
    }

    /// Takes the deferred removals of a path that no longer have to wait for an answer.
    fn take_due(&mut self, path: &str) -> Vec<Removal> {
        let all = [Removes::Child, Removes::Data, Removes::Any];
        let due = all.into_iter().filter(|removes| !self.is_pending(path, *removes));
        let due = due.map(|removes| (path.to_owned(), removes)).collect::<Vec<_>>();
        due.into_iter().filter(|removal| self.deferred.remove(removal)).collect()
    }

    /// Delivers an event of the server. Returns the removal to send if the last watcher was
    /// notified.
    pub(super) fn event(&mut self, event: &WatchedEvent) -> Option<Removal> {
        if let Some(watchers) = self.by_path.get_mut(&event.path) {
            send(watchers, &mut self.paths, event);
            if watchers.is_empty() {
                self.by_path.remove(&event.path);
            }
        }
        if event.event_type != EventType::NodeChildrenChanged {
            for above in above(&event.path) {
                let watchers = self.by_path.get(above).into_iter().flatten();
                for watcher in watchers.filter(|watcher| watcher.kind == WatchKind::Recursive) {
                    if let Events::All(events) = &watcher.events {
                        let _delivered = events.send(event.clone()).is_ok();
                    }
                }
            }
        }
        self.remove_leftover(&event.path)
    }

    /// Reports the state of the session; to watchers for one event only its end. The requests of a
    /// lost connection are forgotten.
    pub(super) fn report(&mut self, state: SessionState) {
        if state != SessionState::SyncConnected {
            self.pending.clear();
            self.deferred.clear();
            self.leftover.clear();
        }
        let event = WatchedEvent::of_session(state);
        for watchers in self.by_path.values_mut() {
            send(watchers, &mut self.paths, &event);
        }
        self.by_path.retain(|_, watchers| !watchers.is_empty());
        if state.is_terminated() {
            self.by_path.clear();
            self.paths.clear();
        }
    }

    /// The paths of the watches for one event, by kind: of data, of nodes that do not exist, and of
    /// children.
    pub(super) fn paths_to_set(&self) -> [Vec<&str>; 3] {
        [WatchKind::Data, WatchKind::Exist, WatchKind::Child].map(|kind| {
            let of_kind =
                |watchers: &&Vec<Watcher>| watchers.iter().any(|watcher| watcher.kind == kind);
            let all = self.by_path.iter().filter(|(_, watchers)| of_kind(watchers));
            all.map(|(path, _)| path.as_str()).collect()
        })
    }
}

/// Delivers an event to the watchers of one path. Watchers for one event are removed then.
fn send(watchers: &mut Vec<Watcher>, paths: &mut BTreeMap<u64, String>, event: &WatchedEvent) {
    for watcher in watchers.extract_if(.., |watcher| {
        let reports = watcher.kind.reports(event);
        if let (true, Events::All(events)) = (reports, &watcher.events) {
            let _delivered = events.send(event.clone()).is_ok();
        }
        reports && !watcher.kind.is_persistent()
    }) {
        paths.remove(&watcher.id);
        if let Events::One(one) = watcher.events {
            let _delivered = one.send(event.clone()).is_ok();
        }
    }
}

/// The paths above this one, up to the root.
fn above(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(parent(path), |path| parent(path))
}

fn parent(path: &str) -> Option<&str> {
    match path.rfind('/')? {
        0 if path.len() > 1 => Some("/"),
        0 => None,
        end => path.get(..end),
    }
}

#[cfg(test)]
mod tests;
