//! [`Tickets`]: what a session made under names of their own.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use synod_core::path::Path;

/// How many are remembered. The others are deleted like any node.
const MOST: usize = 8_192;

/// The ephemeral nodes that a session made by sequential creates, and did not delete yet.
///
/// Nobody else ever gives such a name, and nothing is ever below an ephemeral node. So what stands there
/// is that node or nothing, and it can be deleted without a condition.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<BTreeSet<Path>>);

impl Tickets {
    /// This one was made.
    pub(crate) fn add(&self, path: &Path) {
        let mut all = self.all();
        if all.len() < MOST {
            all.insert(path.clone());
        }
    }

    /// Whether this was one of them: it is about to be deleted.
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
