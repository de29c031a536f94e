use std::fmt::{Debug, Write as _};
use std::sync::Mutex;

use futures_util::future::poll_immediate;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Metadata, Subscriber};

use super::*;
use crate::error::{Error, ErrorKind};
use crate::layer::fake::{Fake, FakeBackend, path};
use crate::store::{
    Change, Commit, Expect, Feature, Kind, Lifetime, Node, RejectReason, Rejected, Revision, Stat,
    Version,
};

/// A subscriber that keeps every logged line, with all its fields.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Subscriber for Log {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = LogLine(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

struct LogLine(String);

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a string takes it");
    }
}

impl Log {
    /// Returns the log of `work`.
    fn of(work: impl Future<Output = ()>) -> Vec<String> {
        let log = Self::default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        with_default(log.clone(), || runtime.block_on(work));
        std::mem::take(&mut *log.0.lock().unwrap())
    }
}

const CANARY: &str = "canary-7f3a";

#[test]
fn a_call_is_logged_with_path_and_outcome_and_without_data() {
    let lines = Log::of(async {
        let fake = Fake::new();
        let store = Traced::new(fake.clone());
        let stat = Stat::new(Revision::new(1), Revision::new(1), Version::new(1), None);
        let node = Node::new(path("/a")).with(CANARY.into(), stat);
        fake.set_next_view(Ok(View::new(Revision::new(1), vec![node.clone()])));
        let view = store.read(Query::node(path("/a"))).await.expect("answered");
        assert_eq!(view.node(), Some(&node), "passed on whole");

        let (_view, mut watch) = store.watch(Query::node(path("/w"))).await.expect("answered");
        fake.feed().send(Change::new(path("/w"), Kind::Updated).with_node(node));
        assert!(watch.try_next().is_some());

        let txn = Txn::new().create(path("/b"), CANARY, Lifetime::Session);
        fake.set_next_outcome(Ok(Outcome::Committed(Commit::new(None, Vec::new(), None))));
        fake.set_next_outcome(Ok(Outcome::Rejected(Rejected::new(
            0,
            path("/b"),
            RejectReason::Exists,
        ))));
        let lost = Error::new(ErrorKind::Unreachable, "commit").because(CANARY).caused_by(CANARY);
        fake.set_next_outcome(Err(lost.with_unknown_effect()));
        for _ in 0..3 {
            let _outcome = store.commit(txn.clone()).await.is_ok();
        }
    });

    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(
        lines,
        [
            "DEBUG message=answered verb=\"read\" path=/a operations=0 outcome=\"done\" took=0ns",
            "DEBUG message=answered verb=\"watch\" path=/w operations=0 outcome=\"done\" took=0ns",
            "TRACE message=changed path=/w kind=Updated",
            "DEBUG message=answered verb=\"commit\" path=/b operations=1 outcome=\"done\" took=0ns",
            "DEBUG message=answered verb=\"commit\" path=/b operations=1 outcome=\"rejected\" \
             why=it already exists took=0ns",
            "DEBUG message=failed verb=\"commit\" path=/b operations=1 outcome=\"unreachable\" \
             effect=\"unknown\" took=0ns",
        ]
    );
}

#[test]
fn a_dropped_call_says_so() {
    let lines = Log::of(async {
        let fake = Fake::new();
        let store = Traced::new(fake.clone());
        fake.leave_next_unanswered();
        let txn = Txn::new().delete(path("/a"), Expect::Any);
        assert!(poll_immediate(store.commit(txn)).await.is_none());
    });
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("path=/a operations=1 outcome=\"dropped\""), "{lines:?}");
}

#[test]
fn what_the_session_goes_through_is_logged_once() {
    let lines = Log::of(async {
        let fake = Fake::new();
        let store = Traced::new(fake.clone());
        for suspended in [false, true, true, false] {
            fake.suspend(suspended);
            tokio::task::yield_now().await;
        }
        for kind in [ErrorKind::Unreachable, ErrorKind::Denied, ErrorKind::Unreachable] {
            fake.set_next_view(Err(Error::new(kind, "read")));
            assert!(store.read(Query::node(path("/a"))).await.is_err());
        }
        fake.lose(SessionEnd::Expired);
        tokio::task::yield_now().await;
    });
    let loud: Vec<_> = lines.into_iter().filter(|line| !line.starts_with("DEBUG")).collect();
    assert_eq!(
        loud,
        [
            "INFO message=the store does not answer session=1",
            "INFO message=the store answers again session=1 failed_calls=0",
            "WARN message=failed verb=\"read\" path=/a operations=0 outcome=\"denied\" took=0ns",
            "WARN message=the session is lost session=1 reason=the session expired failed_calls=2",
        ]
    );
}

#[tokio::test]
async fn the_rest_is_that_of_the_store_below() {
    let store = TracedBackend::new(FakeBackend).open(&SessionOptions::default()).await;
    let store = store.expect("opened");
    assert!(!store.session().limits.missing_features.contains(&Feature::TtlNodes));

    store.close().await.expect("closed");

    assert!(store.status().borrow().is_lost());
}
