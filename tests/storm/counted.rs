//! [`Counted`]: a backend that counts the calls of its sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use synod::Result;
use synod_core::store::{
    Backend, Outcome, Query, SessionInfo, SessionOptions, Status, Store, Txn, View, Watch,
};
use tokio::sync::watch;

/// The number of calls that were sent, retries included.
pub(crate) type Calls = Arc<AtomicUsize>;

/// A backend whose sessions count what they send.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) calls: Calls,
}

#[derive(Debug)]
struct CountedStore {
    store: Box<dyn Store>,
    calls: Calls,
}

impl CountedStore {
    fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Backend for Counted {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let store = self.backend.open(options).await?;
        Ok(Box::new(CountedStore { store, calls: self.calls.clone() }))
    }
}

#[async_trait]
impl Store for CountedStore {
    fn session(&self) -> &SessionInfo {
        self.store.session()
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.store.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        self.count();
        self.store.read(query).await
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        self.count();
        self.store.watch(query).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        self.count();
        self.store.commit(txn).await
    }

    async fn close(&self) -> Result<()> {
        self.store.close().await
    }
}
