//! [`Watches`]: the watches of all sessions of this handle.
//!
//! The observer reads the changes of all processes by revision, and gives each watch those that it
//! covers. A watch is added before its view is read, and keeps the changes until the revision of
//! the view is known: so none is missed between the two, and none is reported that the view has.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use synod_core::store::{Change, Detail, Feed, Kind, Node, Query, Revision};

use crate::changes::{Entry, News};
use crate::filter::{Filter, FilterBits, Probes};

/// The number of changes that a watch keeps while its view is read.
const HELD: usize = 4_096;

/// The watches of all sessions of this handle.
#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    last: u64,
    filter: Filter,
    /// The number of changes of the filter.
    filter_changes: u64,
    watches: BTreeMap<u64, Observed>,
}

#[derive(Debug)]
struct Observed {
    query: Query,
    feed: Feed,
    /// The revision of its view, once that is read.
    view: Option<Revision>,
    held: Vec<Change>,
    /// Changes were forgotten.
    resync: bool,
}

/// The events for one watch.
#[derive(Debug)]
pub(crate) struct Delivery {
    feed: Feed,
    resync: bool,
    changes: Vec<Change>,
}

impl Watches {
    /// Adds a watch whose view is not read yet.
    pub(crate) fn add(&self, query: Query, feed: Feed) -> u64 {
        let mut registry = self.lock();
        registry.last += 1;
        let (id, view) = (registry.last, None);
        registry.filter.add(&query);
        registry.filter_changes += 1;
        registry
            .watches
            .insert(id, Observed { query, feed, view, held: Vec::new(), resync: false });
        id
    }

    /// Sets the revision of the view of a watch. Returns `true` if the observer must deliver
    /// changes that were kept.
    pub(crate) fn set_view(&self, id: u64, revision: Revision) -> bool {
        let mut registry = self.lock();
        let Some(watch) = registry.watches.get_mut(&id) else { return false };
        watch.view = Some(revision);
        watch.resync || !watch.held.is_empty()
    }

    pub(crate) fn remove(&self, id: u64) {
        // Dropped without the lock.
        let removed = self.lock().remove(id);
        drop(removed);
    }

    /// Returns the filter of the watches, and the number of its changes so far.
    pub(crate) fn filter(&self) -> (u64, FilterBits) {
        let registry = self.lock();
        (registry.filter_changes, registry.filter.bits())
    }

    /// Returns the number of changes of the filter so far.
    pub(crate) fn filter_changes(&self) -> u64 {
        self.lock().filter_changes
    }

    /// Returns `true` if a watch may cover one of the changes.
    pub(crate) fn may_be_concerned(&self, probes: &Probes) -> bool {
        self.lock().filter.may_be_concerned(probes)
    }

    /// Returns the number of watches that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.lock().watches.values().filter(|watch| !watch.feed.is_over()).count()
    }

    /// Returns which of the changes are observed with their data.
    pub(crate) fn wanted(&self, entries: &[Entry]) -> Vec<bool> {
        let registry = self.lock();
        let is_wanted = |entry: &Entry| match &entry.news {
            News::Ended(_) | News::Changed { kind: Kind::Deleted, .. } => false,
            News::Changed { path, kind } => registry
                .watches
                .values()
                .any(|watch| watch.query.detail == Detail::Data && watch.query.covers(path, *kind)),
        };
        entries.iter().map(is_wanted).collect()
    }

    /// Returns the events for each watch: the given changes, each with its node if that was read,
    /// and those that were kept. `lost` if there were changes before them that nobody has any more.
    pub(crate) fn deliveries(
        &self,
        entries: &[(Entry, Option<Node>)],
        lost: bool,
    ) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        let mut registry = self.lock();
        let ended: Vec<u64> = registry.ended().collect();
        let over: Vec<_> = ended.iter().map(|id| registry.remove(*id)).collect();
        for watch in registry.watches.values_mut() {
            watch.keep(entries, lost);
            deliveries.extend(watch.deliver());
        }
        // Dropped without the lock.
        drop(registry);
        drop(over);
        deliveries
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    fn remove(&mut self, id: u64) -> Option<Observed> {
        let removed = self.watches.remove(&id)?;
        self.filter.remove(&removed.query);
        self.filter_changes += 1;
        Some(removed)
    }

    /// The watches that have ended, with their session or by themselves.
    fn ended(&self) -> impl Iterator<Item = u64> {
        let ended = self.watches.iter().filter(|(_, watch)| watch.feed.is_over());
        ended.map(|(id, _)| *id)
    }
}

impl Observed {
    fn keep(&mut self, entries: &[(Entry, Option<Node>)], lost: bool) {
        if lost {
            self.held.clear();
            self.resync = true;
        }
        for (entry, node) in entries {
            let News::Changed { path, kind } = &entry.news else { continue };
            if !self.query.covers(path, *kind) {
                continue;
            }
            if self.view.is_none() && self.held.len() >= HELD {
                self.held.clear();
                self.resync = true;
            }
            let mut change = Change::new(path.clone(), *kind).at(entry.revision);
            change.node.clone_from(node);
            self.held.push(change);
        }
    }

    fn deliver(&mut self) -> Option<Delivery> {
        let view = self.view?;
        let resync = std::mem::take(&mut self.resync);
        let mut changes = std::mem::take(&mut self.held);
        changes.retain(|change| change.revision.is_some_and(|at| at > view));
        let is_empty = !resync && changes.is_empty();
        (!is_empty).then(|| Delivery { feed: self.feed.clone(), resync, changes })
    }
}

impl Delivery {
    /// Passes the events to the reader of the watch, which may wake it.
    pub(crate) fn send(self) {
        if self.resync {
            let _open = self.feed.resync();
        }
        let _open = self.feed.send_all(self.changes);
    }
}
