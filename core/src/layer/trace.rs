//! [`Traced`]: a store that logs and counts every call.
//!
//! **Log.** Each call is one event of `tracing` when it ends, at level `DEBUG` if it was answered and `WARN` if
//! it failed, with the fields `verb`, `path` (of a transaction, its first one, with the number of its
//! `operations`), `outcome`, `effect` (only if the write may have happened) and `took`. The changes of a
//! session's status are logged at `INFO`, and its loss at `WARN`. Data is never logged, nor is the text of an
//! error: the code that handles the error logs it.
//!
//! **Metrics**, with the feature `metrics`, through the facade of that name:
//!
//! | metric | kind | labels | what |
//! |---|---|---|---|
//! | `synod_calls_total` | counter | `verb`, `outcome` | calls that ended |
//! | `synod_call_duration_seconds` | histogram | `verb`, `outcome` | how long they took |
//! | `synod_watch_events_total` | counter | `kind` | changes that were taken from watches |
//! | `synod_watch_resyncs_total` | counter | | times that a watch may have missed something |
//! | `synod_watch_ends_total` | counter | | watches that ended by themselves |
//! | `synod_session_losses_total` | counter | `why` | sessions that ended, by closing too |
//!
//! `verb` is `open`, `read`, `watch`, `commit` or `close`. `outcome` is `done`, `rejected`,
//! `dropped` (the caller dropped the call), or what went wrong: `unreachable`, `session_lost`,
//! `denied`, `invalid`, `too_large`, `unsupported`, `corrupt`, `refused`, `backend`. `kind` is
//! `created`, `updated`, `deleted` or `children`; `why` is `expired`, `closed` or `denied`.
//!
//! Each call of a [`Backend`] or a [`Store`] is counted once, so each
//! retry of a session is a call.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::error::Result;
use crate::layer::call::Call;
use crate::layer::meter;
use crate::path::Path;
use crate::store::{
    Backend, Event, Op, Outcome, Query, SessionEnd, SessionId, SessionInfo, SessionOptions, Status,
    Store, Txn, View, Watch,
};
use crate::task::{self, Task};

/// A session whose calls are logged and counted: see the [module](self).
#[derive(Debug)]
pub struct Traced {
    store: Arc<dyn Store>,
    _follower: Task,
}

/// Opens sessions whose calls are logged and counted.
#[derive(Debug)]
pub struct TracedBackend<B> {
    backend: B,
}

impl Traced {
    /// Logs and counts the calls on `store`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime: a task follows what the session goes through.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let follower = Follower { session: store.session().id, status: store.status() };
        Self { store, _follower: task::spawn(follow(follower)) }
    }
}

impl<B: Backend> TracedBackend<B> {
    /// Logs and counts the calls on every session of `backend`.
    pub fn new(backend: B) -> Self {
        Self { backend }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for TracedBackend<B> {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let call = Call::start("open", None, 0);
        let store = call.end(self.backend.open(options).await)?;
        Ok(Box::new(Traced::new(Arc::from(store))))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Traced {
    fn session(&self) -> &SessionInfo {
        self.store.session()
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.store.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        let call = Call::start("read", Some(&query.path), 0);
        call.end(self.store.read(query).await)
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        let call = Call::start("watch", Some(&query.path), 0);
        let path = query.path.clone();
        let (view, watch) = call.end(self.store.watch(query).await)?;
        Ok((view, watch.map(move |event| Some(count(&path, event)))))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        let call = Call::start("commit", txn.ops.first().map(Op::path), txn.ops.len());
        call.end_commit(self.store.commit(txn).await)
    }

    async fn close(&self) -> Result<()> {
        let call = Call::start("close", None, 0);
        call.end(self.store.close().await)
    }
}

fn count(observed: &Path, event: Event) -> Event {
    match &event {
        Event::Changed(change) => {
            meter::changed(change.kind);
            tracing::trace!(path = %change.path, kind = ?change.kind, "changed");
        }
        Event::Resync => {
            meter::resynced();
            tracing::debug!(path = %observed, "the watch may have missed something");
        }
        Event::Ended(_) => {
            meter::ended();
            tracing::debug!(path = %observed, "the watch ended");
        }
    }
    event
}

/// Follows a session to its loss, which it logs and counts when it is dropped: also if a store is dropped right
/// after its end.
struct Follower {
    session: SessionId,
    status: watch::Receiver<Status>,
}

/// Logs the changes of a session's status, until it is lost.
async fn follow(mut follower: Follower) {
    let Follower { session, ref mut status } = follower;
    let mut before = *status.borrow_and_update();
    while !before.is_lost() && status.changed().await.is_ok() {
        let now = *status.borrow_and_update();
        match (before, now) {
            (Status::Live { .. }, Status::Suspended { .. }) => {
                tracing::info!(%session, "the store does not answer");
            }
            (Status::Suspended { .. }, Status::Live { .. }) => {
                tracing::info!(%session, "the store answers again");
            }
            _ => {}
        }
        before = now;
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let session = self.session;
        let Status::Lost { reason } = *self.status.borrow() else { return };
        meter::session_lost(reason);
        match reason {
            SessionEnd::Closed => tracing::info!(%session, "the session was closed"),
            SessionEnd::Expired | SessionEnd::Denied => {
                tracing::warn!(%session, %reason, "the session is lost")
            }
        }
    }
}

#[cfg(test)]
mod tests;
