//! [`Departure`]: the request that a session is left to another client, and the credentials with
//! which that client continues it.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The credentials of a session.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) id: i64,
    pub(crate) password: Vec<u8>,
    /// The last change that an answer has shown. A server that is behind does not continue the
    /// session.
    pub(crate) newest: i64,
}

/// The credentials of a session, shared by its client and its task; and whether the task is to
/// leave the session without ending it.
#[derive(Clone, Default)]
pub(super) struct Departure(Arc<Shared>);

#[derive(Default)]
struct Shared {
    owner: Mutex<(i64, Vec<u8>)>,
    newest: AtomicI64,
    requested: watch::Sender<bool>,
}

impl Departure {
    pub(super) fn set_owner(&self, id: i64, password: &[u8]) {
        *self.owner() = (id, password.to_vec());
    }

    pub(super) fn saw(&self, newest: i64) {
        self.0.newest.fetch_max(newest, Ordering::Relaxed);
    }

    /// Requests the departure. The task then sends nothing more.
    pub(super) fn request(&self) -> Credentials {
        self.0.requested.send_replace(true);
        let (id, password) = self.owner().clone();
        Credentials { id, password, newest: self.0.newest.load(Ordering::Relaxed) }
    }

    /// Waits for the request.
    pub(super) async fn requested(&self) {
        // The sender lives as long as this.
        let _requested =
            self.0.requested.subscribe().wait_for(|requested| *requested).await.is_ok();
    }

    fn owner(&self) -> MutexGuard<'_, (i64, Vec<u8>)> {
        self.0.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Departure").field(&*self.0.requested.borrow()).finish()
    }
}
