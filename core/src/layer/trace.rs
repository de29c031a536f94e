//! A store that logs and counts every call: [`Traced`].
//!
//! **Log.** Each call is one event of `tracing` when it ends, at level `DEBUG` if it was answered
//! or the store was unreachable, and `WARN` if it failed otherwise, with the fields `verb`, `path`
//! (of a transaction, its first one, with the number of its `operations`), `outcome`, `effect`
//! (only if the write may have been applied) and `took`. The changes of a session's status are
//! logged at `INFO`, and its loss at `WARN`, with the server that answered last and the number of
//! calls that failed in the outage: so an outage logs two lines per session, independent of the
//! number of callers. Neither data nor the text of an error is logged: the code that handles the
//! error logs it.
//!
//! **Metrics**, with the feature `metrics`, through the facade of that name:
//!
//! | metric | kind | labels | value |
//! |---|---|---|---|
//! | `synod_calls_total` | counter | `verb`, `outcome` | ended calls |
//! | `synod_call_duration_seconds` | histogram | `verb`, `outcome` | duration of the calls |
//! | `synod_watch_events_total` | counter | `kind` | changes taken from watches |
//! | `synod_watch_resyncs_total` | counter | | times at which a watch may have missed events |
//! | `synod_watch_ends_total` | counter | | watches that ended by themselves |
//! | `synod_sessions` | gauge | `server` | open sessions, by the server that answered last |
//! | `synod_session_losses_total` | counter | `why` | ended sessions, including closed ones |
//!
//! `verb` is `open`, `read`, `watch`, `commit` or `close`. `outcome` is `done`, `rejected`,
//! `dropped` (the caller dropped the call), or the kind of the error: `unreachable`,
//! `session_lost`, `denied`, `invalid`, `too_large`, `unsupported`, `corrupt`, `refused`,
//! `backend`. `kind` is `created`, `updated`, `deleted` or `children`; `why` is `expired`,
//! `closed`, `denied` or `handed_over`.
//!
//! Each call of a [`Backend`] or a [`Store`] is counted once, so each retry of a session is a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::error::Result;
use crate::layer::call::Call;
use crate::layer::meter;
use crate::path::Path;
use crate::store::{
    Backend, Event, Op, Outcome, Query, SessionEnd, SessionInfo, SessionOptions, Status, Store,
    Txn, View, Watch,
};
use crate::task::{self, Task};

/// A session whose calls are logged and counted: see the [module](self).
#[derive(Debug)]
pub struct Traced {
    store: Arc<dyn Store>,
    outage: Arc<Outage>,
    _status_task: Task,
}

/// The number of calls that failed in the current outage of a session.
#[derive(Debug, Default)]
struct Outage(AtomicU64);

/// A backend whose sessions log and count their calls.
#[derive(Debug)]
pub struct TracedBackend<B> {
    backend: B,
}

impl Traced {
    /// Creates a store that logs and counts the calls on `store`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime: a task is spawned to follow the status of the session.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let outage = Arc::<Outage>::default();
        let (info, status) = (store.session().clone(), store.status());
        let (outage_log, counted) = (outage.clone(), CountedServer::default());
        let log = StatusLog { info, status, outage: outage_log, counted };
        Self { store, outage, _status_task: task::spawn(log_status(log)) }
    }
}

impl Outage {
    /// Counts a call that failed because the store was unreachable.
    fn count<T>(&self, result: Result<T>) -> Result<T> {
        if result.as_ref().is_err_and(|error| error.kind().is_outage()) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Returns the number of failed calls, and resets it to zero.
    fn end(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl<B: Backend> TracedBackend<B> {
    /// Creates a backend that logs and counts the calls on every session of `backend`.
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
        self.outage.count(call.end(self.store.read(query).await))
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        let call = Call::start("watch", Some(&query.path), 0);
        let path = query.path.clone();
        let (view, watch) = self.outage.count(call.end(self.store.watch(query).await))?;
        Ok((view, watch.map(move |event| Some(count(&path, event)))))
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        let call = Call::start("commit", txn.ops.first().map(Op::path), txn.ops.len());
        self.outage.count(call.end_commit(self.store.commit(txn).await))
    }

    async fn close(&self) -> Result<()> {
        let call = Call::start("close", None, 0);
        self.outage.count(call.end(self.store.close().await))
    }
}

fn count(observed: &Path, event: Event) -> Event {
    match &event {
        Event::Changed(change) => {
            meter::record_change(change.kind);
            tracing::trace!(path = %change.path, kind = ?change.kind, "changed");
        }
        Event::Resync => {
            meter::record_resync();
            tracing::debug!(path = %observed, "the watch may have missed events");
        }
        Event::Ended(_) => {
            meter::record_end();
            tracing::debug!(path = %observed, "the watch ended");
        }
    }
    event
}

/// The status of a session. The loss is logged and counted when this value is dropped, even if the
/// store is dropped right after the loss.
struct StatusLog {
    info: SessionInfo,
    status: watch::Receiver<Status>,
    outage: Arc<Outage>,
    counted: CountedServer,
}

/// The server for which a session is counted, until this value is dropped.
#[derive(Debug, Default)]
struct CountedServer(Option<String>);

impl CountedServer {
    /// Counts the session for the server that answered last.
    fn set(&mut self, server: Option<String>) {
        if self.0 == server {
            return;
        }
        if let Some(server) = &server {
            meter::add_sessions(server, 1.0);
        }
        if let Some(before) = std::mem::replace(&mut self.0, server) {
            meter::add_sessions(&before, -1.0);
        }
    }
}

impl Drop for CountedServer {
    fn drop(&mut self) {
        self.set(None);
    }
}

/// Logs the changes of a session's status, until the session is lost.
async fn log_status(mut log: StatusLog) {
    let StatusLog { ref info, ref mut status, ref outage, ref mut counted } = log;
    let mut before = *status.borrow_and_update();
    counted.set(info.server.get());
    while !before.is_lost() && status.changed().await.is_ok() {
        let now = *status.borrow_and_update();
        let (session, server) = (info.id, info.server.get());
        counted.set(server.clone());
        let server = server.as_deref();
        match (before, now) {
            (Status::Live { .. }, Status::Suspended { .. }) => {
                tracing::info!(%session, server, "the store does not answer");
            }
            (Status::Suspended { .. }, Status::Live { .. }) => {
                tracing::info!(%session, server, failed_calls = outage.end(), "the store answers again");
            }
            _ => {}
        }
        before = now;
    }
}

impl Drop for StatusLog {
    fn drop(&mut self) {
        let (session, server) = (self.info.id, self.info.server.get());
        let server = server.as_deref();
        let Status::Lost { reason } = *self.status.borrow() else { return };
        meter::record_session_loss(reason);
        match reason {
            SessionEnd::Closed | SessionEnd::HandedOver => tracing::info!(%session, "{reason}"),
            SessionEnd::Expired | SessionEnd::Denied => {
                let failed_calls = self.outage.end();
                tracing::warn!(%session, server, %reason, failed_calls, "the session is lost");
            }
        }
    }
}

#[cfg(test)]
#[cfg(feature = "metrics")]
mod sessions_tests;
#[cfg(test)]
mod tests;
