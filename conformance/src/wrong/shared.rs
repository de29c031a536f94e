//! [`Shared`]: the state that the sessions of one wrong store share.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{
    Backend, Feature, Feed, Revision, Sequence, SessionId, SessionInfo, SessionOptions, Store,
};
use synod_core::task::Task;
use tokio::sync::OnceCell;

use crate::wrong::mistake::Mistake;
use crate::wrong::owned_nodes::OwnedNodes;

/// The state that the sessions of one wrong store share.
pub(super) struct Shared {
    pub(super) mistake: Option<Mistake>,
    inner: Arc<dyn Backend>,
    /// A session for hidden changes, unknown to the client.
    hidden: OnceCell<Arc<dyn Store>>,
    pub(super) opened: AtomicU64,
    books: Mutex<Books>,
    pub(super) drawing: tokio::sync::Mutex<()>,
}

/// The state of a wrong store.
#[derive(Default)]
pub(super) struct Books {
    first_session: Option<SessionId>,
    /// Containers that were created and are still recorded.
    pub(super) containers: BTreeSet<Path>,
    /// Tickets that the store does not know as sequential.
    pub(super) tickets: BTreeMap<Path, Sequence>,
    pub(super) counters: BTreeMap<Path, u64>,
    /// The sessions and directories in which the ticket of the session was the only child when it
    /// was listed.
    pub(super) alone: BTreeSet<(SessionId, Path)>,
    /// Nodes that were created with a TTL.
    pub(super) mortal: BTreeSet<Path>,
    /// The revisions of all requested commits.
    pub(super) commits: BTreeSet<Revision>,
    /// The revisions during the closing of each session.
    pub(super) closings: Vec<RangeInclusive<Revision>>,
    /// The open watches, each with the number of its pending events.
    pub(super) feeds: Vec<(Feed, Arc<AtomicUsize>)>,
    pub(super) estates: Vec<OwnedNodes>,
    pub(super) tasks: Vec<Task>,
    pub(super) stores: Vec<Arc<dyn Store>>,
}

impl Shared {
    pub(super) fn new(inner: Arc<dyn Backend>, mistake: Option<Mistake>) -> Self {
        Self {
            mistake,
            inner,
            hidden: OnceCell::new(),
            opened: AtomicU64::new(0),
            books: Mutex::default(),
            drawing: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn hidden(&self) -> Result<Arc<dyn Store>> {
        let open = async {
            let options = SessionOptions::default();
            Ok(Arc::from(self.inner.open(&options).await?))
        };
        self.hidden.get_or_try_init(|| open).await.cloned()
    }

    /// The description of a session.
    pub(super) fn info(&self, asked: Duration, true_info: &SessionInfo) -> SessionInfo {
        let mut info = true_info.clone();
        let first = *self.books().first_session.get_or_insert(info.id);
        match self.mistake {
            Some(Mistake::TtlNotClamped) => info.ttl = asked,
            Some(Mistake::SessionIdReused) => info.id = first,
            Some(Mistake::TtlIgnored) => info.limits.missing_features.push(Feature::TtlNodes),
            _ => {}
        }
        info
    }
}

/// Lets other tasks run.
pub(super) async fn pause() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
