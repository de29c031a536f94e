//! [`Watches`]: the watches of a store, and the effects that each is notified of.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use synod_core::path::Path;
use synod_core::store::{Change, Feed, Query, Revision, Scope, SessionId};

use crate::apply::Effect;
use crate::event_queue::EventQueue;

/// Every watch of a store, by the path that it concerns.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    all: BTreeMap<WatchId, Watching>,
    // Looked up, never iterated: its order has no meaning.
    by_path: FxHashMap<Path, Vec<WatchId>>,
    next: u64,
    /// The number of watches of subtrees: without any, the ancestors up to the root need no lookup.
    subtrees: usize,
}

/// The id of a watch within its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchId(u64);

#[derive(Debug)]
struct Watching {
    session: SessionId,
    query: Query,
    feed: Feed,
    queue: Arc<EventQueue>,
}

impl Watches {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn add(
        &mut self,
        session: SessionId,
        query: Query,
        feed: Feed,
        queue: Arc<EventQueue>,
    ) -> WatchId {
        let id = WatchId(self.next);
        self.next += 1;
        self.subtrees += usize::from(query.scope == Scope::Subtree);
        self.by_path.entry(query.path.clone()).or_default().push(id);
        self.all.insert(id, Watching { session, query, feed, queue });
        id
    }

    pub(crate) fn remove(&mut self, id: WatchId) {
        let Some(watching) = self.all.remove(&id) else { return };
        self.subtrees -= usize::from(watching.query.scope == Scope::Subtree);
        if let Some(ids) = self.by_path.get_mut(&watching.query.path) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_path.remove(&watching.query.path);
            }
        }
    }

    /// Removes all watches of a session, which ends them itself.
    pub(crate) fn remove_session(&mut self, session: SessionId) {
        let mine =
            |(id, watching): (&WatchId, &Watching)| (watching.session == session).then_some(*id);
        let ids: Vec<WatchId> = self.all.iter().filter_map(mine).collect();
        for id in ids {
            self.remove(id);
        }
    }

    /// Notifies every watch that one commit concerns, each one once. Returns the sessions that were
    /// notified.
    pub(crate) fn notify(&self, effects: &[Effect], at: Revision) -> Vec<SessionId> {
        if self.all.is_empty() {
            return Vec::new();
        }
        if let [effect] = effects {
            return self.tell_one(effect, at);
        }
        let mut news: BTreeMap<WatchId, Vec<Change>> = BTreeMap::new();
        for effect in effects {
            for id in self.concerned(effect) {
                news.entry(id).or_default().push(effect.to_change(at));
            }
        }
        news.into_iter().map(|(id, changes)| self.send(id, changes)).collect()
    }

    fn tell_one(&self, effect: &Effect, at: Revision) -> Vec<SessionId> {
        let concerned = self.concerned(effect);
        if concerned.is_empty() {
            return Vec::new();
        }
        let change = effect.to_change(at);
        concerned.into_iter().map(|id| self.send(id, vec![change.clone()])).collect()
    }

    /// Notifies one watch of earlier effects that it missed. Returns `true` if there are any.
    pub(crate) fn tell_late(&self, id: WatchId, effects: &[Effect], at: Revision) -> bool {
        let Some(watching) = self.all.get(&id) else { return false };
        let mine = effects.iter().filter(|effect| effect.concerns(&watching.query));
        let changes: Vec<Change> = mine.map(|effect| effect.to_change(at)).collect();
        let missed = !changes.is_empty();
        if missed {
            watching.queue.send(&watching.feed, changes);
        }
        missed
    }

    fn send(&self, id: WatchId, changes: Vec<Change>) -> SessionId {
        let watching = &self.all[&id];
        watching.queue.send(&watching.feed, changes);
        watching.session
    }

    fn concerned(&self, effect: &Effect) -> Vec<WatchId> {
        let mut found = Vec::new();
        let mut look = |path: &str| {
            let ids = self.by_path.get(path).into_iter().flatten();
            found.extend(ids.filter(|id| effect.concerns(&self.all[id].query)));
        };
        look(effect.path.as_str());
        // Above the parent, only a watch of a subtree can be concerned.
        let far = if self.subtrees == 0 { 1 } else { usize::MAX };
        effect.path.above().take(far).for_each(look);
        found
    }
}
