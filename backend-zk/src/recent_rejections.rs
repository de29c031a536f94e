//! [`RecentRejections`]: the transactions that are sent with their follow-up read, because one was
//! rejected lately.
//!
//! A follow-up read that is wanted only after a rejection is a separate request. It is sent with
//! the transaction if a rejection is likely, and otherwise after the rejection, so that a client
//! without contention does not pay for it.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of transactions after a rejection that are sent with their follow-up read.
const ALERT: u32 = 32;

/// The number of transactions that will still be sent with their follow-up read.
#[derive(Debug, Default)]
pub(crate) struct RecentRejections(AtomicU32);

impl RecentRejections {
    /// Records a rejection.
    pub(crate) fn record(&self) {
        self.0.store(ALERT, Ordering::Relaxed);
    }

    /// Counts the transaction that is sent next. Returns `true` if its read is sent with it.
    pub(crate) fn count_down(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_is_remembered_for_a_while() {
        let rejections = RecentRejections::default();
        assert!(!rejections.count_down(), "nothing was rejected");

        rejections.record();
        assert!((0..ALERT).all(|_| rejections.count_down()));
        assert!(!rejections.count_down(), "the rejection was long ago");
    }
}
