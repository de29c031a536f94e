//! [`Sent`]: what became of a transaction; [`Evidence`]: what the store shows of it but for its mark.

use synod_core::error::{Error, ErrorKind};
use synod_core::store::{Commit, Query, Rejected, Revision, View};

/// What the store shows of a transaction but for its mark.
pub(crate) trait Evidence: Sync {
    /// The nodes that may show that it was not applied.
    fn whole(&self) -> Option<Query>;

    /// Whether they prove that it was not.
    fn is_untouched(&self, view: &View) -> bool;

    /// Takes note of the revision at which it was applied, where its answer was lost and its mark shows it.
    fn was_applied(&self, _at: Revision) {}
}

/// The result of sending a transaction.
pub(crate) enum Sent {
    /// It was applied. With what it did, unless its answer was lost.
    Applied(Option<Commit>),
    Rejected(Rejected),
    /// It was not applied, and never will be. The session is lost, or the mark.
    Lost,
}

/// Whether nothing was applied, as the session was lost before.
pub(crate) fn is_only_lost(error: &Error) -> bool {
    error.kind() == ErrorKind::SessionLost && !error.has_unknown_effect()
}
