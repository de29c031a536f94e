//! [`Claims`]: which nodes of a session are those of a keeper.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use synod_core::store::Revision;

/// The nodes of all keepers of one session.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<Claimed>);

#[derive(Debug, Default)]
struct Claimed {
    /// The revisions at which they were created. No two have the same one.
    created: BTreeSet<Revision>,
    /// How many creates are on their way.
    under_way: usize,
}

/// A create that is on its way.
#[must_use = "it is over when this is dropped"]
pub(super) struct Making<'a>(&'a Claims);

impl Claims {
    /// Records that a create is on its way: whose its node is, is not known before this is dropped.
    pub(super) fn making(&self) -> Making<'_> {
        self.lock().under_way += 1;
        Making(self)
    }

    /// Records that a keeper has the node. False if another keeper has.
    pub(super) fn claim(&self, created: Revision) -> bool {
        self.lock().created.insert(created)
    }

    /// Whether a keeper has the node.
    pub(super) fn has(&self, created: Revision) -> bool {
        self.lock().created.contains(&created)
    }

    /// Whether a keeper has the node; `None` while a create is on its way that may have made it.
    pub(super) fn knows(&self, created: Revision) -> Option<bool> {
        let claimed = self.lock();
        let has = claimed.created.contains(&created);
        (has || claimed.under_way == 0).then_some(has)
    }

    /// Records that the node is gone, or is to be removed.
    pub(super) fn give_up(&self, created: Revision) {
        self.lock().created.remove(&created);
    }

    fn lock(&self) -> MutexGuard<'_, Claimed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}
