//! The calls of a [`WrongStore`]: exactly one kind of mistake handles each.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use futures_util::FutureExt;
use synod_core::error::Result;
use synod_core::store::{
    Commit, Outcome, Query, SessionEnd, SessionInfo, Status, Store, Txn, View, Watch,
};
use tokio::sync::watch;

use crate::wrong::mistake::Mistake;
use crate::wrong::store::WrongStore;
use crate::wrong::{
    expiry, listing, outage, reading, sequence, session, transaction, tree, validation, watching,
    writing,
};

/// Reads through the kind of mistake that the store makes.
async fn read(store: &WrongStore, query: &Query) -> Result<View> {
    if let Some(view) = sequence::read(store, query).await? {
        return Ok(view);
    }
    if let Some(view) = reading::read(store, query).await? {
        return Ok(view);
    }
    listing::read(store, query).await
}

/// Commits with the mistake of the store. A mistake of another kind returns the transaction,
/// perhaps changed.
async fn commit(store: &WrongStore, txn: Txn) -> Result<Outcome> {
    let txn = match writing::commit(store, txn).await? {
        ControlFlow::Continue(txn) => txn,
        ControlFlow::Break(outcome) => return Ok(outcome),
    };
    let txn = match transaction::commit(store, txn).await? {
        ControlFlow::Continue(txn) => txn,
        ControlFlow::Break(outcome) => return Ok(outcome),
    };
    let txn = match tree::commit(store, txn).await? {
        ControlFlow::Continue(txn) => txn,
        ControlFlow::Break(outcome) => return Ok(outcome),
    };
    match sequence::commit(store, txn).await? {
        ControlFlow::Continue(txn) => session::commit(store, txn).await,
        ControlFlow::Break(outcome) => Ok(outcome),
    }
}

#[async_trait]
impl Store for WrongStore {
    fn session(&self) -> &SessionInfo {
        &self.info
    }

    fn status(&self) -> watch::Receiver<Status> {
        if !self.life.is_mistaken() {
            // A copy lags until its task runs, but the certainty may end immediately.
            return self.inner.status();
        }
        self.life.refresh(&self.inner);
        self.life.subscribe()
    }

    async fn read(&self, query: Query) -> Result<View> {
        let query = validation::query(self, query)?;
        expiry::settle(&self.shared).await;
        let reading = Box::pin(read(self, &query));
        let mut view =
            session::call(self, outage::wait(&self.shared, &self.inner, reading)).await?;
        self.node_view.view(&mut view);
        Ok(view)
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        let query = validation::observed(self, query)?;
        let observing = Box::pin(watching::watch(self, &query));
        session::call(self, outage::wait(&self.shared, &self.inner, observing)).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        let txn = validation::txn(self, txn).await?;
        expiry::settle(&self.shared).await;
        if txn.ops.is_empty() {
            // No operation remains.
            return Ok(Outcome::Committed(Commit::new(None, Vec::new(), None)));
        }
        let committing = Box::pin(commit(self, txn));
        let outcome =
            session::call(self, outage::wait(&self.shared, &self.inner, committing)).await?;
        Ok(match outcome {
            Outcome::Committed(mut commit) => {
                self.node_view.commit(&mut commit);
                Outcome::Committed(commit)
            }
            Outcome::Rejected(mut rejected) => {
                self.node_view.rejected(&mut rejected);
                Outcome::Rejected(rejected)
            }
        })
    }

    async fn close(&self) -> Result<()> {
        let closed = outage::wait(&self.shared, &self.inner, session::close(self)).await;
        self.life.refresh(&self.inner);
        closed
    }
}

impl Drop for WrongStore {
    fn drop(&mut self) {
        match self.mistake() {
            Some(Mistake::DropEndsSession) => {
                let inner = self.inner.clone();
                let _left_to_itself = async move { inner.close().await }.now_or_never();
            }
            Some(Mistake::DropSilencesWatches) => {
                self.watch_state.dropped.store(true, Ordering::Relaxed);
            }
            Some(Mistake::DropKeepsSessionAlive) => {
                self.shared.books().stores.push(self.inner.clone());
                return;
            }
            _ => {}
        }
        // The store inside reports it when it is dropped, but it is no longer watched by then.
        self.life.hear(Status::Lost { reason: SessionEnd::Closed });
    }
}
