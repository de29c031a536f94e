//! [`World`]: the server. A tree, its sessions and its watches, advanced by calls that pass the
//! time as an argument. It starts no task and waits for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::path::Path;
use synod_core::random::mix;
use synod_core::store::{
    Change, Commit, Feed, Freshness, Op, Outcome, Query, Rejected, Revision, Sequence, SessionId,
    Txn, View, judge,
};

use crate::apply::{self, Applied, Effect, Naming};
use crate::event_queue::EventQueue;
use crate::query::answer;
use crate::replica::Replica;
use crate::tree::Tree;
use crate::watches::{WatchId, Watches};

/// The whole state of one store.
#[derive(Debug)]
pub struct World {
    tree: Tree,
    revision: Revision,
    sessions: BTreeMap<SessionId, Session>,
    last_session: u64,
    watches: Watches,
    /// Created by the first read that may lag.
    replica: Option<Replica>,
    /// The time at which each session expires, unless it is renewed before.
    session_ends: BTreeSet<(Instant, SessionId)>,
    /// The time at which each node with a TTL expires, unless it is written before.
    node_ends: BTreeSet<(Instant, Path)>,
    node_end_of: BTreeMap<Path, Instant>,
    /// Every change since [`Self::keep_log`], if it was called.
    log: Option<Vec<Change>>,
    habits: Habits,
    /// The effects since the journal was last taken, if it is kept.
    journal: Option<Vec<(Revision, Vec<Effect>)>>,
}

/// Differences between stores within the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// The names of sequential nodes.
    pub naming: Naming,
    /// An empty container may stay for a while.
    pub linger: bool,
    /// Sessions expire at a multiple of this.
    pub tick: Duration,
}

impl Habits {
    const WEAK: Self = Self { naming: Naming::Gaps, linger: true, tick: Duration::ZERO };
}

/// The counts of the objects in a store: each returns to zero when the users are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// Nodes, containers not counted.
    pub nodes: usize,
    /// Sessions that the store has not ended.
    pub sessions: usize,
    /// Watches of all sessions.
    pub watches: usize,
}

#[derive(Debug)]
struct Session {
    ttl: Duration,
    ends: Instant,
    ephemerals: BTreeSet<Path>,
    /// The newest revision that the session was shown, in a view, an outcome or an event.
    seen: Revision,
    /// Its event queue; `None` if the caller delivers the events.
    queue: Option<Arc<EventQueue>>,
}

/// The answer to a request of a session that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOver;

impl World {
    pub(crate) fn new() -> Self {
        Self {
            tree: Tree::new(),
            revision: Revision::ZERO,
            sessions: BTreeMap::new(),
            last_session: 0,
            watches: Watches::default(),
            replica: None,
            session_ends: BTreeSet::new(),
            node_ends: BTreeSet::new(),
            node_end_of: BTreeMap::new(),
            log: None,
            habits: Habits::WEAK,
            journal: None,
        }
    }

    /// A store with these properties, whose effects are collected in a journal.
    pub fn with_journal(habits: Habits) -> Self {
        Self { habits, journal: Some(Vec::new()), ..Self::new() }
    }

    /// Opens a session whose events the caller delivers.
    pub fn open(&mut self, ttl: Duration, now: Instant) -> SessionId {
        self.open_with(ttl, None, now)
    }

    /// Opens a session whose events go to this queue.
    pub(crate) fn open_with(
        &mut self,
        ttl: Duration,
        queue: Option<Arc<EventQueue>>,
        now: Instant,
    ) -> SessionId {
        self.tick(now);
        self.last_session += 1;
        let id = SessionId::new(mix(self.last_session) >> 1);
        let (ends, ephemerals) = (self.end_of(now, ttl), BTreeSet::new());
        let seen = Revision::ZERO;
        self.sessions.insert(id, Session { ttl, ends, ephemerals, seen, queue });
        self.session_ends.insert((ends, id));
        id
    }

    /// Continues a session on another connection: its time to live starts again. Returns its event
    /// queue and its time to live.
    pub(crate) fn resume(
        &mut self,
        id: SessionId,
        now: Instant,
    ) -> Result<(Arc<EventQueue>, Duration), SessionOver> {
        self.touch(id, now)?;
        let session = self.sessions.get(&id).ok_or(SessionOver)?;
        Ok((session.queue.clone().ok_or(SessionOver)?, session.ttl))
    }

    /// Renews a session: its time to live starts again.
    ///
    /// # Errors
    ///
    /// [`SessionOver`] if the session has ended.
    pub fn touch(&mut self, id: SessionId, now: Instant) -> Result<(), SessionOver> {
        self.tick(now);
        let ttl = self.sessions.get(&id).ok_or(SessionOver)?.ttl;
        let ends = self.end_of(now, ttl);
        let session = self.sessions.get_mut(&id).ok_or(SessionOver)?;
        self.session_ends.remove(&(session.ends, id));
        session.ends = ends;
        self.session_ends.insert((ends, id));
        Ok(())
    }

    /// The time to live of a session.
    pub fn ttl(&self, id: SessionId) -> Option<Duration> {
        self.sessions.get(&id).map(|session| session.ttl)
    }

    /// Sets a new time to live for a session, whose last heartbeat was at `since`.
    pub fn renegotiate(&mut self, id: SessionId, ttl: Duration, since: Instant, now: Instant) {
        let ends = self.end_of(since, ttl);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.ttl = ttl;
            self.session_ends.remove(&(session.ends, id));
            session.ends = ends;
            self.session_ends.insert((ends, id));
        }
        self.tick(now);
    }

    /// Restarts the time of every session, as a new leader does.
    pub fn touch_all(&mut self, now: Instant) {
        self.session_ends.clear();
        let ids: Vec<(SessionId, Duration)> =
            self.sessions.iter().map(|(id, session)| (*id, session.ttl)).collect();
        for (id, ttl) in ids {
            let ends = self.end_of(now, ttl);
            self.session_ends.insert((ends, id));
            if let Some(session) = self.sessions.get_mut(&id) {
                session.ends = ends;
            }
        }
    }

    fn end_of(&self, now: Instant, ttl: Duration) -> Instant {
        let (ends, tick) = (later(now, ttl), self.habits.tick);
        if tick.is_zero() {
            return ends;
        }
        // The ticks are counted from the first expiry.
        later(ends, tick)
    }

    /// Returns `true` if a session has not ended.
    pub fn lives(&self, id: SessionId) -> bool {
        self.sessions.contains_key(&id)
    }

    /// All nodes.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The revision of the last commit.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Collects the empty containers. Returns `true` if there were any.
    pub fn collect_all(&mut self) -> bool {
        self.tree.collect_all()
    }

    /// The effects since the last call.
    pub fn take_journal(&mut self) -> Vec<(Revision, Vec<Effect>)> {
        self.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Ends a session: removes its watches, and its ephemeral nodes at one revision. Ending it
    /// twice is not an error.
    pub fn end(&mut self, id: SessionId, now: Instant) {
        self.tick(now);
        self.end_now(id);
    }

    fn end_now(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.session_ends.remove(&(session.ends, id));
        self.watches.remove_session(id);
        self.remove_all(session.ephemerals);
    }

    /// Removes nodes without a request, at one revision.
    fn remove_all(&mut self, paths: impl IntoIterator<Item = Path>) {
        let at = Revision::new(self.revision.get() + 1);
        let removed = paths.into_iter().filter_map(|path| Effect::remove(&mut self.tree, path));
        let effects: Vec<Effect> = removed.collect();
        if !effects.is_empty() {
            self.record(at, &effects);
        }
    }

    pub(crate) fn read(
        &mut self,
        id: SessionId,
        query: &Query,
        now: Instant,
    ) -> Result<View, SessionOver> {
        self.tick(now);
        let session = self.sessions.get_mut(&id).ok_or(SessionOver)?;
        let view = match query.freshness {
            Freshness::Latest => answer(&self.tree, query, self.revision, None),
            Freshness::Local => {
                let replica =
                    self.replica.get_or_insert_with(|| Replica::new(&self.tree, self.revision));
                replica.advance_to(session.seen);
                answer(replica.tree(), query, replica.at(), None)
            }
        };
        session.seen = session.seen.max(view.revision);
        Ok(view)
    }

    /// Reads and watches as one step. Changes that a lagging view does not include yet are reported
    /// immediately.
    pub(crate) fn watch(
        &mut self,
        id: SessionId,
        query: &Query,
        feed: Feed,
        now: Instant,
    ) -> Result<(View, WatchId), SessionOver> {
        let view = self.read(id, query, now)?;
        let queue = self.sessions.get(&id).and_then(|session| session.queue.clone());
        let queue = queue.ok_or(SessionOver)?;
        let watch = self.watches.add(id, query.clone(), feed, queue);
        if query.freshness == Freshness::Local
            && let Some(replica) = &self.replica
        {
            let missed =
                replica.ahead().filter(|(at, effects)| self.watches.tell_late(watch, effects, *at));
            // A read after these events must not be older than they are.
            if let (Some((at, _)), Some(session)) = (missed.last(), self.sessions.get_mut(&id)) {
                session.seen = session.seen.max(at);
            }
        }
        Ok((view, watch))
    }

    pub(crate) fn unwatch(&mut self, watch: WatchId) {
        self.watches.remove(watch);
    }

    /// Applies a transaction that was validated.
    ///
    /// # Errors
    ///
    /// [`SessionOver`] if the session has ended.
    pub fn commit(
        &mut self,
        id: SessionId,
        txn: Txn,
        now: Instant,
    ) -> Result<Outcome, SessionOver> {
        self.tick(now);
        if !self.sessions.contains_key(&id) {
            return Err(SessionOver);
        }
        let at = Revision::new(self.revision.get() + 1);
        let follow_up = txn.look_of_commit().cloned();
        Ok(match self.judged(txn.ops, at) {
            Err(rejected) => {
                let view = self.view_for(id, txn.look.as_ref(), None);
                Outcome::Rejected(rejected.with_look(view))
            }
            Ok(ops) => {
                let applied = apply::apply(&mut self.tree, ops, at, id, self.habits.naming);
                self.settle(&applied.effects, now);
                self.record(at, &applied.effects);
                Outcome::Committed(self.commit_of(id, follow_up.as_ref(), applied))
            }
        })
    }

    fn judged(&self, ops: Vec<Op>, at: Revision) -> Result<Vec<apply::Named>, Rejected> {
        judge(&ops, &self.tree)?;
        apply::name(&self.tree, ops, at, self.habits.naming)
    }

    fn commit_of(&mut self, id: SessionId, query: Option<&Query>, applied: Applied) -> Commit {
        let own = applied.own.as_ref().map(|(path, sequence)| (path, *sequence));
        let view = self.view_for(id, query, own);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.seen = session.seen.max(self.revision);
        }
        Commit::new(Some(self.revision), applied.done, view)
    }

    /// The view of the follow-up read of a transaction. `own` is the sequential node that the
    /// transaction created.
    fn view_for(
        &mut self,
        id: SessionId,
        query: Option<&Query>,
        own: Option<(&Path, Sequence)>,
    ) -> Option<View> {
        let view = answer(&self.tree, query?, self.revision, own);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.seen = session.seen.max(view.revision);
        }
        Some(view)
    }

    /// Updates the owners of nodes and the times of expiry.
    fn settle(&mut self, effects: &[Effect], now: Instant) {
        for effect in effects {
            if let Some(owner) = effect.owner
                && let Some(session) = self.sessions.get_mut(&owner)
            {
                match &effect.body {
                    Some(_) => session.ephemerals.insert(effect.path.clone()),
                    None => session.ephemerals.remove(&effect.path),
                };
            }
            self.forget_end(&effect.path);
            if let Some(ttl) = effect.body.as_ref().and_then(|body| body.ttl) {
                let ends = later(now, ttl);
                self.node_ends.insert((ends, effect.path.clone()));
                self.node_end_of.insert(effect.path.clone(), ends);
            }
        }
    }

    fn forget_end(&mut self, path: &Path) {
        if let Some(ends) = self.node_end_of.remove(path) {
            self.node_ends.remove(&(ends, path.clone()));
        }
    }

    /// Publishes effects: to the revision, the watches and the lagging copy.
    fn record(&mut self, at: Revision, effects: &[Effect]) {
        if effects.is_empty() {
            return;
        }
        self.revision = at;
        if let Some(log) = &mut self.log {
            log.extend(effects.iter().map(|effect| effect.to_change(at)));
        }
        if self.habits.linger {
            self.tree.collect(at.get());
        } else {
            let _any = self.tree.collect_all();
        }
        if let Some(journal) = &mut self.journal {
            journal.push((at, effects.to_vec()));
        }
        if let Some(replica) = &mut self.replica {
            replica.learn(at, effects);
        }
        for id in self.watches.notify(effects, at) {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.seen = session.seen.max(at);
            }
        }
    }

    /// Processes expirations. Every other call begins with this.
    pub fn tick(&mut self, now: Instant) {
        while let Some((ends, id)) = self.session_ends.first().copied()
            && ends <= now
        {
            self.end_now(id);
        }
        while let Some((ends, path)) = self.node_ends.pop_first() {
            if ends > now {
                self.node_ends.insert((ends, path));
                break;
            }
            self.node_end_of.remove(&path);
            self.remove_all([path]);
        }
    }

    /// The time at which the next session or node expires.
    pub fn next_end(&self) -> Option<Instant> {
        let session = self.session_ends.first().map(|(ends, _)| *ends);
        let node = self.node_ends.first().map(|(ends, _)| *ends);
        session.into_iter().chain(node).min()
    }

    /// Sets the next sequence of an existing directory.
    pub fn skip_sequences(&mut self, dir: &Path, next: u64) {
        self.tree.skip_sequences(dir, next);
    }

    /// Keeps every change from now on.
    pub fn keep_log(&mut self) {
        self.log.get_or_insert_default();
    }

    /// Every change since [`Self::keep_log`].
    pub fn log(&self) -> &[Change] {
        self.log.as_deref().unwrap_or_default()
    }

    /// Counts the contents.
    pub fn census(&self) -> Census {
        let (nodes, sessions) = (self.tree.len(), self.sessions.len());
        Census { nodes, sessions, watches: self.watches.len() }
    }
}

fn later(now: Instant, by: Duration) -> Instant {
    now.checked_add(by).unwrap_or(now)
}
