//! A kind of fault of a call: [`Site`].

use serde::{Deserialize, Serialize};

use crate::choice::{self, Place};

/// The sites of the faults of a store.
pub type Choice = choice::Choice<Site>;

/// A call that a fault can happen to.
pub type Spot = choice::Spot<Site>;

/// A kind of fault, or of a delay, of a call.
///
/// At most one of the faults that divert a call happens to it, the first in this order; a delay may
/// happen in addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Site {
    /// The store rejects the caller: `Denied`, no effect.
    Denied,
    /// The store fails, for example with a full disk: `Backend`, no effect.
    Broken,
    /// Nothing can be sent: `Unreachable`, certainly without an effect.
    Unsent,
    /// A write is applied after its caller received `Unreachable`, with unknown effect.
    AppliedLate,
    /// The request is lost: no effect, but the caller does not know that.
    RequestLost,
    /// The reply is lost: the call is applied, but the caller does not know that.
    ReplyLost,
    /// The request is lost, and the error comes only after the TTL of the session.
    RequestHeld,
    /// The call is applied, and the error comes only after the TTL of the session.
    ReplyHeld,
    /// The request is delayed.
    RequestSlow,
    /// The reply is delayed.
    ReplySlow,
}

impl Site {
    /// The sites that divert a call, in the order of precedence.
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
