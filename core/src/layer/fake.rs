//! A store that returns prepared answers, and records its calls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock;
use async_trait::async_trait;
use tokio::sync::watch;

use crate::error::Result;
use crate::path::Path;
use crate::store::{
    Backend, Commit, Feed, Limits, Op, OpResult, Outcome, Query, SessionEnd, SessionId,
    SessionInfo, SessionOptions, Status, Store, Txn, View, Watch,
};

pub(super) const TTL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Fake {
    info: SessionInfo,
    status: watch::Sender<Status>,
    calls: Mutex<Calls>,
    /// The feed of the last watch.
    feed: Mutex<Option<Feed>>,
    views: Mutex<VecDeque<Result<View>>>,
    /// `None` for a call that is never answered.
    outcomes: Mutex<VecDeque<Option<Result<Outcome>>>>,
}

/// The recorded calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Calls {
    pub(super) queries: Vec<Query>,
    pub(super) txns: Vec<Txn>,
    pub(super) closes: usize,
}

impl Calls {
    /// Returns every path of every call.
    pub(super) fn paths(&self) -> Vec<&Path> {
        let looks = self.txns.iter().filter_map(|txn| txn.look.as_ref());
        let queried = self.queries.iter().chain(looks).map(|query| &query.path);
        queried.chain(self.txns.iter().flat_map(|txn| &txn.ops).map(Op::path)).collect()
    }
}

impl Fake {
    pub(super) fn new() -> Arc<Self> {
        let until = clock::now() + TTL;
        Arc::new(Self {
            info: SessionInfo::new(SessionId::new(1), TTL, Limits::default()),
            status: watch::Sender::new(Status::Live { until }),
            calls: Mutex::default(),
            feed: Mutex::default(),
            views: Mutex::default(),
            outcomes: Mutex::default(),
        })
    }

    /// Prepares the answer to the next read or observation; the default is an empty view.
    pub(super) fn set_next_view(&self, view: Result<View>) {
        self.views.lock().unwrap().push_back(view);
    }

    /// Prepares the answer to the next commit; by default all operations succeed.
    pub(super) fn set_next_outcome(&self, outcome: Result<Outcome>) {
        self.outcomes.lock().unwrap().push_back(Some(outcome));
    }

    /// Leaves the next commit without an answer.
    pub(super) fn leave_next_unanswered(&self) {
        self.outcomes.lock().unwrap().push_back(None);
    }

    pub(super) fn calls(&self) -> Calls {
        self.calls.lock().unwrap().clone()
    }

    pub(super) fn feed(&self) -> Feed {
        self.feed.lock().unwrap().clone().expect("something was observed")
    }

    pub(super) fn suspend(&self, suspended: bool) {
        let until = clock::now() + TTL;
        self.status.send_replace(if suspended {
            Status::Suspended { until }
        } else {
            Status::Live { until }
        });
    }

    pub(super) fn lose(&self, reason: SessionEnd) {
        self.status.send_replace(Status::Lost { reason });
    }

    fn show(&self, query: Query) -> Result<View> {
        self.calls.lock().unwrap().queries.push(query);
        self.views.lock().unwrap().pop_front().unwrap_or_else(|| Ok(View::default()))
    }
}

#[async_trait]
impl Store for Fake {
    fn session(&self) -> &SessionInfo {
        &self.info
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    async fn read(&self, query: Query) -> Result<View> {
        self.show(query)
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        let (feed, watch) = Feed::new(16);
        *self.feed.lock().unwrap() = Some(feed);
        Ok((self.show(query)?, watch))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        let done = txn.ops.iter().map(|op| OpResult::new(op.path().clone())).collect();
        let look = txn.look_of_commit().map(|_| View::default());
        self.calls.lock().unwrap().txns.push(txn);
        let scripted = self.outcomes.lock().unwrap().pop_front();
        match scripted {
            Some(Some(outcome)) => outcome,
            Some(None) => std::future::pending().await,
            None => Ok(Outcome::Committed(Commit::new(None, done, look))),
        }
    }

    async fn close(&self) -> Result<()> {
        self.calls.lock().unwrap().closes += 1;
        self.lose(SessionEnd::Closed);
        Ok(())
    }
}

/// A backend that opens fakes.
#[derive(Debug)]
pub(super) struct FakeBackend;

#[async_trait]
impl Backend for FakeBackend {
    async fn open(&self, _options: &SessionOptions) -> Result<Box<dyn Store>> {
        Ok(Box::new(Arc::into_inner(Fake::new()).expect("just made")))
    }
}

pub(super) fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}
