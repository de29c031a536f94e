//! The gauge of the sessions at each server.

use std::sync::{Arc, Mutex};

use metrics::{
    Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit,
};

use super::CountedServer;

/// The changes of the gauges, with their labels.
#[derive(Clone, Default)]
struct GaugeChanges(Arc<Mutex<Vec<String>>>);

struct Sessions(GaugeChanges, String);

impl GaugeFn for Sessions {
    fn increment(&self, value: f64) {
        self.0.0.lock().unwrap().push(format!("{}: {value}", self.1));
    }

    fn decrement(&self, value: f64) {
        self.increment(-value);
    }

    fn set(&self, _value: f64) {}
}

impl Recorder for GaugeChanges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let server = key.labels().map(Label::value).collect();
        Gauge::from_arc(Arc::new(Sessions(self.clone(), server)))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn a_session_counts_for_the_server_that_answered_last() {
    let changes = GaugeChanges::default();
    metrics::with_local_recorder(&changes, || {
        let mut counted = CountedServer::default();
        for server in [None, Some("a:1"), Some("a:1"), Some("b:1")] {
            counted.set(server.map(str::to_owned));
        }
        drop(counted);
    });
    let seen = changes.0.lock().unwrap().clone();
    assert_eq!(seen, ["a:1: 1", "b:1: 1", "a:1: -1", "b:1: -1"]);
}
