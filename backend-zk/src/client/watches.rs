//! [`Watches`]: the watches of a session, and which of them must be removed at the server. Pure, but for the channels to watchers.
//!
//! A server removes watches by path and kind, and persistent ones only together with all others of their path (ZOOKEEPER-4472). So a
//! removal is sent when the last watcher of a path and kind was dropped, and not before all requests for such watches are answered: one
//! that was sent earlier would be answered first, and the removal would take its watch, too. A persistent watch that stays at the server
//! for the sake of others is removed after them.
//!
//! So the server has no watch without a watcher, but for those whose removal is on its way, and an event without a watcher needs no
//! answer.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::{mpsc, oneshot};

use crate::client::event::{EventType, SessionState, WatchedEvent};
use crate::client::watcher::{Forget, OneshotWatcher, PersistentWatcher, Registered, Registration};
use crate::client::zk_error::NO_NODE;

/// The kinds of watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WatchKind {
    /// One event, of a node that is there.
    Data,
    /// One event, of a node that is not there.
    Exist,
    /// One event, that the children of a node changed.
    Child,
    Persistent,
    Recursive,
}

/// Which watches of a path a server removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Removes {
    Child = 1,
    Data = 2,
    Any = 3,
}

/// A watch that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    path: String,
    kind: WatchKind,
    /// Without a node, the server sets a watch for its creation.
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
    /// The requests for watches that are not answered yet, by path and kind.
    asked: BTreeMap<(String, WatchKind), usize>,
    /// Removals that wait for the answers to requests.
    deferred: BTreeSet<Removal>,
    /// The paths where the server may have a persistent watch without a watcher, as a removal would take the watches of others.
    left: BTreeSet<String>,
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

impl Asked {
    pub(super) fn new(path: &str, kind: WatchKind) -> Self {
        Self { path: path.to_owned(), kind, or_creation: false }
    }

    /// A watch of a node's data, or else of its creation.
    pub(super) fn or_creation(path: &str) -> Self {
        Self { or_creation: true, ..Self::new(path, WatchKind::Data) }
    }
}

impl WatchKind {
    fn stays(self) -> bool {
        matches!(self, Self::Persistent | Self::Recursive)
    }

    /// What removes a watch of this kind.
    fn removed_by(self) -> Removes {
        match self {
            Self::Data | Self::Exist => Removes::Data,
            Self::Child => Removes::Child,
            Self::Persistent | Self::Recursive => Removes::Any,
        }
    }

    /// Whether a watch of this kind reports an event of its own path.
    fn reports(self, event: &WatchedEvent) -> bool {
        match event.event_type {
            EventType::NodeCreated | EventType::NodeDataChanged => self != Self::Child,
            EventType::NodeChildrenChanged => matches!(self, Self::Child | Self::Persistent),
            EventType::NodeDeleted => true,
            EventType::Session => event.session_state.is_terminated() || self.stays(),
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
            asked: BTreeMap::new(),
            deferred: BTreeSet::new(),
            left: BTreeSet::new(),
        }
    }

    /// Records that a request for a watch is sent.
    pub(super) fn ask(&mut self, asked: &Asked) {
        *self.asked.entry((asked.path.clone(), asked.kind)).or_default() += 1;
    }

    /// Records the answer to a request for a watch. Returns the watcher, if there is a watch, and the removals that were waiting.
    pub(super) fn answered(
        &mut self,
        asked: Asked,
        code: i32,
    ) -> (Option<Registered>, Vec<Removal>) {
        let Asked { path, kind, or_creation } = asked;
        let key = (path, kind);
        if let Some(count) = self.asked.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.asked.remove(&key);
            }
        }
        let path = key.0;
        let kind = match (code, kind) {
            (0, kind) => kind,
            (NO_NODE, _) if or_creation => WatchKind::Exist,
            _ => {
                let mut due = self.due(&path);
                due.extend(self.remove_left(&path));
                return (None, due);
            }
        };
        // They would remove this one as well.
        self.deferred.remove(&(path.clone(), kind.removed_by()));
        if self.deferred.remove(&(path.clone(), Removes::Any)) {
            self.left.insert(path.clone());
        }
        if kind.stays() {
            self.left.remove(&path);
        }
        (Some(self.add(path, kind)), Vec::new())
    }

    fn add(&mut self, path: String, kind: WatchKind) -> Registered {
        let id = self.next;
        self.next += 1;
        let registration = Registration::new(id, self.forget.clone());
        let (events, registered) = if kind.stays() {
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

    /// Forgets a watcher. Returns what is to be removed at the server now.
    pub(super) fn unwatch(&mut self, id: u64) -> Option<Removal> {
        let path = self.paths.remove(&id)?;
        let here = self.by_path.get_mut(&path)?;
        let place = here.iter().position(|watcher| watcher.id == id)?;
        let removes = here.swap_remove(place).kind.removed_by();
        if here.is_empty() {
            self.by_path.remove(&path);
            let all = if self.is_asked(&path, Removes::Any) { removes } else { Removes::Any };
            return self.remove(path, all);
        }
        let is_last = here.iter().all(|it| it.kind.removed_by() != removes);
        match (removes, is_last) {
            (_, false) => None,
            (Removes::Any, true) => {
                self.left.insert(path);
                None
            }
            (_, true) => self.remove(path, removes),
        }
    }

    fn remove(&mut self, path: String, removes: Removes) -> Option<Removal> {
        if self.is_asked(&path, removes) {
            self.deferred.insert((path, removes));
            return None;
        }
        if removes == Removes::Any {
            self.left.remove(&path);
        }
        Some((path, removes))
    }

    /// The removal of a persistent watch that was left at the server, now that there is no other watcher of the path.
    fn remove_left(&mut self, path: &str) -> Option<Removal> {
        let is_due = self.left.contains(path) && !self.by_path.contains_key(path);
        if is_due { self.remove(path.to_owned(), Removes::Any) } else { None }
    }

    /// Whether a request is not answered yet whose watch such a removal would take.
    fn is_asked(&self, path: &str, removes: Removes) -> bool {
        let from = (path.to_owned(), WatchKind::Data);
        let here = self.asked.range(from..).take_while(|((at, _), _)| at == path);
        here.map(|((_, kind), _)| kind.removed_by())
            .any(|by| removes == Removes::Any || by == removes)
    }

    /// The deferred removals of a path for which no request has to be answered any more.
    fn due(&mut self, path: &str) -> Vec<Removal> {
        let all = [Removes::Child, Removes::Data, Removes::Any];
        let due = all.into_iter().filter(|removes| !self.is_asked(path, *removes));
        let due = due.map(|removes| (path.to_owned(), removes)).collect::<Vec<_>>();
        due.into_iter().filter(|removal| self.deferred.remove(removal)).collect()
    }

    /// Delivers an event of the server. Returns what is to be removed, if it was the last one that was waited for.
    pub(super) fn event(&mut self, event: &WatchedEvent) -> Option<Removal> {
        if let Some(here) = self.by_path.get_mut(&event.path) {
            send(here, &mut self.paths, event);
            if here.is_empty() {
                self.by_path.remove(&event.path);
            }
        }
        if event.event_type != EventType::NodeChildrenChanged {
            for above in above(&event.path) {
                let here = self.by_path.get(above).into_iter().flatten();
                for watcher in here.filter(|watcher| watcher.kind == WatchKind::Recursive) {
                    if let Events::All(events) = &watcher.events {
                        let _heard = events.send(event.clone()).is_ok();
                    }
                }
            }
        }
        self.remove_left(&event.path)
    }

    /// Reports the state of the session, to watchers for one event its end alone. The requests of a connection that is lost are
    /// forgotten.
    pub(super) fn report(&mut self, state: SessionState) {
        if state != SessionState::SyncConnected {
            self.asked.clear();
            self.deferred.clear();
            self.left.clear();
        }
        let event = WatchedEvent::of_session(state);
        for here in self.by_path.values_mut() {
            send(here, &mut self.paths, &event);
        }
        self.by_path.retain(|_, here| !here.is_empty());
        if state.is_terminated() {
            self.by_path.clear();
            self.paths.clear();
        }
    }

    /// The paths of the watches for one event, by kind: of data, of what is not there, and of children.
    pub(super) fn to_set_again(&self) -> [Vec<&str>; 3] {
        [WatchKind::Data, WatchKind::Exist, WatchKind::Child].map(|kind| {
            let of_kind = |here: &&Vec<Watcher>| here.iter().any(|watcher| watcher.kind == kind);
            let all = self.by_path.iter().filter(|(_, here)| of_kind(here));
            all.map(|(path, _)| path.as_str()).collect()
        })
    }
}

/// Delivers an event to the watchers of one path. Those for one event have had it then.
fn send(here: &mut Vec<Watcher>, paths: &mut BTreeMap<u64, String>, event: &WatchedEvent) {
    for watcher in here.extract_if(.., |watcher| {
        let reports = watcher.kind.reports(event);
        if let (true, Events::All(events)) = (reports, &watcher.events) {
            let _heard = events.send(event.clone()).is_ok();
        }
        reports && !watcher.kind.stays()
    }) {
        paths.remove(&watcher.id);
        if let Events::One(one) = watcher.events {
            let _heard = one.send(event.clone()).is_ok();
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
