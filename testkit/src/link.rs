//! The state of the connection between a session and its server: [`Link`].

use std::time::Duration;

/// The connection between a session and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Link {
    /// Undisturbed.
    Open,
    /// Nothing arrives, in either direction.
    Cut,
    /// Requests arrive and are applied; no answer and no event comes back.
    Deaf,
    /// Everything arrives, but late.
    Slow {
        /// The delay of requests.
        there: Duration,
        /// The delay of answers and events.
        back: Duration,
    },
}
