//! The metrics of transactions, with the feature.

use std::time::Duration;

/// A transaction ended after this time, and this number of runs.
pub(super) fn ended(took: Duration, tries: u32) {
    metrics::histogram!("synod_change_seconds", "recipe" => "transaction").record(took);
    metrics::histogram!("synod_change_tries", "recipe" => "transaction").record(f64::from(tries));
}
