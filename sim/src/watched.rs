//! [`Watched`]: a backend that lets the simulation know what its sessions say of themselves.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use synod_core::error::Result;
use synod_core::store::{Backend, SessionId, SessionOptions, Status, Store};
use tokio::sync::watch;

/// What the sessions of a simulation say of themselves. Clones are the same list.
#[derive(Clone, Default)]
pub(crate) struct Sessions(Arc<Mutex<BTreeMap<SessionId, watch::Receiver<Status>>>>);

impl Sessions {
    /// What a session says of itself now.
    pub(crate) fn status(&self, session: SessionId) -> Option<Status> {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(&session).map(|status| *status.borrow())
    }
}

/// A backend whose sessions are in a list.
pub(crate) struct Watched {
    pub(crate) inner: Arc<dyn Backend>,
    pub(crate) sessions: Sessions,
}

#[async_trait::async_trait]
impl Backend for Watched {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let store = self.inner.open(options).await?;
        let mut sessions = self.sessions.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(store.session().id, store.status());
        drop(sessions);
        Ok(store)
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}
