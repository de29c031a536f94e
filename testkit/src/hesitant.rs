//! A store that pauses before and after every call: [`Hesitant`].
//!
//! On a store that answers without a pause a call has no point at which it can be dropped. On a
//! hesitant store it has two: before the call is applied, and after it. Code that consists of such
//! calls can then be stopped between any two of them: see [`cancel`](mod@crate::cancel).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use synod_core::clock;
use synod_core::error::Result;
use synod_core::store::{
    Backend, Outcome, Query, SessionInfo, SessionOptions, Status, Store, Txn, View, Watch,
};
use tokio::sync::watch;

/// A session that pauses before and after every call.
#[derive(Debug)]
pub struct Hesitant {
    store: Arc<dyn Store>,
    pause: Pause,
}

/// A backend that opens sessions that pause before and after every call, and pauses itself.
#[derive(Debug)]
pub struct HesitantBackend<B> {
    backend: B,
    pause: Pause,
}

#[derive(Clone, Copy, Debug)]
enum Pause {
    /// A pause until all other tasks have run.
    Turn,
    /// A pause of this duration.
    Time(Duration),
}

impl Hesitant {
    /// Creates a store that yields to other tasks around every call on `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, pause: Pause::Turn }
    }

    /// Sets the duration of each pause.
    pub fn pausing(mut self, pause: Duration) -> Self {
        self.pause = Pause::Time(pause);
        self
    }
}

impl<B: Backend> HesitantBackend<B> {
    /// Creates a backend whose sessions yield to other tasks around every call.
    pub fn new(backend: B) -> Self {
        Self { backend, pause: Pause::Turn }
    }

    /// Sets the duration of each pause.
    pub fn pausing(mut self, pause: Duration) -> Self {
        self.pause = Pause::Time(pause);
        self
    }
}

impl Pause {
    async fn around<T>(self, call: impl Future<Output = T>) -> T {
        self.pass().await;
        let answer = call.await;
        self.pass().await;
        answer
    }

    async fn pass(self) {
        match self {
            Self::Turn => tokio::task::yield_now().await,
            Self::Time(pause) => clock::sleep(pause).await,
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for HesitantBackend<B> {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let store = self.pause.around(self.backend.open(options)).await?;
        Ok(Box::new(Hesitant { store: Arc::from(store), pause: self.pause }))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Hesitant {
    fn session(&self) -> &SessionInfo {
        self.store.session()
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.store.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        self.pause.around(self.store.read(query)).await
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        self.pause.around(self.store.watch(query)).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        self.pause.around(self.store.commit(txn)).await
    }

    async fn close(&self) -> Result<()> {
        self.pause.around(self.store.close()).await
    }
}

#[cfg(test)]
mod tests {
    use synod_core::clock;

    use super::*;
    use crate::cancel::stop_at;
    use crate::fake::{Fake, FakeBackend, path};
    use synod_core::store::Expect;

    fn txn() -> Txn {
        Txn::new().delete(path("/a"), Expect::Any)
    }

    #[tokio::test]
    async fn a_call_can_be_dropped_before_and_after_it_happened() {
        let fake = Fake::new();
        let store = Hesitant::new(fake.clone());

        assert!(stop_at(1, store.commit(txn())).await.is_none());
        assert_eq!(fake.calls().txns.len(), 0);
        assert!(stop_at(2, store.commit(txn())).await.is_none());
        assert_eq!(fake.calls().txns.len(), 1);
        assert!(stop_at(3, store.commit(txn())).await.is_some());
        assert_eq!(fake.calls().txns.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn every_call_pauses_twice() {
        let pause = Duration::from_secs(1);
        let start = clock::now();
        let backend = HesitantBackend::new(FakeBackend).pausing(pause);

        let store = backend.open(&SessionOptions::default()).await.expect("opened");
        store.read(Query::node(path("/a"))).await.expect("answered");
        let (_view, _watch) = store.watch(Query::node(path("/a"))).await.expect("answered");
        let _done = store.commit(txn()).await.expect("answered");
        store.close().await.expect("closed");

        assert_eq!(clock::elapsed(start), pause * 10);
        assert!(store.status().borrow().is_lost());
        assert_eq!(store.session().id.get(), 1);
    }
}
