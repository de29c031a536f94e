//! A store on which every call succeeds, and which records the calls: for the tests of the layers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use synod_core::clock;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{
    Backend, Commit, Feed, Limits, OpResult, Outcome, Query, SessionEnd, SessionId, SessionInfo,
    SessionOptions, Status, Store, Txn, View, Watch,
};
use tokio::sync::watch;

pub(super) const TTL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Fake {
    info: SessionInfo,
    status: watch::Sender<Status>,
    calls: Mutex<Calls>,
    /// The feed of the last watch.
    feed: Mutex<Option<Feed>>,
}

/// The calls so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    pub(super) queries: Vec<Query>,
    pub(super) txns: Vec<Txn>,
}

impl Fake {
    pub(super) fn new() -> Arc<Self> {
        let until = clock::now() + TTL;
        Arc::new(Self {
            info: SessionInfo::new(SessionId::new(1), TTL, Limits::default()),
            status: watch::Sender::new(Status::Live { until }),
            calls: Mutex::default(),
            feed: Mutex::default(),
        })
    }

    pub(super) fn calls(&self) -> Calls {
        self.calls.lock().unwrap().clone()
    }

    pub(super) fn feed(&self) -> Feed {
        self.feed.lock().unwrap().clone().expect("something was observed")
    }

    pub(super) fn lose(&self, reason: SessionEnd) {
        self.status.send_replace(Status::Lost { reason });
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
        self.calls.lock().unwrap().queries.push(query);
        Ok(View::default())
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        let (feed, watch) = Feed::new(16);
        *self.feed.lock().unwrap() = Some(feed);
        Ok((self.read(query).await?, watch))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        let done = txn.ops.iter().map(|op| OpResult::new(op.path().clone())).collect();
        let look = txn.look_of_commit().map(|_| View::default());
        self.calls.lock().unwrap().txns.push(txn);
        Ok(Outcome::Committed(Commit::new(None, done, look)))
    }

    async fn close(&self) -> Result<()> {
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
