//! [`Observations`]: the answers and events that processes receive from the store, whatever they do
//! with them. Checked in every history.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cluster::Entry;
use synod_core::path::Path;
use synod_core::store::{Detail, Freshness, Node, Query, Revision, Scope, View};

/// The answers and events that all processes received. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observations(Arc<Mutex<All>>);

#[derive(Debug, Default)]
struct All {
    /// The newest revision in any answer so far.
    newest: Revision,
    shown: Vec<Shown>,
}

/// The revisions that one session has observed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// The newest revision in its reads and its events.
    pub(crate) seen: Revision,
    /// The newest revision of its own writes.
    pub(crate) wrote: Revision,
}

/// The answer to one query.
#[derive(Debug)]
struct Shown {
    query: Query,
    view: View,
    /// The number of commits when it arrived.
    commits: usize,
}

/// The revisions that an answer must not be older than.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floor {
    known: Known,
    /// The newest revision in any answer, for a latest read.
    newest: Option<Revision>,
}

/// A broken law, and a description.
pub(crate) type Broken = (&'static str, String);

impl Observations {
    /// The revisions that the answer to a query which is called now must not be older than.
    pub(crate) fn floor(&self, query: &Query, known: Known) -> Floor {
        let newest = (query.freshness == Freshness::Latest).then(|| self.lock().newest);
        Floor { known, newest }
    }

    /// Records an answer, which arrived after this many commits.
    pub(crate) fn show(&self, query: Query, view: &View, commits: usize) {
        let mut all = self.lock();
        all.newest = all.newest.max(view.revision);
        all.shown.push(Shown { query, view: view.clone(), commits });
    }

    /// Records that a write was answered.
    pub(crate) fn wrote(&self, at: Revision) {
        let mut all = self.lock();
        all.newest = all.newest.max(at);
    }

    /// L-KV-12: each answer is a consistent snapshot.
    ///
    /// # Errors
    ///
    /// The first answer that no state explains.
    pub(crate) fn check(&self, log: &[Entry]) -> Result<(), Broken> {
        let mut all = self.lock();
        let mut shown = std::mem::take(&mut all.shown);
        shown.sort_by_key(|shown| shown.view.revision);
        let mut state = State::default();
        for shown in &shown {
            let behind = state.follow(log, shown.view.revision);
            // The answer may reflect a later revision than its own, up to the time of its arrival.
            let mut later = None;
            let was = shown.is_of(&state)
                || (behind..shown.commits.min(log.len())).any(|index| {
                    let later = later.get_or_insert_with(|| state.clone());
                    later.apply(&log[index]);
                    shown.is_of(later)
                });
            if !was {
                return Err(("L-KV-12", format!("it was never so that {shown}")));
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Floor {
    /// L-KV-2, L-KV-3, L-KV-4: checks that an answer is not older than it may be.
    pub(crate) fn check(&self, shown: Revision) -> Result<(), Broken> {
        let Known { seen, wrote } = self.known;
        let than = |at: Revision, whose: &str| format!("#{shown} is shown, after {whose} #{at}");
        if self.newest.is_some_and(|newest| shown < newest) {
            let newest = self.newest.unwrap_or_default();
            return Err(("L-KV-2", than(newest, "an answer had")));
        }
        if shown < wrote {
            return Err(("L-KV-4", than(wrote, "the session's own write")));
        }
        if shown < seen {
            return Err(("L-KV-3", than(seen, "the session knew of")));
        }
        Ok(())
    }
}

/// The nodes after a prefix of the log.
#[derive(Clone, Debug, Default)]
struct State {
    nodes: BTreeMap<Path, Node>,
    applied: usize,
}

impl State {
    /// Applies the commits up to `at`. Returns the length of that prefix.
    fn follow(&mut self, log: &[Entry], at: Revision) -> usize {
        while let Some(entry) = log.get(self.applied)
            && entry.changes.iter().all(|change| change.revision.is_none_or(|then| then <= at))
        {
            self.apply(entry);
            self.applied += 1;
        }
        self.applied
    }

    fn apply(&mut self, entry: &Entry) {
        for change in &entry.changes {
            match &change.node {
                Some(node) => drop(self.nodes.insert(change.path.clone(), node.clone())),
                None => drop(self.nodes.remove(&change.path)),
            }
        }
    }
}

impl Shown {
    /// Returns `true` if this is the answer in that state. The answer may contain containers, which
    /// the state does not have.
    fn is_of(&self, state: &State) -> bool {
        let told = self.view.nodes.iter().filter(|node| node.stat.is_some());
        let fits = |node: &Node| {
            state.nodes.get(&node.path).is_some_and(|real| {
                let data = self.query.detail == Detail::Names || real.data == node.data;
                data && real.stat == node.stat
            })
        };
        let mut covered = state.nodes.keys().filter(|path| self.covers(path));
        let is_told = |path: &Path| self.view.nodes.iter().any(|node| node.path == *path);
        told.clone().all(|node| self.covers(&node.path) && fits(node))
            && (self.query.window.is_some() || covered.all(is_told))
    }

    fn covers(&self, path: &Path) -> bool {
        let query = &self.query;
        match query.scope {
            Scope::Node => query.nodes_asked().any(|asked| asked == path),
            Scope::Children => {
                path.parent_str() == Some(query.path.as_str())
                    && path.name().starts_with(&query.prefix)
            }
            Scope::Subtree => *path == query.path || path.is_below(&query.path),
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.query.scope {
            Scope::Node => "",
            Scope::Children => "the children of ",
            Scope::Subtree => "all below ",
        };
        let nodes = self.view.nodes.iter();
        let nodes: Vec<_> = nodes.map(|node| format!("{} {:?}", node.path, node.stat)).collect();
        write!(f, "{what}{} at #{} were {nodes:?}", self.query.path, self.view.revision)
    }
}
