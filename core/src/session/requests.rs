//! [`Requests`]: whether a request of a call may still take effect after the call returned.

/// Whether a request of a call that returned may still take effect at the store.
///
/// A call whose answer is lost may be sent again. The first request may be delayed on its way, and arrive after the
/// call returned with the answer to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Requests {
    /// None: the outcome of every request is known.
    Settled,
    /// One may: its outcome is not known, and another one was answered.
    InDoubt,
}

impl Requests {
    pub(super) fn settled_if(settled: bool) -> Self {
        if settled { Self::Settled } else { Self::InDoubt }
    }

    /// Whether none of them can still take effect.
    pub fn is_settled(self) -> bool {
        self == Self::Settled
    }
}
