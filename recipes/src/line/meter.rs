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

/// A call that waits. It counts as a waiter until this value is dropped.
pub(crate) struct Waiter {
    #[cfg(feature = "metrics")]
    recipe: &'static str,
}

#[cfg(feature = "metrics")]
impl Waiter {
    pub(crate) fn new(recipe: &'static str) -> Self {
        metrics::gauge!("synod_waiters", "recipe" => recipe).increment(1);
        Self { recipe }
    }
}

#[cfg(feature = "metrics")]
impl Drop for Waiter {
    fn drop(&mut self) {
        metrics::gauge!("synod_waiters", "recipe" => self.recipe).decrement(1);
    }
}

#[cfg(not(feature = "metrics"))]
impl Waiter {
    pub(crate) const fn new(_recipe: &'static str) -> Self {
        Self {}
    }
}

#[cfg(feature = "metrics")]
#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use metrics::{
        Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };

    use super::*;

    /// The histograms that were recorded, with their recipes, and the changes of the gauge.
    #[derive(Clone, Default)]
    struct Recorded(Arc<Mutex<BTreeSet<String>>>, Arc<Mutex<Vec<String>>>);

    impl GaugeFn for Recorded {
        fn increment(&self, value: f64) {
            self.1.lock().unwrap().push(format!("+{value}"));
        }

        fn decrement(&self, value: f64) {
            self.1.lock().unwrap().push(format!("-{value}"));
        }

        fn set(&self, _value: f64) {}
    }

    impl Recorder for Recorded {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            assert_eq!(key.name(), "synod_waiters");
            Gauge::from_arc(Arc::new(self.clone()))
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

    #[test]
    fn a_waiter_counts_until_its_wait_ends_or_is_dropped() {
        let gauge = Recorded::default();
        metrics::with_local_recorder(&gauge, || {
            let two = ["mutex"; 2].map(Waiter::new);
            assert_eq!(*gauge.1.lock().unwrap(), ["+1"; 2]);
            drop(two);
        });
        assert_eq!(*gauge.1.lock().unwrap(), ["+1", "+1", "-1", "-1"]);
    }
}
