//! [`Generations`]: which session a client has now, and its status.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::error::{Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::path::Path;
use crate::session::Session;
use crate::session::session_state::StatusKind;

/// The state of a client's connection to its store.
///
/// The loss of a session is always reported as `Lost` before the next session is reported as `Reconnected`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// The first session lives, and was never in doubt.
    Connected,
    /// The store does not answer just now. The session may still live: see
    /// [`Session::is_certain`].
    Suspended,
    /// The store answers again: in the same session, or in the next one if `Lost` came in between.
    Reconnected,
    /// The session is over, and with it all that depends on it. The next one is being opened.
    Lost,
    /// The session is over, and the store does not accept the credentials for the next one. Further attempts are
    /// made, as the retry policy says: a refusal may be that of one server, or of credentials that are being changed.
    Denied,
    /// The client was closed, or gave up opening sessions. Final.
    Closed,
}

impl ConnectionState {
    /// The state that follows this one when a session reports its status; `None` if that is no news. Pure.
    pub(super) fn then(self, session: StatusKind) -> Option<Self> {
        match (self, session) {
            (Self::Closed, _) | (Self::Connected | Self::Reconnected, StatusKind::Live) => None,
            (_, StatusKind::Live) => Some(Self::Reconnected),
            (_, StatusKind::Suspended) => Some(Self::Suspended),
            (_, StatusKind::Lost) => Some(Self::Lost),
        }
        .filter(|next| *next != self)
    }
}

/// Which session a client has now. Shared by its clones, its keeper and its watches.
#[derive(Debug)]
pub(super) struct Generations {
    current: Mutex<Current>,
    turned: Notify,
    /// `None` once `Closed` was sent: a receiver that waits for the next state learns that there is none.
    state: Mutex<Option<watch::Sender<ConnectionState>>>,
    /// What late subscribers are made of.
    latest: watch::Receiver<ConnectionState>,
}

#[derive(Clone, Debug)]
enum Current {
    /// It may be lost already, before the keeper has noticed.
    Live(Session),
    /// Why the last attempt to open the next one failed, if one did.
    Between(Option<Arc<Error>>),
    /// There will be no other. What calls fail with; and once all is done, whether the store said that the last
    /// session is over.
    Over(Arc<Error>, Option<bool>),
}

impl Generations {
    pub(super) fn new(first: Session) -> Self {
        let (state, latest) = watch::channel(ConnectionState::Connected);
        Self {
            current: Mutex::new(Current::Live(first)),
            turned: Notify::new(),
            state: Mutex::new(Some(state)),
            latest,
        }
    }

    pub(super) fn state(&self) -> watch::Receiver<ConnectionState> {
        let mut receiver = self.latest.clone();
        // Only what changes from now on is new to it.
        receiver.mark_unchanged();
        mistake!(LateSubscriberUntold: let receiver = {
            watch::Sender::new(ConnectionState::Connected).subscribe()
        });
        receiver
    }

    /// Reports the status of the current session.
    pub(super) fn status_changed(&self, session: StatusKind) {
        self.turn(|state| state.then(session));
    }

    /// Sends the state that follows, if one does.
    fn turn(&self, then: impl FnOnce(ConnectionState) -> Option<ConnectionState>) {
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
        self.turn(|_| Some(ConnectionState::Closed));
        mistake!(StateNeverEnds: return);
        let last = self.sender().take();
        drop(last);
    }

    pub(super) fn between(&self) {
        self.set(Current::Between(None));
        mistake!(LossUntold: return);
        self.status_changed(StatusKind::Lost);
    }

    /// Remembers why there is no next session yet, and reports a refusal.
    pub(super) fn failing(&self, error: Error) {
        if error.kind() == ErrorKind::Denied {
            self.turn(|state| (state == ConnectionState::Lost).then_some(ConnectionState::Denied));
        }
        self.set(Current::Between(Some(Arc::new(error))));
    }

    /// Why there is no next session yet.
    pub(super) fn failure(&self) -> Option<Arc<Error>> {
        match &*self.lock() {
            Current::Between(why) => why.clone(),
            _ => None,
        }
    }

    pub(super) fn next(&self, session: Session) {
        self.set(Current::Live(session));
        self.status_changed(StatusKind::Live);
    }

    /// From now on there is no session, for that reason.
    pub(super) fn end(&self, why: &Arc<Error>) {
        self.set(Current::Over(why.clone(), None));
    }

    /// The last session is closed too.
    pub(super) fn ended(&self, why: &Arc<Error>, cleanly: bool) {
        // The state first: a call that returns because the client is over finds it.
        self.close();
        self.set(Current::Over(why.clone(), Some(cleanly)));
    }

    /// The session, if it is not lost, as seen from below `root`. It does not wait.
    pub(super) fn live(&self, root: &Path) -> Option<Session> {
        match &*self.lock() {
            Current::Live(session) if !session.is_lost() => Some(session.below(root)),
            _ => None,
        }
    }

    /// Waits for a session that is not lost, and gives it as seen from below `root`.
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

    /// Whether there will be no other session.
    pub(super) fn is_over(&self) -> bool {
        matches!(&*self.lock(), Current::Over(..))
    }

    /// Waits until there will be no other session.
    pub(super) async fn over(&self) {
        self.until(|current| matches!(current, Current::Over(..)).then_some(())).await;
    }

    /// Waits until the last session is closed. Returns whether the store said that it is over.
    pub(super) async fn closed(&self) -> bool {
        self.until(|current| match current {
            Current::Over(_, cleanly) => *cleanly,
            _ => None,
        })
        .await
    }

    async fn until<T>(&self, is: impl Fn(&Current) -> Option<T>) -> T {
        loop {
            // Listens from here on, so that a turn between the look and the wait wakes too.
            let turned = self.turned.notified();
            let found = is(&self.lock());
            if let Some(found) = found {
                return found;
            }
            turned.await;
        }
    }

    fn set(&self, next: Current) {
        let last = std::mem::replace(&mut *self.lock(), next);
        // Dropping a session wakes its task: not under the lock.
        drop(last);
        self.turned.notify_waiters();
    }

    fn sender(&self) -> MutexGuard<'_, Option<watch::Sender<ConnectionState>>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the calls of a client fail with once it is closed.
pub(super) fn closed() -> Arc<Error> {
    Arc::new(Error::new(ErrorKind::SessionLost, "opening a session").because("it was closed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_comes_before_reconnected_and_closed_is_final() {
        use ConnectionState::{Closed, Connected, Denied, Lost, Reconnected, Suspended};
        let table = [
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
