//! [`WatchState`]: the state that the watches of one session share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use synod_core::store::{Query, Revision};

/// The state that the watches of one session share.
#[derive(Debug, Default)]
pub(super) struct WatchState {
    own: Mutex<BTreeSet<Revision>>,
    /// Flags for silent watches, by the subject of the watches.
    silent: Mutex<BTreeMap<String, Arc<AtomicBool>>>,
    /// `true` if the store was dropped.
    pub(super) dropped: AtomicBool,
}

impl WatchState {
    /// Records a write of the session.
    pub(super) fn wrote(&self, revision: Revision) {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).insert(revision);
    }

    pub(super) fn is_own(&self, revision: Revision) -> bool {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).contains(&revision)
    }

    pub(super) fn silence(&self, query: &Query) -> Arc<AtomicBool> {
        let key = format!("{:?} {}", query.scope, query.path);
        self.silent.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone()
    }
}
