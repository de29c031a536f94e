//! [`Races`]: whether the session lost a race lately.
//!
//! A look that is wanted only after a rejection is a request of its own. It is sent along where it is likely to be
//! needed, and otherwise after the rejection, so that a client without rivals does not pay for it.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many transactions after a rejection have their look sent along.
const ALERT: u32 = 32;

/// The number of transactions that are still to be sent with their look.
#[derive(Debug, Default)]
pub(crate) struct Races(AtomicU32);

impl Races {
    /// Records a rejection.
    pub(crate) fn lost(&self) {
        self.0.store(ALERT, Ordering::Relaxed);
    }

    /// Whether the look of the transaction that is sent next is sent along.
    pub(crate) fn is_lost_lately(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_is_remembered_for_a_while() {
        let races = Races::default();
        assert!(!races.is_lost_lately(), "no race was lost");

        races.lost();
        assert!((0..ALERT).all(|_| races.is_lost_lately()));
        assert!(!races.is_lost_lately(), "it was long ago");
    }
}
