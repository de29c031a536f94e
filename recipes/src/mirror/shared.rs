//! [`MirrorShared`]: the state of a mirror. One task writes it, and every caller reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::mem::take;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::select;
use synod_core::clock::{self, Instant};
use synod_core::error::{Error, ErrorKind};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Change, Loaded, Node, Progress, Query, Revision, View};
use tokio::sync::{Notify, watch};

use crate::mirror::content::{Content, Unread};
use crate::mirror::event::{CacheEvent, CacheState};
use crate::mirror::event_log::{EventLog, Missed};
use crate::mirror::extent::Extent;
use crate::mirror::snapshot::{NodesByPath, Snapshot};
use crate::mutant::mistake;

/// The limit of deletions that are applied under the lock in one step.
const MAX_DELETIONS: usize = 1_000;

/// The content of a mirror, its state, and its last events. No code of the application runs under
/// its lock.
#[derive(Debug)]
pub(super) struct MirrorShared {
    extent: Extent,
    /// The progress of the read of the whole extent.
    progress: Progress,
    /// The nodes whose reads a recipe requested, because it knows only their names.
    wanted: Mutex<BTreeSet<Path>>,
    /// Notified when there are wanted nodes.
    want: Notify,
    state: Mutex<MirrorState>,
    /// Notified of every event, of every change of the state, and of the end.
    changed: Notify,
}

#[derive(Debug)]
struct MirrorState {
    content: Content,
    standing: Standing,
    log: EventLog,
    /// The session in which the content follows the store.
    session: Option<Session>,
    /// The time since which that session is not certain, if that was noticed.
    uncertain: Option<Instant>,
    /// True if the content will not change again.
    over: bool,
}

/// The state of the content compared with the store, according to the last event.
#[derive(Clone, Debug)]
enum Standing {
    Syncing,
    Live,
    Stale(Instant),
    Refused(Arc<Error>),
}

impl MirrorShared {
    pub(super) fn new(extent: Extent) -> Self {
        let (content, log) = (Content::default(), EventLog::default());
        let (standing, session, uncertain) = (Standing::Syncing, None, None);
        let state = MirrorState { content, standing, log, session, uncertain, over: false };
        Self {
            extent,
            progress: Progress::default(),
            wanted: Mutex::default(),
            want: Notify::new(),
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    pub(super) fn extent(&self) -> &Extent {
        &self.extent
    }

    /// The query that covers the extent.
    pub(super) fn query(&self) -> Query {
        self.extent.query().progress(&self.progress)
    }

    pub(super) fn progress(&self) -> watch::Receiver<Loaded> {
        self.progress.watch()
    }

    /// Requests reads of these nodes.
    pub(super) fn want(&self, paths: impl IntoIterator<Item = Path>) {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).extend(paths);
        // Only one task reads.
        self.want.notify_one();
    }

    /// Waits for requested reads.
    pub(super) async fn wanted(&self) -> BTreeSet<Path> {
        loop {
            let wanted = take(&mut *self.wanted.lock().unwrap_or_else(PoisonError::into_inner));
            if !wanted.is_empty() {
                return wanted;
            }
            self.want.notified().await;
        }
    }

    /// Records the session in which the content follows the store from now on. Returns `true` if it
    /// is a new session.
    pub(super) fn begin(&self, session: Session) -> bool {
        let id = session.info().id;
        let last = self.lock().session.replace(session);
        last.is_none_or(|last| last.info().id != id)
    }

    /// Applies changes that the store reported. Returns the nodes that must be read.
    pub(super) fn apply(&self, changes: impl IntoIterator<Item = Change>) -> Vec<Path> {
        let mut unread = Vec::new();
        self.change(|content, events| {
            for change in changes {
                let path = change.path.clone();
                match content.apply(&self.extent, change) {
                    Ok(event) => events.extend(event),
                    Err(Unread) => unread.push(path),
                }
            }
        });
        unread
    }

    /// Applies the result of a read of these nodes. Nodes that are gone are added to `gone`, with
    /// the revision of the read: they are all deleted after the last read, children before their
    /// parents.
    pub(super) fn apply_read(
        &self,
        paths: &[Path],
        view: View,
        gone: &mut BTreeMap<Path, Revision>,
        is_last: bool,
    ) {
        let mut nodes: NodesByPath = view.nodes.into_iter().collect();
        let mut existing = Vec::new();
        for path in paths {
            match nodes.take(path.as_str()).and_then(|node| self.extent.narrowed(node)) {
                Some(node) => existing.push(node),
                None => drop(gone.insert(path.clone(), view.revision)),
            }
        }
        while is_last && !gone.is_empty() {
            self.change(|content, events| {
                let some = std::iter::from_fn(|| gone.pop_last()).take(MAX_DELETIONS);
                events.extend(some.filter_map(|(path, at)| content.apply_read(&path, None, at)));
            });
        }
        self.change(|content, events| {
            let written = existing.into_iter().filter_map(|node| {
                let path = node.path.clone();
                content.apply_read(&path, Some(node), view.revision)
            });
            events.extend(written);
        });
    }

    /// Applies a view of the whole extent: the first in another session, or a later one in the same
    /// session.
    pub(super) fn replace(&self, view: View, is_other_session: bool) {
        let old = self.lock().content.nodes.clone();
        // Only the task that calls this changes the content.
        let difference = Content::difference(&old, &self.extent, view, is_other_session);
        drop(old);
        let last = {
            let mut state = self.lock();
            let (last, events) = state.content.replace(difference);
            match events {
                Some(events) => events.into_iter().for_each(|event| state.log.push(event)),
                None => state.log.miss(),
            }
            last
        };
        // The previous content may be large: it is dropped outside the lock.
        drop(last);
        self.changed.notify_waiters();
    }

    fn change(&self, change: impl FnOnce(&mut Content, &mut Vec<CacheEvent>)) {
        let mut events = Vec::new();
        let has_changed = {
            let mut state = self.lock();
            change(&mut state.content, &mut events);
            let has_changed = !events.is_empty();
            for event in events {
                state.log.push(event);
            }
            has_changed
        };
        if has_changed {
            self.changed.notify_waiters();
        }
    }

    /// Records that the content is complete.
    pub(super) fn set_complete(&self) {
        self.turn(|state| match state.standing {
            Standing::Live => None,
            _ => Some((Standing::Live, Some(CacheEvent::Complete(state.content.newest)))),
        });
    }

    /// Records that changes may be missed from now on.
    pub(super) fn set_stale(&self) {
        mistake!(CopyIsNeverStale: return);
        self.turn(|state| match state.standing {
            Standing::Live => {
                let since = state.uncertain.unwrap_or_else(clock::now);
                Some((Standing::Stale(since), Some(CacheEvent::Stale)))
            }
            Standing::Refused(_) => Some((Standing::Stale(clock::now()), None)),
            Standing::Syncing | Standing::Stale(_) => None,
        });
    }

    /// Records that the store rejects reads.
    pub(super) fn set_refused(&self, why: &Error) {
        self.turn(|state| {
            let event = matches!(state.standing, Standing::Live).then_some(CacheEvent::Stale);
            Some((Standing::Refused(Arc::new(why.clone())), event))
        });
    }

    /// Records that nothing will change again. Releases the session.
    pub(super) fn end(&self) {
        self.set_stale();
        self.stop();
    }

    /// Records that nothing will change again, because code of the application panicked.
    pub(super) fn fail(&self) {
        let why = Error::new(ErrorKind::Invalid, "following a local copy").at(self.extent.path());
        self.set_refused(&why.because("the filter panicked"));
        self.stop();
    }

    fn stop(&self) {
        let session = {
            let mut state = self.lock();
            state.over = true;
            state.session.take()
        };
        drop(session);
        self.changed.notify_waiters();
    }

    fn turn(&self, turn: impl FnOnce(&MirrorState) -> Option<(Standing, Option<CacheEvent>)>) {
        let (standing, nodes) = {
            let mut state = self.lock();
            let Some((standing, event)) = turn(&state) else { return };
            state.standing = standing.clone();
            if let Some(event) = event {
                state.log.push(event);
            }
            (standing, state.content.nodes.len())
        };
        match standing {
            Standing::Refused(error) => tracing::warn!(%error, "the store rejects reads"),
            standing => tracing::debug!(?standing, nodes, "the state of the mirror changed"),
        }
        self.changed.notify_waiters();
    }

    /// The node at a path.
    pub(super) fn get(&self, path: &Path) -> Option<Node> {
        self.lock().content.nodes.get(path.as_str()).cloned()
    }

    /// The nodes as of now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let (nodes, state) = self.numbered(|state| state.content.nodes.clone());
        Snapshot::new(nodes, state)
    }

    /// The state of the content compared with the store.
    pub(super) fn state(&self) -> CacheState {
        self.numbered(|_| ()).1
    }

    fn numbered<T>(&self, read: impl FnOnce(&MirrorState) -> T) -> (T, CacheState) {
        let (read, standing, newest, session) = {
            let state = self.lock();
            let (standing, newest) = (state.standing.clone(), state.content.newest);
            (read(&state), standing, newest, state.session.clone())
        };
        // The session reports this immediately, before any task is notified.
        let certain = session.as_ref().is_some_and(Session::is_certain);
        mistake!(CopyIsNeverStale: let certain = true);
        let state = match standing {
            Standing::Live if certain => {
                self.lock().uncertain = None;
                CacheState::Live(newest)
            }
            Standing::Live => CacheState::Stale(self.uncertain(session.as_ref())),
            Standing::Syncing => CacheState::Syncing,
            Standing::Stale(since) => CacheState::Stale(since),
            Standing::Refused(why) => CacheState::Refused(why),
        };
        (read, state)
    }

    /// The time since which the session is not certain: the end of its certainty, or the time at
    /// which the loss of the session was noticed.
    fn uncertain(&self, session: Option<&Session>) -> Instant {
        let until = session.and_then(|session| session.status().borrow().until());
        *self.lock().uncertain.get_or_insert_with(|| until.unwrap_or_else(clock::now))
    }

    /// Waits until `holds` returns a value. `None` if it never will.
    pub(super) async fn until<T>(
        &self,
        mut holds: impl FnMut(CacheState) -> Option<T>,
    ) -> Option<T> {
        loop {
            // Listens before the check, so that a change between the check and the wait also wakes.
            let changed = self.changed.notified();
            let state = self.state();
            let is_live = state.is_live();
            if let Some(held) = holds(state) {
                return Some(held);
            }
            if self.lock().over {
                return None;
            }
            match self.doubted() {
                Some(session) if !is_live => certain_or(&session, changed).await,
                _ => changed.await,
            }
        }
    }

    /// The session, if the content is stale only because the session is not certain.
    fn doubted(&self) -> Option<Session> {
        let state = self.lock();
        state.session.clone().filter(|_| matches!(state.standing, Standing::Live))
    }

    /// Waits for the event with this number. `None` after the last event.
    pub(super) async fn event(&self, number: u64) -> Result<Option<CacheEvent>, Missed> {
        loop {
            let changed = self.changed.notified();
            let (event, over) = {
                let state = self.lock();
                (state.log.at(number)?, state.over)
            };
            if event.is_some() || over {
                return Ok(event);
            }
            changed.await;
        }
    }

    /// The nodes as of now, and the number of the next event. Events are logged until
    /// [`MirrorShared::leave`].
    pub(super) fn join(&self) -> (Snapshot, u64) {
        self.lock().log.join();
        self.now()
    }

    /// The nodes as of the last event, and the number of the next event.
    pub(super) fn now(&self) -> (Snapshot, u64) {
        let (nodes, next, state) = {
            let state = self.lock();
            let reached = match &state.standing {
                Standing::Live => CacheState::Live(state.content.newest),
                _ => CacheState::Syncing,
            };
            (state.content.nodes.clone(), state.log.next(), reached)
        };
        (Snapshot::new(nodes, state), next)
    }

    pub(super) fn leave(&self) {
        self.lock().log.leave();
    }

    fn lock(&self) -> MutexGuard<'_, MirrorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a change, or until a session is certain again: its certainty may end and return
/// without a lost connection.
async fn certain_or(session: &Session, changed: impl Future<Output = ()>) {
    let mut status = session.status();
    if session.is_certain() {
        return;
    }
    let renewed = async {
        if status.changed().await.is_err() {
            pending::<()>().await;
        }
    };
    let _first = select(pin!(changed), pin!(renewed)).await;
}

#[cfg(test)]
mod tests {
    use synod_core::path;
    use synod_core::store::{Stat, Version};

    use super::*;

    fn node(path: &Path, modified: u64) -> Node {
        let stat = Stat::new(Revision::new(2), Revision::new(modified), Version::new(0), None);
        Node::new(path.clone()).with_stat(stat)
    }

    #[tokio::test]
    async fn nodes_that_several_reads_do_not_find_are_deleted_from_the_leaves_to_the_root() {
        let shared = MirrorShared::new(Extent::subtree(path!("/a")));
        let paths = [path!("/a"), path!("/a/b"), path!("/a/b/c"), path!("/a/d")];
        let view = View::new(Revision::new(9), paths.iter().map(|path| node(path, 4)).collect());
        shared.replace(view, true);
        let (_, next) = shared.join();
        let mut gone = BTreeMap::new();
        shared.apply_read(&paths[..2], View::new(Revision::new(10), Vec::new()), &mut gone, false);
        let found = vec![node(&paths[3], 11)];
        shared.apply_read(&paths[2..], View::new(Revision::new(11), found), &mut gone, true);
        let mut shown = Vec::new();
        for number in next..next + 4 {
            shown.push(match shared.event(number).await {
                Ok(Some(CacheEvent::Deleted(node))) => format!("-{}", node.path),
                Ok(Some(CacheEvent::Updated { node, .. })) => format!("~{}", node.path),
                other => format!("{other:?}"),
            });
        }
        assert_eq!(shown, ["-/a/b/c", "-/a/b", "-/a", "~/a/d"]);
        assert!(gone.is_empty() && shared.snapshot().len() == 1);
    }
}
