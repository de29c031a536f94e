//! [`WrongStore`]: one session, with one mistake.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::FutureExt;
use synod_core::error::Result;
use synod_core::store::{
    Commit, Loss, Outcome, Query, SessionInfo, Status, Store, Txn, View, Watch,
};
use synod_core::task::Task;
use tokio::sync::watch;

use crate::wrong::lens::Lens;
use crate::wrong::life::Life;
use crate::wrong::reading::Past;
use crate::wrong::watching::Desk;
use crate::wrong::{
    Mistake, Shared, estate, outage, reading, session, validation, watching, writing,
};

/// A session on a wrong store.
///
/// A call passes through the mistakes of one kind after the other, each kind in a file of its own;
/// the active mistake handles the call, the others forward it. At the bottom `honest_read`,
/// `honest_commit` and `honest_observe` call the store inside.
pub(super) struct WrongStore {
    pub(super) shared: Arc<Shared>,
    pub(super) inner: Arc<dyn Store>,
    pub(super) info: SessionInfo,
    pub(super) lens: Lens,
    pub(super) past: Arc<Past>,
    pub(super) desk: Arc<Desk>,
    pub(super) life: Arc<Life>,
    pub(super) ephemerals: AtomicU64,
    pub(super) busy: AtomicBool,
    pub(super) turn: AtomicU64,
    pub(super) closed: AtomicBool,
    _tasks: Mutex<Vec<Task>>,
}

impl WrongStore {
    pub(super) fn start(shared: Arc<Shared>, inner: Arc<dyn Store>, info: SessionInfo) -> Self {
        const SKEW: u64 = 3;
        let behind = shared.opened.fetch_add(1, Ordering::Relaxed) * SKEW;
        let lens = Lens { mistake: shared.mistake, behind };
        let life = Arc::new(Life::new(shared.mistake, &inner));
        let tasks = Mutex::new(life.tasks(&inner));
        Self {
            shared,
            inner,
            info,
            lens,
            past: Arc::default(),
            desk: Arc::default(),
            life,
            ephemerals: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            turn: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            _tasks: tasks,
        }
    }

    pub(super) fn mistake(&self) -> Option<Mistake> {
        self.shared.mistake
    }

    pub(super) fn makes(&self, mistake: Mistake) -> bool {
        self.shared.makes(mistake)
    }

    /// Calls the store inside, or its stand-in.
    pub(super) async fn honest_read(&self, query: Query) -> Result<View> {
        match self.inner.read(query.clone()).await {
            Err(error) if session::answers_for_the_dead(self, &error) => {
                self.shared.hidden().await?.read(query).await
            }
            answer => answer,
        }
    }

    pub(super) async fn honest_observe(&self, query: Query) -> Result<(View, Watch)> {
        match self.inner.observe(query.clone()).await {
            Err(error) if session::answers_for_the_dead(self, &error) => {
                self.shared.hidden().await?.observe(query).await
            }
            answer => answer,
        }
    }

    pub(super) async fn honest_commit(&self, txn: Txn) -> Result<Outcome> {
        let outcome = outage::commit(self, txn).await;
        if let Ok(Outcome::Committed(Commit { revision: Some(revision), .. })) = &outcome {
            self.shared.books().commits.insert(*revision);
            self.desk.wrote(*revision);
        }
        outcome
    }
}

#[async_trait]
impl Store for WrongStore {
    fn session(&self) -> &SessionInfo {
        &self.info
    }

    fn status(&self) -> watch::Receiver<Status> {
        if !self.life.is_mistaken() {
            // A copy lags by a turn of its task, while the certainty may end at once.
            return self.inner.status();
        }
        self.life.refresh(&self.inner);
        self.life.subscribe()
    }

    async fn read(&self, query: Query) -> Result<View> {
        let query = validation::query(self, query)?;
        estate::settle(&self.shared).await;
        let reading = Box::pin(reading::read(self, &query));
        let mut view = session::call(self, outage::wait(self, reading)).await?;
        self.lens.view(&mut view);
        Ok(view)
    }

    async fn observe(&self, query: Query) -> Result<(View, Watch)> {
        let query = validation::query(self, query)?;
        let observing = Box::pin(watching::observe(self, &query));
        session::call(self, outage::wait(self, observing)).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        let txn = validation::txn(self, txn).await?;
        estate::settle(&self.shared).await;
        if txn.ops.is_empty() {
            // Nothing sensible remains of it.
            return Ok(Outcome::Committed(Commit::new(None, Vec::new(), None)));
        }
        let committing = Box::pin(writing::commit(self, txn));
        let outcome = session::call(self, outage::wait(self, committing)).await?;
        Ok(outcome.map(|mut commit| {
            self.lens.commit(&mut commit);
            commit
        }))
    }

    async fn close(&self) -> Result<()> {
        let closed = outage::wait(self, session::close(self)).await;
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
            Some(Mistake::DropSilencesWatches) => self.desk.dropped.store(true, Ordering::Relaxed),
            Some(Mistake::DropKeepsSessionAlive) => {
                self.shared.books().stores.push(self.inner.clone());
                return;
            }
            _ => {}
        }
        // The store inside reports it when it is dropped, and is not followed any more by then.
        self.life.hear(Status::Lost { why: Loss::Closed });
    }
}

impl fmt::Debug for WrongStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrongStore")
            .field("inner", &self.inner)
            .field("mistake", &self.mistake())
            .finish_non_exhaustive()
    }
}
