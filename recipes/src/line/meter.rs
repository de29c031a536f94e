//! The metrics of waiters and holders. Without the feature `metrics` nothing is recorded.

use std::time::Duration;

/// Records that a ticket was granted after this time and this number of calls to the store.
#[cfg(feature = "metrics")]
pub(crate) fn granted(recipe: &'static str, waited: Duration, calls: u32) {
    metrics::histogram!("synod_wait_seconds", "recipe" => recipe).record(waited);
    metrics::histogram!("synod_wait_calls", "recipe" => recipe).record(f64::from(calls));
}

#[cfg(not(feature = "metrics"))]
pub(crate) const fn granted(_recipe: &'static str, _waited: Duration, _calls: u32) {}

/// Records that a holder released or lost its ticket after this time.
#[cfg(feature = "metrics")]
pub(super) fn held(recipe: &'static str, held: Duration) {
    metrics::histogram!("synod_hold_seconds", "recipe" => recipe).record(held);
}

#[cfg(not(feature = "metrics"))]
pub(super) const fn held(_recipe: &'static str, _held: Duration) {}

#[cfg(feature = "metrics")]
#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use metrics::{
        Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };

    use super::*;

    /// The histograms that were recorded, with their recipes.
    #[derive(Clone, Default)]
    struct Recorded(Arc<Mutex<BTreeSet<String>>>);

    impl Recorder for Recorded {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            let recipe = key.labels().map(metrics::Label::value).collect::<String>();
            self.0.lock().unwrap().insert(format!("{} {recipe}", key.name()));
            Histogram::noop()
        }
    }

    #[test]
    fn a_recorder_sees_what_the_recipes_promise() {
        let names = Recorded::default();
        metrics::with_local_recorder(&names, || {
            granted("mutex", Duration::from_secs(1), 2);
            held("mutex", Duration::from_secs(3));
        });
        let seen: Vec<_> = names.0.lock().unwrap().iter().cloned().collect();
        let expected = ["synod_hold_seconds", "synod_wait_calls", "synod_wait_seconds"];
        assert_eq!(seen, expected.map(|name| format!("{name} mutex")));
    }
}
