//! The metrics of those who stand in line, with the feature.

use std::time::Duration;

/// Somebody was called, after so long, for so many calls to the store.
pub(super) fn called(recipe: &'static str, waited: Duration, asked: u32) {
    metrics::histogram!("synod_wait_seconds", "recipe" => recipe).record(waited);
    metrics::histogram!("synod_wait_calls", "recipe" => recipe).record(f64::from(asked));
}

/// Somebody gave back what he held for so long.
pub(super) fn held(recipe: &'static str, held: Duration) {
    metrics::histogram!("synod_hold_seconds", "recipe" => recipe).record(held);
}
