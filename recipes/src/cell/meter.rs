//! The metrics of changes, with the feature.

use std::time::Duration;

/// A change was answered after this time, and this number of tries to write.
pub(super) fn changed(recipe: &'static str, took: Duration, tries: u32) {
    metrics::histogram!("synod_change_seconds", "recipe" => recipe).record(took);
    metrics::histogram!("synod_change_tries", "recipe" => recipe).record(f64::from(tries));
}

/// This number of changes was written at once.
pub(super) fn written(recipe: &'static str, changes: usize) {
    let changes = u32::try_from(changes).unwrap_or(u32::MAX);
    metrics::histogram!("synod_change_batch", "recipe" => recipe).record(f64::from(changes));
}
