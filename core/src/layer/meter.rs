//! The metrics of [`trace`](super::trace), with the feature: counters and durations, through the
//! `metrics` facade.

use std::time::Duration;

use crate::store::{Kind, SessionEnd};

pub(super) fn record_call(verb: &'static str, outcome: &'static str, took: Duration) {
    metrics::counter!("synod_calls_total", "verb" => verb, "outcome" => outcome).increment(1);
    metrics::histogram!("synod_call_duration_seconds", "verb" => verb, "outcome" => outcome)
        .record(took);
}

pub(super) fn record_change(kind: Kind) {
    let kind = match kind {
        Kind::Created => "created",
        Kind::Updated => "updated",
        Kind::Deleted => "deleted",
        Kind::Children => "children",
    };
    metrics::counter!("synod_watch_events_total", "kind" => kind).increment(1);
}

pub(super) fn record_resync() {
    metrics::counter!("synod_watch_resyncs_total").increment(1);
}

pub(super) fn record_end() {
    metrics::counter!("synod_watch_ends_total").increment(1);
}

pub(super) fn record_session_loss(why: SessionEnd) {
    let why = match why {
        SessionEnd::Expired => "expired",
        SessionEnd::Closed => "closed",
        SessionEnd::Denied => "denied",
        SessionEnd::HandedOver => "handed_over",
    };
    metrics::counter!("synod_session_losses_total", "why" => why).increment(1);
}

/// Adds `count` to the number of sessions that this server answers.
pub(super) fn add_sessions(server: &str, count: f64) {
    metrics::gauge!("synod_sessions", "server" => server.to_owned()).increment(count);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use metrics::{
        Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
        SharedString, Unit,
    };

    use crate::error::{Error, ErrorKind};
    use crate::layer::fake::{Fake, FakeBackend, path};
    use crate::layer::trace::{Traced, TracedBackend};
    use crate::store::{
        Backend, Change, Expect, Kind, Outcome, Query, RejectReason, Rejected, SessionEnd,
        SessionOptions, Store, Txn,
    };

    /// Returns the count of each metric, by its name and labels.
    #[derive(Clone, Default)]
    struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

    struct Tally(Counts, String);

    impl CounterFn for Tally {
        fn increment(&self, value: u64) {
            *self.0.0.lock().unwrap().entry(self.1.clone()).or_default() += value;
        }

        fn absolute(&self, _value: u64) {}
    }

    impl HistogramFn for Tally {
        fn record(&self, _value: f64) {
            self.increment(1);
        }
    }

    impl Counts {
        fn tally(&self, key: &Key) -> Arc<Tally> {
            let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
            Arc::new(Tally(self.clone(), format!("{}{}", key.name(), labels.collect::<String>())))
        }
    }

    impl Recorder for Counts {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.tally(key))
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(self.tally(key))
        }
    }

    async fn some_of_everything() {
        let options = SessionOptions::default();
        let opened = TracedBackend::new(FakeBackend).open(&options).await.expect("opened");
        opened.close().await.expect("closed");
        drop(opened);

        let fake = Fake::new();
        let store = Traced::new(fake.clone());
        for _ in 0..2 {
            store.read(Query::node(path("/a"))).await.expect("answered");
        }
        let (_view, mut watch) = store.watch(Query::node(path("/a"))).await.expect("answered");
        fake.feed().resync();
        fake.feed().send(Change::new(path("/a"), Kind::Updated));
        while watch.try_next().is_some() {}
        fake.set_next_outcome(Ok(Outcome::Rejected(Rejected::new(
            0,
            path("/a"),
            RejectReason::Missing,
        ))));
        fake.set_next_outcome(Err(Error::new(ErrorKind::SessionLost, "commit")));
        for _ in 0..2 {
            let txn = Txn::new().delete(path("/a"), Expect::Any);
            let _outcome = store.commit(txn).await.is_ok();
        }
        fake.lose(SessionEnd::Denied);
        tokio::task::yield_now().await;
    }

    #[test]
    fn a_recorder_sees_what_the_table_promises() {
        let counts = Counts::default();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        metrics::with_local_recorder(&counts, || runtime.block_on(some_of_everything()));

        let calls = [
            ("verb=close outcome=done", 1),
            ("verb=commit outcome=rejected", 1),
            ("verb=commit outcome=session_lost", 1),
            ("verb=open outcome=done", 1),
            ("verb=read outcome=done", 2),
            ("verb=watch outcome=done", 1),
        ];
        let mut expected: Vec<(String, u64)> = Vec::new();
        for metric in ["synod_call_duration_seconds", "synod_calls_total"] {
            expected.extend(calls.map(|(labels, count)| (format!("{metric} {labels}"), count)));
        }
        let rest = [
            "synod_session_losses_total why=closed",
            "synod_session_losses_total why=denied",
            "synod_watch_events_total kind=updated",
            "synod_watch_resyncs_total",
        ];
        expected.extend(rest.map(|metric| (metric.to_owned(), 1)));
        let seen: Vec<(String, u64)> =
            std::mem::take(&mut *counts.0.lock().unwrap()).into_iter().collect();
        assert_eq!(seen, expected);
    }
}
