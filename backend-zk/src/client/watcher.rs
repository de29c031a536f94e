//! [`OneshotWatcher`] and [`PersistentWatcher`]: the receivers of the events of a watch.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::client::event::{SessionState, WatchedEvent};
use crate::client::zk_error::ZkError;

/// The event of a watch for one event. Dropping it removes the watch.
#[derive(Debug)]
pub(crate) struct OneshotWatcher {
    event: oneshot::Receiver<WatchedEvent>,
    registration: Registration,
}

/// The events of a persistent watch. Dropping it removes the watch.
#[derive(Debug)]
pub(crate) struct PersistentWatcher {
    events: mpsc::UnboundedReceiver<WatchedEvent>,
    _registration: Registration,
}

/// A watch that a server has accepted.
#[derive(Debug)]
pub(super) enum Registered {
    Oneshot(OneshotWatcher),
    Persistent(PersistentWatcher),
}

/// Reports to the task of the session that a watcher was dropped.
#[derive(Debug)]
pub(super) struct Registration {
    /// `None` after its last event.
    id: Option<u64>,
    forget: Forget,
}

/// Reports the number of a dropped watcher to the task of the session.
#[derive(Clone)]
pub(super) struct Forget(Arc<dyn Fn(u64) + Send + Sync>);

impl Forget {
    pub(super) fn new(forget: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self(Arc::new(forget))
    }
}

impl fmt::Debug for Forget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forget").finish_non_exhaustive()
    }
}

const NO_WATCH: ZkError = ZkError::Malformed("an answer without the watch that was asked for");

impl OneshotWatcher {
    pub(super) fn registered(
        event: oneshot::Receiver<WatchedEvent>,
        registration: Registration,
    ) -> Registered {
        Registered::Oneshot(Self { event, registration })
    }

    pub(super) fn of(watch: Option<Registered>) -> Result<Self, ZkError> {
        match watch {
            Some(Registered::Oneshot(watcher)) => Ok(watcher),
            _ => Err(NO_WATCH),
        }
    }

    /// Waits for the event, or for the end of the session.
    pub(crate) async fn changed(mut self) -> WatchedEvent {
        let event = (&mut self.event).await;
        self.registration.id = None;
        event.unwrap_or_else(|_no_task| WatchedEvent::of_session(SessionState::Closed))
    }
}

impl PersistentWatcher {
    pub(super) fn registered(
        events: mpsc::UnboundedReceiver<WatchedEvent>,
        registration: Registration,
    ) -> Registered {
        Registered::Persistent(Self { events, _registration: registration })
    }

    pub(super) fn of(watch: Option<Registered>) -> Result<Self, ZkError> {
        match watch {
            Some(Registered::Persistent(watcher)) => Ok(watcher),
            _ => Err(NO_WATCH),
        }
    }

    /// The next event of a node or of the session, including the loss of the connection and the
    /// next connection.
    pub(crate) async fn changed(&mut self) -> WatchedEvent {
        let event = self.events.recv().await;
        event.unwrap_or_else(|| WatchedEvent::of_session(SessionState::Closed))
    }
}

impl Registration {
    pub(super) fn new(id: u64, forget: Forget) -> Self {
        Self { id: Some(id), forget }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            (self.forget.0)(id);
        }
    }
}
