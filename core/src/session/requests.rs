//! The state of the requests of a call that returned: [`Requests`].

/// The state of the requests of a call that returned: a request may still take effect at the store.
///
/// A call whose answer is lost may be sent again. The first request may be delayed, and arrive
/// after the call returned with the answer to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Requests {
    /// The outcome of every request is known: none can take effect later.
    Settled,
    /// The outcome of one request is unknown, and another one was answered: one may take effect
    /// later.
    InDoubt,
}

impl Requests {
    pub(super) fn settled_if(settled: bool) -> Self {
        if settled { Self::Settled } else { Self::InDoubt }
    }

    /// Returns `true` if none of the requests can take effect later.
    pub fn is_settled(self) -> bool {
        self == Self::Settled
    }
}
