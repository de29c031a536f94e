//! The metrics of changes. Without the feature `metrics` nothing is recorded.

use std::time::Duration;

/// Records a change that was answered, or a transaction that ended.
#[cfg(feature = "metrics")]
pub(crate) fn record_change(recipe: &'static str, time: Duration, tries: u32) {
    metrics::histogram!("synod_change_seconds", "recipe" => recipe).record(time);
    metrics::histogram!("synod_change_tries", "recipe" => recipe).record(f64::from(tries));
}

/// Records the number of changes that one write made.
#[cfg(feature = "metrics")]
pub(crate) fn record_batch(recipe: &'static str, changes: usize) {
    let changes = u32::try_from(changes).unwrap_or(u32::MAX);
    metrics::histogram!("synod_change_batch", "recipe" => recipe).record(f64::from(changes));
}

#[cfg(not(feature = "metrics"))]
pub(crate) const fn record_change(_recipe: &'static str, _time: Duration, _tries: u32) {}

#[cfg(not(feature = "metrics"))]
pub(crate) const fn record_batch(_recipe: &'static str, _changes: usize) {}
