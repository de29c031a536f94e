//! Known-wrong stores, for testing the cases.
//!
//! A law that was never seen broken proves little. [`Wrong`] wraps any correct backend and makes
//! exactly one [`Mistake`], from outside: no backend contains wrong code on purpose. Each case
//! names the mistakes that it catches, and the tests of a backend show that it does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{
    Backend, Feed, Gap, Revision, Sequence, SessionId, SessionInfo, SessionOptions, Store,
};
use synod_core::task::Task;
use tokio::sync::OnceCell;

mod estate;
mod events;
mod lens;
mod life;
mod listing;
mod mistake;
mod outage;
mod reading;
mod sequence;
mod session;
mod store;
mod transaction;
mod tree;
mod validation;
mod watching;
mod writing;

pub use mistake::Mistake;
use store::WrongStore;

/// A backend that makes one mistake. Clones are the same store.
#[derive(Clone)]
pub struct Wrong {
    inner: Arc<dyn Backend>,
    shared: Arc<Shared>,
}

/// The state that the sessions of one wrong store share.
pub(crate) struct Shared {
    mistake: Option<Mistake>,
    inner: Arc<dyn Backend>,
    /// A session that the client does not know, for hidden changes.
    hidden: OnceCell<Arc<dyn Store>>,
    opened: AtomicU64,
    books: Mutex<Books>,
    drawing: tokio::sync::Mutex<()>,
}

/// The state of a wrong store.
#[derive(Default)]
pub(crate) struct Books {
    first_session: Option<SessionId>,
    /// Containers that were made and are not forgotten.
    containers: BTreeSet<Path>,
    /// Tickets that the store does not know as sequential.
    tickets: BTreeMap<Path, Sequence>,
    counters: BTreeMap<Path, u64>,
    /// Where a session's ticket was the only child when it was listed.
    alone: BTreeSet<(SessionId, Path)>,
    /// Nodes that were made with a time to live.
    mortal: BTreeSet<Path>,
    /// The revisions of all requested commits.
    commits: BTreeSet<Revision>,
    /// The revisions during the closing of each session.
    closings: Vec<RangeInclusive<Revision>>,
    /// The open watches, each with the number of its pending events.
    feeds: Vec<(Feed, Arc<AtomicUsize>)>,
    estates: Vec<estate::Estate>,
    tasks: Vec<Task>,
    stores: Vec<Arc<dyn Store>>,
}

impl Wrong {
    /// Wraps `inner` and makes `mistake`.
    pub fn new(inner: Arc<dyn Backend>, mistake: Mistake) -> Self {
        Self::around(inner, Some(mistake))
    }

    /// Wraps `inner` and makes no mistake: a case must have the same verdict as for `inner`.
    pub fn transparent(inner: Arc<dyn Backend>) -> Self {
        Self::around(inner, None)
    }

    /// The same store over another connection.
    pub fn by_way_of(&self, inner: Arc<dyn Backend>) -> Self {
        Self { inner, shared: self.shared.clone() }
    }

    fn around(inner: Arc<dyn Backend>, mistake: Option<Mistake>) -> Self {
        let shared = Shared {
            mistake,
            inner: inner.clone(),
            hidden: OnceCell::new(),
            opened: AtomicU64::new(0),
            books: Mutex::default(),
            drawing: tokio::sync::Mutex::default(),
        };
        Self { inner, shared: Arc::new(shared) }
    }
}

impl Shared {
    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn hidden(&self) -> Result<Arc<dyn Store>> {
        let open = async {
            let options = SessionOptions::default();
            Ok(Arc::from(self.inner.open(&options).await?))
        };
        self.hidden.get_or_try_init(|| open).await.cloned()
    }

    /// The description of a session.
    fn info(&self, asked: Duration, true_info: &SessionInfo) -> SessionInfo {
        let mut info = true_info.clone();
        let first = *self.books().first_session.get_or_insert(info.id);
        match self.mistake {
            Some(Mistake::TtlNotClamped) => info.ttl = asked,
            Some(Mistake::SessionIdReused) => info.id = first,
            Some(Mistake::TtlIgnored) => info.limits.gaps.push(Gap::TtlNodes),
            _ => {}
        }
        info
    }
}

#[async_trait]
impl Backend for Wrong {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let mut options = options.clone();
        if options.ttl.is_zero() && self.shared.makes(Mistake::TtlZeroAccepted) {
            options = SessionOptions::default();
        }
        let inner: Arc<dyn Store> = Arc::from(self.inner.open(&options).await?);
        let info = self.shared.info(options.ttl, inner.session());
        estate::begin(&self.shared, &inner).await?;
        Ok(Box::new(WrongStore::start(self.shared.clone(), inner, info)))
    }
}

impl fmt::Debug for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrong")
            .field("inner", &self.inner)
            .field("mistake", &self.shared.mistake)
            .finish()
    }
}

/// Lets other tasks run.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
