//! The metrics of changes. Without the feature `metrics` nothing is recorded.

use std::time::Duration;

use synod_core::path::Path;

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

/// Records the number of items of a queue in this state.
#[cfg(feature = "metrics")]
pub(crate) fn record_queue_items(path: &Path, state: &'static str, items: usize) {
    let items = u32::try_from(items).unwrap_or(u32::MAX);
    let labels = [("path", path.as_str().to_owned()), ("state", state.to_owned())];
    metrics::gauge!("synod_queue_items", &labels).set(items);
}

/// Records the age of the oldest item of a queue that can be delivered.
#[cfg(feature = "metrics")]
pub(crate) fn record_queue_age(path: &Path, age: Duration) {
    let labels = [("path", path.as_str().to_owned())];
    metrics::gauge!("synod_queue_oldest_seconds", &labels).set(age);
}

/// Records that an attempt at an item or a task has failed and is repeated.
#[cfg(feature = "metrics")]
pub(crate) fn record_retry(recipe: &'static str) {
    metrics::counter!("synod_retries_total", "recipe" => recipe).increment(1);
}

#[cfg(not(feature = "metrics"))]
pub(crate) const fn record_retry(_recipe: &'static str) {}

#[cfg(not(feature = "metrics"))]
pub(crate) const fn record_queue_items(_path: &Path, _state: &'static str, _items: usize) {}

#[cfg(not(feature = "metrics"))]
pub(crate) const fn record_queue_age(_path: &Path, _age: Duration) {}

#[cfg(not(feature = "metrics"))]
pub(crate) const fn record_change(_recipe: &'static str, _time: Duration, _tries: u32) {}

#[cfg(not(feature = "metrics"))]
pub(crate) const fn record_batch(_recipe: &'static str, _changes: usize) {}
