//! [`Watches`]: the watches of a session, and which of them must be removed at the server. Pure, but for the channels to watchers.
//!
//! A server removes watches by path and kind, and persistent ones only together with all others of their path (ZOOKEEPER-4472). So a
//! removal is sent when the last watcher of a path and kind was dropped, and not before all requests for such watches are answered: one
//! that was sent earlier would be answered first, and the removal would take its watch, too.

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
        Self { path: path.to_owned(), kind }
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
        let Asked { path, kind } = asked;
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
            (NO_NODE, WatchKind::Data) => WatchKind::Exist,
            _ => return (None, self.due(&path)),
        };
        // They would remove this one as well.
        self.deferred.remove(&(path.clone(), kind.removed_by()));
        self.deferred.remove(&(path.clone(), Removes::Any));
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
        let mut removes = here.swap_remove(place).kind.removed_by();
        if here.is_empty() {
            self.by_path.remove(&path);
            if !self.is_asked(&path, Removes::Any) {
                removes = Removes::Any;
            }
        } else if removes == Removes::Any || here.iter().any(|it| it.kind.removed_by() == removes) {
            return None;
        }
        self.remove(path, removes)
    }

    fn remove(&mut self, path: String, removes: Removes) -> Option<Removal> {
        if self.is_asked(&path, removes) {
            self.deferred.insert((path, removes));
            return None;
        }
        Some((path, removes))
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

    /// Delivers an event of the server. Returns what is to be removed if there is no watcher of it.
    pub(super) fn event(&mut self, event: &WatchedEvent) -> Option<Removal> {
        let mut heard = self.by_path.contains_key(&event.path);
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
                    heard = true;
                    if let Events::All(events) = &watcher.events {
                        let _heard = events.send(event.clone()).is_ok();
                    }
                }
            }
        }
        if heard { None } else { self.remove(event.path.clone(), Removes::Any) }
    }

    /// Reports the state of the session, to watchers for one event its end alone.
    pub(super) fn report(&mut self, state: SessionState) {
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

    /// Forgets the requests of a connection that is lost.
    pub(super) fn disconnected(&mut self) {
        self.asked.clear();
        self.deferred.clear();
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
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn watches() -> (Watches, mpsc::UnboundedReceiver<u64>) {
        let (dropped, taken) = mpsc::unbounded_channel();
        (Watches::new(Forget::new(move |id| dropped.send(id).expect("it is read"))), taken)
    }

    fn event(event_type: EventType, path: &str) -> WatchedEvent {
        let session_state = SessionState::SyncConnected;
        WatchedEvent { event_type, session_state, path: path.to_owned(), zxid: -1 }
    }

    fn watch(watches: &mut Watches, path: &str, kind: WatchKind) -> Registered {
        let asked = Asked::new(path, kind);
        watches.ask(&asked);
        watches.answered(asked, 0).0.expect("it is there")
    }

    #[test]
    fn a_recursive_watch_hears_of_all_below_it_and_others_of_their_path_alone() {
        let (mut watches, _dropped) = watches();
        let recursive = watch(&mut watches, "/a", WatchKind::Recursive);
        let node = watch(&mut watches, "/a", WatchKind::Persistent);
        let (Registered::Persistent(mut recursive), Registered::Persistent(mut node)) =
            (recursive, node)
        else {
            panic!("they stay")
        };
        let mut heard = |kind, path| {
            let removal = watches.event(&event(kind, path));
            let count = [&mut recursive, &mut node].map(|it| it.changed().now_or_never().is_some());
            (count, removal)
        };
        assert_eq!(heard(EventType::NodeCreated, "/a/b/c"), ([true, false], None));
        assert_eq!(heard(EventType::NodeDeleted, "/a"), ([true, true], None));
        assert_eq!(heard(EventType::NodeChildrenChanged, "/a"), ([false, true], None));
        let unheard = |path: &str| ([false, false], Some((path.to_owned(), Removes::Any)));
        assert_eq!(heard(EventType::NodeCreated, "/ab"), unheard("/ab"));
        assert_eq!(heard(EventType::NodeChildrenChanged, "/a/b"), unheard("/a/b"));
    }

    #[test]
    fn a_watch_for_one_event_has_one_and_is_set_again_until_then() {
        let (mut watches, _dropped) = watches();
        let asked = Asked::new("/x", WatchKind::Data);
        watches.ask(&asked);
        let absent = watches.answered(asked, NO_NODE).0.expect("it waits for the creation");
        let child = watch(&mut watches, "/a", WatchKind::Child);
        watches.report(SessionState::Disconnected);
        assert_eq!(watches.to_set_again(), [vec![], vec!["/x"], vec!["/a"]]);
        watches.event(&event(EventType::NodeCreated, "/x"));
        watches.event(&event(EventType::NodeDataChanged, "/a"));
        assert_eq!(watches.to_set_again(), [vec![], vec![], vec!["/a"]]);
        watches.report(SessionState::Expired);
        let last = [absent, child].map(|it| {
            let Registered::Oneshot(one) = it else { panic!("it is for one event") };
            one.changed().now_or_never().expect("it has come").event_type
        });
        assert_eq!(last, [EventType::NodeCreated, EventType::Session]);
        assert_eq!(watches.paths.len(), 0);
    }

    #[test]
    fn a_removal_takes_no_watch_that_is_still_wanted() {
        let (mut watches, _dropped) = watches();
        let _first = watch(&mut watches, "/a", WatchKind::Persistent);
        let _second = watch(&mut watches, "/a", WatchKind::Recursive);
        let _third = watch(&mut watches, "/a", WatchKind::Child);
        let removal = |removes| Some(("/a".to_owned(), removes));
        assert_eq!(watches.unwatch(0), None, "the server removes persistent ones with all others");
        assert_eq!(watches.unwatch(2), removal(Removes::Child));
        // Another one is asked for, and not there yet.
        let asked = Asked::new("/a", WatchKind::Recursive);
        watches.ask(&asked);
        assert_eq!(watches.unwatch(1), None);
        let (registered, due) = watches.answered(asked.clone(), 0);
        assert!(registered.is_some() && due.is_empty() && watches.deferred.is_empty());
        watches.ask(&asked);
        assert_eq!(watches.unwatch(3), None);
        let (registered, due) = watches.answered(asked, -102);
        assert!(registered.is_none(), "it was refused");
        assert_eq!(due, [("/a".to_owned(), Removes::Any)]);
        assert_eq!(watches.unwatch(3), None, "it is forgotten");
    }

    #[test]
    fn what_was_asked_for_on_a_lost_connection_defers_no_removal() {
        let (mut watches, _dropped) = watches();
        let _watch = watch(&mut watches, "/a", WatchKind::Data);
        watches.ask(&Asked::new("/a", WatchKind::Recursive));
        watches.disconnected();
        assert_eq!(watches.unwatch(0), Some(("/a".to_owned(), Removes::Any)));
    }

    #[test]
    fn a_dropped_watcher_is_reported_unless_its_event_has_come() {
        let (mut watches, mut dropped) = watches();
        drop(watch(&mut watches, "/a", WatchKind::Data));
        assert_eq!(dropped.try_recv(), Ok(0));
        let Registered::Oneshot(one) = watch(&mut watches, "/b", WatchKind::Data) else {
            panic!("it is for one event")
        };
        watches.event(&event(EventType::NodeDeleted, "/b"));
        assert!(one.changed().now_or_never().is_some());
        assert!(dropped.try_recv().is_err());
    }

    #[test]
    fn the_paths_above_end_at_the_root() {
        let all = |path| above(path).collect::<Vec<_>>();
        assert_eq!(all("/a/b/c"), ["/a/b", "/a", "/"]);
        assert_eq!(all("/a"), ["/"]);
        assert!(all("/").is_empty() && all("").is_empty());
    }
}
