//! [`OwnNodes`]: which nodes of a session a recipe of it has, where another one may come late to the same path.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use synod_core::path::Path;
use synod_core::store::Revision;

/// The number of nodes that are remembered after they were given up.
const MAX_LEAVING: usize = 1_024;

/// The nodes that the recipes of one session have. Any other node of the session at their paths came late, by a request that was given up.
#[derive(Debug, Default)]
pub(crate) struct OwnNodes(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    /// The owners that want them, by the revisions at which they were created: no two have the same.
    created: BTreeMap<Revision, Weak<()>>,
    /// The last nodes that were given up: they are being removed, or gone.
    leaving: BTreeSet<Revision>,
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

    /// Records that a recipe has the node for this owner. False if another one has.
    pub(crate) fn add(&self, created: Revision, owner: &Weak<()>) -> bool {
        match self.lock().created.entry(created) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(owner.clone());
                true
            }
        }
    }

    /// Whether a recipe has the node.
    pub(crate) fn has(&self, created: Revision) -> bool {
        self.lock().created.contains_key(&created)
    }

    /// Whether a recipe has the node at this path; `None` while a create is on its way that may have made it.
    pub(crate) fn knows(&self, path: &Path, created: Revision) -> Option<bool> {
        let known = self.lock();
        let has = known.created.contains_key(&created);
        (has || !known.under_way.contains_key(path)).then_some(has)
    }

    /// True if the node at this path may be about to go, as seen by an owner whose create is on its way: it is being removed, its
    /// owner has been dropped, or another create is on its way that may have made it.
    pub(crate) fn may_go(&self, path: &Path, created: Revision) -> bool {
        let under_way = self.lock().under_way.get(path).copied().unwrap_or_default();
        self.is_given_up(created) || under_way > 1 && !self.has(created)
    }

    /// True if the owner of the node does not want it any more.
    pub(crate) fn is_given_up(&self, created: Revision) -> bool {
        let known = self.lock();
        let is_dropped = |owner: &Weak<()>| owner.strong_count() == 0;
        known.created.get(&created).map_or(known.leaving.contains(&created), is_dropped)
    }

    /// Records that the node is being removed, is gone, or goes with its session.
    pub(crate) fn leave(&self, created: Revision) {
        let mut known = self.lock();
        known.created.remove(&created);
        // A view of the node may be older than its removal.
        known.leaving.insert(created);
        if known.leaving.len() > MAX_LEAVING {
            known.leaving.pop_first();
        }
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
