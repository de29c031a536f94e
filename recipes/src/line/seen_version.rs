//! [`SeenVersion`]: the last version that was seen of a ticket whose path does not identify it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use synod_core::store::{Expect, Stat};

/// The last version that was seen of a ticket. Every write and every check of the ticket expects it.
///
/// It is used for two kinds of tickets. If the create was retried on a store that does not append a sequence to the
/// name (etcd), a delayed first request could create the deleted node again after another holder was granted. And if
/// a write to the ticket reduces its claim (a downgrade), a delayed transaction under the former claim must fail.
#[derive(Debug)]
pub(super) struct SeenVersion {
    seen: Mutex<Stat>,
}

impl SeenVersion {
    /// The version at the ticket's create.
    pub(super) fn of(drawn: Stat) -> Self {
        Self { seen: Mutex::new(drawn) }
    }

    /// What a check of the node expects: a version that no other node of this name ever has.
    pub(super) fn expected(&self) -> Expect {
        Expect::Version(self.seen().version)
    }

    /// Records what is at the path. Returns whether that is the ticket.
    pub(super) fn learn(&self, stat: Stat) -> bool {
        let mut seen = self.seen();
        if stat.created != seen.created {
            return false;
        }
        if stat.modified > seen.modified {
            *seen = stat;
        }
        true
    }

    fn seen(&self) -> MutexGuard<'_, Stat> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use synod_core::store::{Revision, Version};

    fn stat(created: u64, modified: u64) -> Stat {
        Stat::new(Revision::new(created), Revision::new(modified), Version::new(modified), None)
    }

    #[test]
    fn it_goes_by_the_latest_that_was_seen_of_this_ticket() {
        let ticket = SeenVersion::of(stat(5, 5));
        for (seen, is_this, expected) in [
            (stat(5, 5), true, 5),
            (stat(5, 8), true, 8),
            // An answer that lags.
            (stat(5, 7), true, 8),
            // A node that a late request created.
            (stat(9, 9), false, 8),
        ] {
            assert_eq!(ticket.learn(seen), is_this, "{seen:?}");
            assert_eq!(ticket.expected(), Expect::Version(Version::new(expected)), "{seen:?}");
        }
    }
}
