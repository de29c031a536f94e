//! [`OwnNodes`]: which nodes of a session a recipe of it has, where another one may come late to the same path.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use synod_core::path::Path;
use synod_core::store::Revision;

/// The nodes that the recipes of one session have. Any other node of the session at their paths came late, by a request that was given up.
#[derive(Debug, Default)]
pub(crate) struct OwnNodes(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    /// The revisions at which they were created. No two have the same one.
    created: BTreeSet<Revision>,
    /// How many creates are on their way, by their paths.
    under_way: BTreeMap<Path, usize>,
}

/// A create that is on its way.
#[must_use = "it is over when this is dropped"]
pub(crate) struct Making<'a> {
    nodes: &'a OwnNodes,
    path: Path,
}

impl OwnNodes {
    /// Records that a create is on its way: whose its node is, is not known before this is dropped.
    pub(crate) fn making(&self, path: &Path) -> Making<'_> {
        *self.lock().under_way.entry(path.clone()).or_default() += 1;
        Making { nodes: self, path: path.clone() }
    }

    /// Records that a recipe has the node. False if another one has.
    pub(crate) fn add(&self, created: Revision) -> bool {
        self.lock().created.insert(created)
    }

    /// Whether a recipe has the node.
    pub(crate) fn has(&self, created: Revision) -> bool {
        self.lock().created.contains(&created)
    }

    /// Whether a recipe has the node at this path; `None` while a create is on its way that may have made it.
    pub(crate) fn knows(&self, path: &Path, created: Revision) -> Option<bool> {
        let known = self.lock();
        let has = known.created.contains(&created);
        (has || !known.under_way.contains_key(path)).then_some(has)
    }

    /// Records that the node is gone, or is to be removed.
    pub(crate) fn give_up(&self, created: Revision) {
        self.lock().created.remove(&created);
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut known = self.nodes.lock();
        let left = known.under_way.remove(&self.path).and_then(|count| count.checked_sub(1));
        if let Some(left) = left.filter(|left| *left > 0) {
            known.under_way.insert(self.path.clone(), left);
        }
    }
}
