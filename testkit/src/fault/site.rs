//! [`Site`]: what can go wrong with a call.

use serde::{Deserialize, Serialize};

use crate::choice::{self, Place};

/// Which calls go wrong, and how.
pub type Choice = choice::Choice<Site>;

/// A call that a fault can happen to.
pub type Spot = choice::Spot<Site>;

/// What can go wrong with a call, or how it can take long.
///
/// At most one of those that take its course away happens to a call, the first in this order;
/// being slow may come on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Site {
    /// The store refuses the caller: `Denied`, nothing happens.
    Denied,
    /// The store fails, as one without space does: `Backend`, nothing happens.
    Broken,
    /// There is no way to send anything: `Unreachable`, with no effect for certain.
    Unsent,
    /// A write happens after its caller got `Unreachable`, with unknown effect.
    AppliedLate,
    /// The request is lost: nothing happens, and the caller cannot know.
    RequestLost,
    /// The reply is lost: it happened, and the caller cannot know.
    ReplyLost,
    /// The request goes nowhere, and nothing says so until the session's time to live is over.
    RequestHeld,
    /// It happens, and no reply comes until the session's time to live is over.
    ReplyHeld,
    /// The request takes its time.
    RequestSlow,
    /// The reply takes its time.
    ReplySlow,
}

impl Site {
    /// Those that take away a call's course, the first to fire first.
    pub(super) const FATES: [Self; 8] = [
        Self::Denied,
        Self::Broken,
        Self::Unsent,
        Self::AppliedLate,
        Self::RequestLost,
        Self::ReplyLost,
        Self::RequestHeld,
        Self::ReplyHeld,
    ];
}

impl Place for Site {
    fn number(self) -> u64 {
        self as u64
    }
}
