//! [`Tickets`]: the nodes that a session created under unique names.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use synod_core::path::Path;

/// The maximum number of recorded nodes. Others are deleted like any node.
const MOST: usize = 8_192;

/// The ephemeral nodes that a session created by sequential creates, and has not deleted yet.
///
/// No other client ever uses such a name, and nothing is ever below an ephemeral node. So the path
/// has either that node or none, and it can be deleted without a condition.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<BTreeSet<Path>>);

impl Tickets {
    /// Adds a node that was created.
    pub(crate) fn add(&self, path: &Path) {
        let mut all = self.all();
        if all.len() < MOST {
            all.insert(path.clone());
        }
    }

    /// Removes a node that is about to be deleted, and returns whether it was one of them.
    pub(crate) fn take(&self, path: &Path) -> bool {
        self.all().remove(path)
    }

    fn all(&self) -> MutexGuard<'_, BTreeSet<Path>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_remembered_than_there_is_room_for() {
        let tickets = Tickets::default();
        let path = |number: usize| Path::new(&format!("/q/{number}")).expect("valid");
        for number in 0..=MOST {
            tickets.add(&path(number));
        }
        assert!(!tickets.take(&path(MOST)));
        assert!(tickets.take(&path(0)) && !tickets.take(&path(0)), "it is deleted once");
        tickets.add(&path(MOST));
        assert!(tickets.take(&path(MOST)));
    }
}
