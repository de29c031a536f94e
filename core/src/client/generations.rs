//! The current session of a client, and its state: [`Generations`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::error::{Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::path::Path;
use crate::session::Session;
use crate::session::session_state::StatusKind;

/// The state of a client's connection to its store.
///
/// The loss of a session is always reported as `Lost` before the next session is reported as
/// `Reconnected`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// There was no session yet: the client was opened with
    /// [`ClientOptions::lazy`](crate::client::ClientOptions::lazy), and the first session is being
    /// opened.
    Connecting,
    /// The first session is live, and has been answered without interruption.
    Connected,
    /// The store currently does not answer. The session may still live: see
    /// [`Session::is_certain`].
    Suspended,
    /// The store answers again: in the same session, or in the next one if `Lost` came in between.
    Reconnected,
    /// The session and everything that depends on it have ended. The client opens the next session.
    Lost,
    /// There is no session, and the store does not accept the credentials for the next one. The
    /// client continues to try, according to the retry policy: a rejection may come from a single
    /// server, or from credentials that are being changed.
    Denied,
    /// The client was closed, or stopped opening sessions. Final.
    Closed,
}

impl ConnectionState {
    /// Returns the state that follows this one when a session reports its status; `None` if it
    /// stays the same. Pure.
    pub(super) fn then(self, session: StatusKind) -> Option<Self> {
        match (self, session) {
            (Self::Closed, _) | (Self::Connected | Self::Reconnected, StatusKind::Live) => None,
            (Self::Connecting, StatusKind::Live) => Some(Self::Connected),
            (_, StatusKind::Live) => Some(Self::Reconnected),
            (_, StatusKind::Suspended) => Some(Self::Suspended),
            (_, StatusKind::Lost) => Some(Self::Lost),
        }
        .filter(|next| *next != self)
    }
}

/// The current session of a client. Shared by its clones, its task and its watches.
#[derive(Debug)]
pub(super) struct Generations {
    current: Mutex<Current>,
    changed: Notify,
    /// `None` once `Closed` was sent: the channel then ends for receivers that wait.
    state: Mutex<Option<watch::Sender<ConnectionState>>>,
    /// The receiver that later subscribers are cloned from.
    latest: watch::Receiver<ConnectionState>,
}

#[derive(Clone, Debug)]
enum Current {
    /// The session may be lost already, before the task of the client has noticed.
    Live(Session),
    /// The error of the last attempt to open the next session, if one failed.
    Between(Option<Arc<Error>>),
    /// There will be no other session. Has the error of every call and, once the last session is
    /// closed, `true` if the store confirmed its end.
    Over(Arc<Error>, Option<bool>),
}

impl Generations {
    /// `first`: the first session, if there is one already.
    pub(super) fn new(first: Option<Session>) -> Self {
        let (current, state) = match first {
            Some(session) => (Current::Live(session), ConnectionState::Connected),
            None => (Current::Between(None), ConnectionState::Connecting),
        };
        let (state, latest) = watch::channel(state);
        Self {
            current: Mutex::new(current),
            changed: Notify::new(),
            state: Mutex::new(Some(state)),
            latest,
        }
    }

    pub(super) fn state(&self) -> watch::Receiver<ConnectionState> {
        let mut receiver = self.latest.clone();
        // Only later changes are new to this receiver.
        receiver.mark_unchanged();
        mistake!(LateSubscriberUntold: let receiver = {
            watch::Sender::new(ConnectionState::Connected).subscribe()
        });
        receiver
    }

    /// Reports the status of the current session.
    pub(super) fn status_changed(&self, session: StatusKind) {
        self.update_state(|state| state.then(session));
    }

    /// Sends the state that follows, if one does.
    fn update_state(&self, then: impl FnOnce(ConnectionState) -> Option<ConnectionState>) {
        // Sending wakes tasks: not under the lock.
        let sender = self.sender().clone();
        let Some(sender) = sender else { return };
        sender.send_if_modified(|state| match then(*state) {
            Some(next) => {
                *state = next;
                true
            }
            None => false,
        });
    }

    /// Sends `Closed`, and nothing after it.
    fn close(&self) {
        self.update_state(|_| Some(ConnectionState::Closed));
        mistake!(StateNeverEnds: return);
        let last = self.sender().take();
        drop(last);
    }

    pub(super) fn set_between(&self) {
        self.set(Current::Between(None));
        mistake!(LossUntold: return);
        self.status_changed(StatusKind::Lost);
    }

    /// Records the error of an attempt to open the next session, and reports a rejection.
    pub(super) fn record_failure(&self, error: Error) {
        if error.kind() == ErrorKind::Denied {
            self.update_state(|state| {
                matches!(state, ConnectionState::Lost | ConnectionState::Connecting)
                    .then_some(ConnectionState::Denied)
            });
        }
        self.set(Current::Between(Some(Arc::new(error))));
    }

    /// Returns the error of the last attempt to open the next session.
    pub(super) fn failure(&self) -> Option<Arc<Error>> {
        match &*self.lock() {
            Current::Between(why) => why.clone(),
            _ => None,
        }
    }

    pub(super) fn set_session(&self, session: Session) {
        self.set(Current::Live(session));
        self.status_changed(StatusKind::Live);
    }

    /// Records that there will be no further session, with the reason.
    pub(super) fn set_over(&self, why: &Arc<Error>) {
        self.set(Current::Over(why.clone(), None));
    }

    /// Records that the last session is closed too.
    pub(super) fn set_closed(&self, why: &Arc<Error>, cleanly: bool) {
        // The state first, so that it is visible to a call that returns because the client is over.
        self.close();
        self.set(Current::Over(why.clone(), Some(cleanly)));
    }

    /// Returns the session with `root` as its root, if it is not lost. It does not wait.
    pub(super) fn live(&self, root: &Path) -> Option<Session> {
        match &*self.lock() {
            Current::Live(session) if !session.is_lost() => Some(session.below(root)),
            _ => None,
        }
    }

    /// Waits for a session that is not lost, and returns it with `root` as its root.
    pub(super) async fn session(&self, root: &Path) -> Result<Session> {
        let found = self.until(|current| match current {
            Current::Live(session) if !session.is_lost() => Some(Ok(session.clone())),
            Current::Live(_) | Current::Between(_) => None,
            Current::Over(why, _) => {
                mistake!(ClosedClientWaits: return None);
                Some(Err(Error::new(why.kind(), "waiting for a session")
                    .because("the client is closed")
                    .caused_by(why.clone())))
            }
        });
        Ok(found.await?.below(root))
    }

    /// Returns `true` if there will be no other session.
    pub(super) fn is_over(&self) -> bool {
        matches!(&*self.lock(), Current::Over(..))
    }

    /// Waits until there will be no other session.
    pub(super) async fn over(&self) {
        self.until(|current| matches!(current, Current::Over(..)).then_some(())).await;
    }

    /// Waits until the last session is closed. Returns `true` if the store confirmed its end.
    pub(super) async fn closed(&self) -> bool {
        self.until(|current| match current {
            Current::Over(_, cleanly) => *cleanly,
            _ => None,
        })
        .await
    }

    async fn until<T>(&self, select: impl Fn(&Current) -> Option<T>) -> T {
        loop {
            // Listens before the check, so that a change between the check and the wait also wakes.
            let changed = self.changed.notified();
            let found = select(&self.lock());
            if let Some(found) = found {
                return found;
            }
            changed.await;
        }
    }

    fn set(&self, next: Current) {
        let last = std::mem::replace(&mut *self.lock(), next);
        // Dropping a session wakes its task: not under the lock.
        drop(last);
        self.changed.notify_waiters();
    }

    fn sender(&self) -> MutexGuard<'_, Option<watch::Sender<ConnectionState>>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the error of every call on a closed client.
pub(super) fn closed() -> Arc<Error> {
    Arc::new(
        Error::new(ErrorKind::SessionLost, "opening a session").because("the client was closed"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_comes_before_reconnected_and_closed_is_final() {
        use ConnectionState::{Closed, Connected, Connecting, Denied, Lost};
        use ConnectionState::{Reconnected, Suspended};
        let table = [
            (Connecting, StatusKind::Live, Some(Connected)),
            (Connecting, StatusKind::Suspended, Some(Suspended)),
            (Connected, StatusKind::Live, None),
            (Connected, StatusKind::Suspended, Some(Suspended)),
            (Connected, StatusKind::Lost, Some(Lost)),
            (Suspended, StatusKind::Live, Some(Reconnected)),
            (Suspended, StatusKind::Suspended, None),
            (Suspended, StatusKind::Lost, Some(Lost)),
            (Lost, StatusKind::Lost, None),
            (Lost, StatusKind::Live, Some(Reconnected)),
            (Denied, StatusKind::Live, Some(Reconnected)),
            (Reconnected, StatusKind::Live, None),
            (Reconnected, StatusKind::Suspended, Some(Suspended)),
            (Closed, StatusKind::Live, None),
            (Closed, StatusKind::Lost, None),
        ];
        for (state, session, next) in table {
            assert_eq!(state.then(session), next, "{state:?} and {session:?}");
        }
    }
}
