//! [`FailedDelivery`]: the history of an item, as its node contains it. Pure.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::value;

use crate::support::names::beginning;

/// The maximum number of failed deliveries in a history.
const MAX_FAILURES: usize = 10;

/// The maximum number of bytes of a reason that are kept.
const MAX_REASON: usize = 1_000;

/// The maximum size of a history, so that it fits into one request with the largest item. A single
/// reason, each byte of which JSON escapes with six, is smaller.
const MAX_BYTES: usize = 6_400;

/// A delivery that failed: its work ended with an error, the item was rejected, or no consumer
/// could receive it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedDelivery {
    /// The number of deliveries of the item so far, including this one.
    pub delivered: u32,
    /// The time of the failure, by the clock of the consumer.
    pub date: SystemTime,
    /// The error of the work, or the reason of the rejection.
    pub reason: String,
}

/// A failed delivery as JSON.
#[derive(Serialize, Deserialize)]
struct StoredFailure {
    delivered: u32,
    /// In milliseconds since the beginning of 1970.
    date: u64,
    reason: String,
}

/// Reads a history, the oldest failure first. Another program may have written the node: what is no
/// history is empty.
pub(super) fn read(node: &Path, stored: &Bytes) -> Vec<FailedDelivery> {
    let entries: Vec<StoredFailure> = value::decode(node, stored).unwrap_or_default();
    let dated = entries.into_iter().filter_map(|StoredFailure { delivered, date, reason }| {
        let since = Duration::from_millis(date);
        let date = SystemTime::UNIX_EPOCH.checked_add(since)?;
        Some(FailedDelivery { delivered, date, reason })
    });
    dated.collect()
}

/// Writes a history with one more failure, and without the oldest ones that exceed the limits.
/// `date` is the current date.
pub(super) fn with_failure(
    node: &Path,
    history: &[FailedDelivery],
    (delivered, date, reason): (u32, Duration, &str),
) -> Result<Bytes> {
    let millis = |date: Duration| u64::try_from(date.as_millis()).unwrap_or(u64::MAX);
    let last =
        StoredFailure { delivered, date: millis(date), reason: beginning(reason, MAX_REASON) };
    let before = history.len().saturating_sub(MAX_FAILURES - 1);
    let before = history.get(before..).unwrap_or_default().iter().map(|failure| StoredFailure {
        delivered: failure.delivered,
        date: millis(failure.date.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()),
        reason: failure.reason.clone(),
    });
    let mut entries: Vec<StoredFailure> = before.chain([last]).collect();
    loop {
        let encoded = value::encode(node, &entries)?;
        if encoded.len() <= MAX_BYTES || entries.len() < 2 {
            return Ok(encoded);
        }
        entries.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Path {
        Path::new("/q/failures/x").expect("valid")
    }

    #[test]
    fn the_last_failures_are_kept_as_long_as_they_are_few_and_short() {
        let long = "x".repeat(2_000);
        let (escaped, wide) = ("\0".repeat(2_000), "\u{e9}".repeat(2_000));
        for (reason, kept, length) in
            [("no", 10, 2), ("", 10, 0), (&long, 6, 1_000), (&wide, 6, 1_000), (&escaped, 1, 1_000)]
        {
            let mut history = Vec::new();
            for delivered in 1..=25 {
                let date = Duration::from_millis(1_000 + u64::from(delivered));
                let written = with_failure(&node(), &history, (delivered, date, reason));
                let written = written.expect("it is JSON");
                assert!(written.len() <= MAX_BYTES, "{}", written.len());
                history = read(&node(), &written);
            }
            let last = history.last().expect("a failure");
            assert_eq!((history.len(), last.reason.len()), (kept, length), "{length}");
            let epoch = SystemTime::UNIX_EPOCH;
            assert_eq!((last.delivered, last.date), (25, epoch + Duration::from_millis(1_025)));
            assert!(history.is_sorted_by_key(|failure| failure.delivered));
        }
    }

    #[test]
    fn what_is_no_history_is_empty_and_what_is_out_of_range_is_left_out() {
        for data in ["", "old", "{}", "[1]", "[{\"delivered\":-1,\"date\":0,\"reason\":\"\"}]"] {
            assert_eq!(read(&node(), &Bytes::from_static(data.as_bytes())), [], "{data}");
        }
        let greatest = (u32::MAX, Duration::MAX, "x");
        let written = with_failure(&node(), &[], greatest).expect("it is JSON");
        assert!(read(&node(), &written).len() <= 1);
    }
}
