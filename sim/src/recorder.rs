//! [`Recorder`]: a backend that records the status of its sessions, and the answers and events that
//! they receive.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cluster::Cluster;
use synod_core::error::Result;
use synod_core::store::{
    Backend, Event, Kind, Outcome, Query, Rejected, Revision, SessionId, SessionInfo,
    SessionOptions, Status, Store, Txn, View, Watch,
};
use tokio::sync::watch;

use crate::findings::{Findings, Gone};
use crate::observations::{Broken, Known, Observations};

/// The status of each session of a simulation. Clones share the list.
#[derive(Clone, Default)]
pub(crate) struct Sessions(Arc<Mutex<BTreeMap<SessionId, watch::Receiver<Status>>>>);

impl Sessions {
    /// The current status of a session.
    pub(crate) fn status(&self, session: SessionId) -> Option<Status> {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(&session).map(|status| *status.borrow())
    }
}

/// Number of readers in live sessions that were notified of each deletion. Clones share the
/// counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Woken(Arc<Mutex<BTreeMap<Gone, u32>>>);

impl Woken {
    pub(crate) fn take(&self) -> BTreeMap<Gone, u32> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, gone: Gone) {
        let mut woken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *woken.entry(gone).or_default() += 1;
    }
}

/// Records the observations of one process.
#[derive(Clone)]
pub(crate) struct Watcher {
    pub(crate) sessions: Sessions,
    pub(crate) woken: Woken,
    pub(crate) observations: Observations,
    pub(crate) cluster: Cluster,
    pub(crate) findings: Findings,
    /// The process.
    pub(crate) actor: u64,
}

impl Watcher {
    fn judge(&self, verdict: std::result::Result<(), Broken>) {
        if let Err((law, what)) = verdict {
            self.findings.wrong(law, what, self.cluster.age(), self.actor);
        }
    }
}

/// A backend whose sessions are recorded.
pub(crate) struct Recorder {
    pub(crate) inner: Arc<dyn Backend>,
    pub(crate) watcher: Watcher,
}

/// A session that is recorded.
struct WatchedStore {
    inner: Box<dyn Store>,
    watcher: Watcher,
    known: Arc<Mutex<Known>>,
}

#[async_trait::async_trait]
impl Backend for Recorder {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let inner = self.inner.open(options).await?;
        let watcher = self.watcher.clone();
        let mut sessions = watcher.sessions.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(inner.session().id, inner.status());
        drop(sessions);
        Ok(Box::new(WatchedStore { inner, watcher, known: Arc::default() }))
    }
}

impl WatchedStore {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self, query: Query, view: &View) {
        self.watcher.observations.show(query, view, self.watcher.cluster.committed());
        let mut known = self.known();
        known.seen = known.seen.max(view.revision);
    }

    fn wrote(&self, at: Revision) {
        self.watcher.observations.wrote(at);
        let mut known = self.known();
        known.wrote = known.wrote.max(at);
    }
}

#[async_trait::async_trait]
impl Store for WatchedStore {
    fn session(&self) -> &SessionInfo {
        self.inner.session()
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.inner.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        let floor = self.watcher.observations.floor(&query, *self.known());
        let view = self.inner.read(query.clone()).await?;
        self.watcher.judge(floor.check(view.revision));
        self.shown(query, &view);
        Ok(view)
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        let floor = self.watcher.observations.floor(&query, *self.known());
        let (view, watch) = self.inner.watch(query.clone()).await?;
        self.watcher.judge(floor.check(view.revision));
        self.shown(query, &view);
        let (known, watcher) = (self.known.clone(), self.watcher.clone());
        let (session, mut woken) = (self.inner.session().id, false);
        let watch = watch.map(move |event| {
            if let Event::Changed(change) = &event {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                known.seen = known.seen.max(change.revision.unwrap_or_default());
                if change.kind == Kind::Deleted && !woken && watcher.cluster.lives(session) {
                    woken = true;
                    watcher.woken.add((change.path.clone(), change.revision));
                }
            }
            Some(event)
        });
        Ok((view, watch))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        let look = txn.look.clone();
        let outcome = self.inner.commit(txn).await?;
        if let (Outcome::Rejected(Rejected { look: Some(view), .. }), Some(query)) =
            (&outcome, &look)
        {
            self.shown(query.clone(), view);
        }
        if let Outcome::Committed(commit) = &outcome
            && let Some(at) = commit.revision
        {
            self.wrote(at);
            if let (Some(query), Some(view)) = (look, &commit.look) {
                self.watcher.judge(look_of(at, view.revision));
                self.shown(query, view);
            }
        }
        Ok(outcome)
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

/// L-KV-9: the follow-up read of a transaction shows the state after the transaction.
fn look_of(done: Revision, looked: Revision) -> std::result::Result<(), Broken> {
    if looked == done {
        return Ok(());
    }
    Err(("L-KV-9", format!("a transaction of #{done} shows what there was at #{looked}")))
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}

impl fmt::Debug for WatchedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}
