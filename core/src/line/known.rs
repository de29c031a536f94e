//! [`Known`]: what is known of a ticket that counts only as it was last seen.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::{Expect, Stat};

/// A ticket that counts only as it was when it was last seen to be this one's: whatever writes to it has to say so.
///
/// One whose draw was sent more than once, where the store adds nothing to a name: a sending that comes late may make the
/// node again when somebody removed it, and another is in by then. And one that stands for less once it was written to:
/// what was to happen under it as it was may come late.
#[derive(Debug)]
pub(super) struct Known {
    seen: Mutex<Stat>,
}

impl Known {
    /// As it was drawn.
    pub(super) fn of(drawn: Stat) -> Self {
        Self { seen: Mutex::new(drawn) }
    }

    /// What a check of the node expects: a version that no other of its name ever has.
    pub(super) fn expected(&self) -> Expect {
        Expect::Version(self.seen().version)
    }

    /// Takes note of what is at the path. Whether that is the ticket.
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
    use crate::store::{Revision, Version};

    fn stat(created: u64, modified: u64) -> Stat {
        Stat::new(Revision::new(created), Revision::new(modified), Version::new(modified), None)
    }

    #[test]
    fn it_goes_by_the_latest_that_was_seen_of_this_ticket() {
        let doubt = Known::of(stat(5, 5));
        for (seen, is_this, expected) in [
            (stat(5, 5), true, 5),
            (stat(5, 8), true, 8),
            // An answer that lags.
            (stat(5, 7), true, 8),
            // What a late sending made.
            (stat(9, 9), false, 8),
        ] {
            assert_eq!(doubt.learn(seen), is_this, "{seen:?}");
            assert_eq!(doubt.expected(), Expect::Version(Version::new(expected)), "{seen:?}");
        }
    }
}
