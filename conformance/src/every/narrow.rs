//! [`Narrow`]: a layer between a client and its store with a low limit for the data of a node,
//! which records the paths that were written.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{
    Backend, Op, Outcome, Query, SessionInfo, SessionOptions, Status, Store, Txn, View, Watch,
};
use tokio::sync::watch;

/// A store with a limit of [`Narrow::DATA`] bytes for the data of a node. Clones share one store.
#[derive(Clone, Debug)]
pub(super) struct Narrow {
    backend: Arc<dyn Backend>,
    written: Arc<Mutex<Vec<Path>>>,
}

#[derive(Debug)]
struct Narrowed {
    store: Box<dyn Store>,
    info: SessionInfo,
    written: Arc<Mutex<Vec<Path>>>,
}

impl Narrow {
    /// The maximum number of bytes of data in one node.
    pub(super) const DATA: usize = 20_000;

    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, written: Arc::default() }
    }

    /// Returns `true` if a node was written at a path with this prefix.
    pub(super) fn has_written(&self, start: &Path) -> bool {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.iter().any(|path| path.as_str().starts_with(start.as_str()))
    }
}

#[async_trait]
impl Backend for Narrow {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let store = self.backend.open(options).await?;
        let mut info = store.session().clone();
        // The limit of a transaction exceeds that of a node by the same amount as in the store
        // inside.
        info.limits.request -= info.limits.data - Self::DATA;
        info.limits.data = Self::DATA;
        Ok(Box::new(Narrowed { store, info, written: self.written.clone() }))
    }
}

#[async_trait]
impl Store for Narrowed {
    fn session(&self) -> &SessionInfo {
        &self.info
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.store.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        self.store.read(query).await
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        self.store.watch(query).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        txn.validate(&self.info.limits)?;
        let writes = txn.ops.iter().filter(|op| op.is_write());
        let written: Vec<_> = writes.map(Op::path).cloned().collect();
        let outcome = self.store.commit(txn).await?;
        if matches!(outcome, Outcome::Committed(_)) {
            self.written.lock().unwrap_or_else(PoisonError::into_inner).extend(written);
        }
        Ok(outcome)
    }

    async fn close(&self) -> Result<()> {
        self.store.close().await
    }
}
