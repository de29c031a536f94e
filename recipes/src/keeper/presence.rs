//! [`Presence`]: what is known of a node that is kept.

use synod_core::error::Error;
use synod_core::store::Revision;

/// What is known of a node that is kept.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Presence {
    /// It is there since this revision.
    There(Revision),
    /// It is gone, or goes with a session that is lost, and is about to be made again.
    Absent,
    /// It is gone, and the store refuses to make it again, or another client has a node there. It is tried again.
    Refused(Error),
}

impl Presence {
    /// Whether it is there.
    pub fn is_there(&self) -> bool {
        matches!(self, Self::There(_))
    }
}
