//! [`WrongStore`]: one session, with one mistake.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{
    Commit, Outcome, Query, SessionEnd, SessionInfo, Status, Store, Txn, View, Watch,
};
use synod_core::task::Task;

use crate::wrong::life::Life;
use crate::wrong::mistake::Mistake;
use crate::wrong::node_view::NodeView;
use crate::wrong::outage;
use crate::wrong::past::Past;
use crate::wrong::shared::Shared;
use crate::wrong::watch_state::WatchState;

/// A session on a wrong store.
///
/// Each kind of mistakes has its own file, and makes its calls with `honest_read`, `honest_commit`
/// and `honest_observe`, which call the store inside. `calls.rs` decides which kind handles a call.
pub(super) struct WrongStore {
    pub(super) shared: Arc<Shared>,
    pub(super) inner: Arc<dyn Store>,
    pub(super) info: SessionInfo,
    pub(super) node_view: NodeView,
    pub(super) past: Arc<Past>,
    pub(super) watch_state: Arc<WatchState>,
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
        let node_view = NodeView { mistake: shared.mistake, behind };
        let life = Arc::new(Life::new(shared.mistake, &inner));
        let tasks = Mutex::new(life.tasks(&inner));
        Self {
            shared,
            inner,
            info,
            node_view,
            past: Arc::default(),
            watch_state: Arc::default(),
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
            Err(error) if self.answers_for_the_dead(&error) => {
                self.shared.hidden().await?.read(query).await
            }
            answer => answer,
        }
    }

    pub(super) async fn honest_observe(&self, query: Query) -> Result<(View, Watch)> {
        match self.inner.watch(query.clone()).await {
            Err(error) if self.answers_for_the_dead(&error) => {
                self.shared.hidden().await?.watch(query).await
            }
            answer => answer,
        }
    }

    pub(super) async fn honest_commit(&self, txn: Txn) -> Result<Outcome> {
        let outcome = outage::commit(&self.shared, &self.inner, txn).await;
        if let Ok(Outcome::Committed(Commit { revision: Some(revision), .. })) = &outcome {
            self.shared.books().commits.insert(*revision);
            self.watch_state.wrote(*revision);
        }
        outcome
    }

    /// Returns `true` if a call with this error is answered nevertheless.
    fn answers_for_the_dead(&self, error: &Error) -> bool {
        let lost = match self.mistake() {
            Some(Mistake::ExpiredSessionAnswers) => SessionEnd::Expired,
            Some(Mistake::ClosedSessionAnswers) => SessionEnd::Closed,
            _ => return false,
        };
        error.kind() == ErrorKind::SessionLost
            && *self.inner.status().borrow() == Status::Lost { reason: lost }
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
