//! [`Link`]: what goes through between a session and its server.

use std::time::Duration;

/// The link between a session and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Link {
    /// Undisturbed.
    Open,
    /// Nothing goes through, in either direction.
    Cut,
    /// Requests arrive and are applied; no answer and no event comes back.
    Deaf,
    /// Everything arrives, but late.
    Slow {
        /// How late requests arrive.
        there: Duration,
        /// How late answers and events arrive.
        back: Duration,
    },
}
