//! The metrics and spans of recipes: each wait and each hold is measured, and is a span.
//!
//! In a file of its own: another test of the process might use a span first without a subscriber,
//! which would disable it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as Plain};
use std::time::Duration;

use futures_util::future::join;
use metrics::{
    Counter, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use synod::election::LeaderLatch;
use synod::lock::Mutex;
use synod::queue::Queue;
use synod::{Client, Expect, Path};
use synod_testkit::recipe::{Act, Use, rows};
use tokio::time::sleep;
use tracing::Instrument as _;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

/// The measured values, by metric and recipe.
#[derive(Clone, Debug, Default)]
struct Measured(Arc<Plain<BTreeMap<String, Vec<f64>>>>);

struct Series(Measured, String);

impl Measured {
    #[track_caller]
    fn of(&self, metric: &str, recipe: &str) -> Vec<f64> {
        let all = self.0.lock().expect("no thread panicked");
        let found = all.get(&format!("{metric} {recipe}")).cloned();
        found.unwrap_or_else(|| panic!("no {metric} of {recipe}: {all:?}"))
    }

    /// The values of a metric with these labels.
    fn series(&self, key: &Key) -> Series {
        let labels: String = key.labels().map(metrics::Label::value).collect();
        Series(self.clone(), format!("{} {labels}", key.name()))
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        let mut all = self.0.0.lock().expect("no thread panicked");
        all.entry(self.1.clone()).or_default().push(value);
    }
}

impl GaugeFn for Series {
    fn increment(&self, _value: f64) {}

    fn decrement(&self, _value: f64) {}

    fn set(&self, value: f64) {
        self.record(value);
    }
}

impl Recorder for Measured {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(self.series(key)))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(self.series(key)))
    }
}

/// Records everything that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Plain<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no thread panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn path(name: &str) -> Path {
    Path::new(&format!("/{name}")).expect("valid")
}

/// Each recipe is used once in each way that is measured.
async fn use_each(client: &Client) -> synod::Result<()> {
    for it in measured_uses() {
        it.whole(client, &path(it.name)).await?;
    }
    Ok(())
}

fn measured_uses() -> impl Iterator<Item = &'static Use> {
    // The test itself holds a mutex, and waits for it.
    rows().flat_map(|row| row.uses).filter(|it| it.name != "mutex").filter(|it| {
        matches!(it.act, Act::Hold { measured: true, .. } | Act::Change { measured: true, .. })
    })
}

/// Each wait, each hold and each change is measured, and is a span.
fn each_is_measured(measured: &Measured, log: &Log) {
    let log = log.text();
    for it in measured_uses() {
        let name = it.name;
        let spans = if it.waits() {
            assert_eq!(
                measured.of("synod_wait_calls", name).first(),
                Some(&1.0),
                "{name} was free"
            );
            for metric in ["synod_wait_seconds", "synod_hold_seconds"] {
                let once = measured.of(metric, name).len();
                assert_eq!(once, measured.of("synod_wait_calls", name).len(), "{metric} of {name}");
            }
            ["waiting", "holding"].as_slice()
        } else {
            // The first change creates a write id, the second one finds it.
            for metric in ["synod_change_tries", "synod_change_batch"] {
                assert_eq!(measured.of(metric, name), [1.0; 2], "{metric} of {name}");
            }
            assert_eq!(measured.of("synod_change_seconds", name).len(), 2, "{name}");
            &["changing"]
        };
        for span in spans {
            let shown = format!("{span}{{recipe=\"{name}\" path=/{name}");
            assert!(log.contains(&shown), "no {shown} in\n{log}");
        }
    }
}

/// Records the logs of this thread.
fn listen(log: &Log) -> tracing::subscriber::DefaultGuard {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    tracing::subscriber::set_default(subscriber)
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no thread panicked").clone()).expect("text")
    }
}

/// The logs of a latch have its label and the span of the task that joined, and separate fields for
/// the latch and its ticket.
async fn latch_is_heard(client: &Client, log: &Log) {
    let latch = LeaderLatch::new(client, path("labelled")).label("host-7");
    let candidacy = latch.join().instrument(tracing::info_span!("service", name = "cron")).await;
    let candidacy = candidacy.expect("there is no other candidate");
    let lead = candidacy.leading().await.expect("there is no other candidate");
    client.delete(lead.path(), Expect::Any).await.expect("memory answers").ok();
    lead.lost().await;
    sleep(Duration::from_secs(10)).await;
    candidacy.close().await.expect("memory answers");
    let told = log.text();
    let standing = "service{name=\"cron\"}:candidate{recipe=\"leader_latch\" path=/labelled label=\"host-7\"}: ";
    for message in ["leading ticket=/labelled/", "the lead is lost ticket=/labelled/"] {
        let line = told.lines().find(|line| line.contains(message));
        let line = line.unwrap_or_else(|| panic!("no {message} in\n{told}"));
        assert!(line.contains(standing), "no {standing} in {line}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_measured_when_its_items_are_counted() {
    let measured = Measured::default();
    let _recording = metrics::set_default_local_recorder(&measured);
    let client = synod::connect("mem://depth").await.expect("memory is always there");
    let queue = Queue::new_bytes(&client, path("depth"));
    let count = async || queue.stats().await.map(drop).expect("memory answers");
    count().await;
    queue.put(&"item".into()).await.expect("memory answers");
    count().await;
    client.close().await.expect("memory answers");

    for (state, items) in [("ready", [0.0, 1.0]), ("dead", [0.0; 2])] {
        assert_eq!(measured.of("synod_queue_items", &format!("/depth{state}")), items);
    }
    let ages = measured.of("synod_queue_oldest_seconds", "/depth");
    assert!(ages[0] == 0.0 && ages[1] < 60.0, "{ages:?}");
}

#[tokio::test(start_paused = true)]
async fn waits_and_holds_are_measured_and_are_spans() {
    const LONG: Duration = Duration::from_secs(3);
    let (measured, log) = (Measured::default(), Log::default());
    let _recording = metrics::set_default_local_recorder(&measured);
    let _logging = listen(&log);
    let client = synod::connect("mem://measures").await.expect("memory is always there");
    let mutex = Mutex::new(&client, path("long"));

    // One client holds the lock for this time, and another waits meanwhile.
    let held = mutex.lock().await.expect("free");
    let holds = async {
        sleep(LONG).await;
        held.release().await.expect("held");
    };
    let (next, ()) = join(mutex.lock(), holds).await;
    drop(next.expect("given back"));
    use_each(&client).await.expect("there is no other client");
    client.close().await.expect("memory answers");

    let waits = measured.of("synod_wait_seconds", "mutex");
    assert!(waits[0] < 1.0 && (waits[1] - LONG.as_secs_f64()).abs() < 1.0, "{waits:?}");
    let holds = measured.of("synod_hold_seconds", "mutex");
    assert!((holds[0] - LONG.as_secs_f64()).abs() < 1.0 && holds[1] < 1.0, "{holds:?}");
    // The create alone, with its listing; and two more to wait: the watch, and a read when the
    // predecessor leaves.
    let calls = measured.of("synod_wait_calls", "mutex");
    assert_eq!((calls[0], calls.len()), (1.0, 2));
    assert!(calls[1] >= 3.0, "{calls:?}");
    each_is_measured(&measured, &log);
    let told = log.text();
    let waits = "waiting{recipe=\"mutex\" path=/long waited=";
    for span in [
        waits,
        "changing{recipe=\"counter\" path=/counter took=",
        "following{recipe=\"shared_value\" path=/shared_value",
        "leading{path=/leader_selector ticket=/leader_selector/",
        "holding{recipe=\"semaphore\" path=/semaphore ticket=/semaphore/",
    ] {
        assert!(told.contains(span), "no {span} in\n{told}");
    }
    let client = synod::connect("mem://measures").await.expect("memory is always there");
    latch_is_heard(&client, &log).await;
    client.close().await.expect("memory answers");
    let second = format!("{waits}{LONG:?} calls={}}}", calls[1]);
    assert!(told.contains(&second), "no {second} in\n{told}");
    let mut holds = told
        .lines()
        .filter(|line| line.contains("holding{recipe=\"mutex\" path=/long ticket=/long/"));
    assert!(holds.any(|hold| hold.contains(&format!("held={LONG:?}}}"))), "{told}");
}
