//! The state of a session, whose end is final: [`SessionState`].

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Notify, oneshot, watch};

use crate::error::{Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::store::{SessionEnd, SessionHandover, Status};

/// The status as the store reports it, except that the end is final, even if the store reports the
/// session as live again, or has not noticed the end yet.
///
/// Every read of the state first copies the status of the store, so that no answer depends on a
/// task. All waiting uses one [`Notify`], which wakes in the order of waiting; the wakers of a
/// `watch` are woken in an order that differs per run.
#[derive(Debug)]
pub(crate) struct SessionState {
    store: watch::Receiver<Status>,
    reported: watch::Sender<Status>,
    kind_changes: Notify,
    /// `true` if the store confirmed the end of the session. Set once the client stops trying to
    /// close it.
    closed: OnceLock<bool>,
    /// Set once the store has confirmed the end later.
    confirmed: OnceLock<()>,
    /// The request to hand the session over, until the task of the session takes it.
    handing_over: Mutex<Option<HandOverReply>>,
}

/// The receiver of a session that is handed over.
pub(super) type HandOverReply = oneshot::Sender<Result<SessionHandover>>;

/// A [`Status`] without its instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusKind {
    Live,
    Suspended,
    Lost,
}

impl StatusKind {
    pub(crate) fn of(status: &Status) -> Self {
        match status {
            Status::Live { .. } => Self::Live,
            Status::Suspended { .. } => Self::Suspended,
            Status::Lost { .. } => Self::Lost,
        }
    }
}

impl SessionState {
    pub(super) fn new(store: watch::Receiver<Status>) -> Self {
        let first = *store.borrow();
        let (reported, kind_changes) = (watch::Sender::new(first), Notify::new());
        Self {
            store,
            reported,
            kind_changes,
            closed: OnceLock::new(),
            confirmed: OnceLock::new(),
            handing_over: Mutex::default(),
        }
    }

    /// Returns the current status.
    pub(crate) fn now(&self) -> Status {
        let (reported, store) = (*self.reported.borrow(), *self.store.borrow());
        if reported == store {
            return reported;
        }
        self.change(|reported| {
            let store = *self.store.borrow();
            mistake!(LostTakenBack: return Some(store));
            (!reported.is_lost()).then_some(store)
        })
    }

    /// Ends the session, unless it is over already.
    pub(super) fn end(&self, reason: SessionEnd) {
        let _now = self.change(|reported| (!reported.is_lost()).then_some(Status::Lost { reason }));
    }

    /// Requests that the task of the session hands it over.
    pub(super) fn request_hand_over(&self, reply: HandOverReply) {
        *self.handing_over() = Some(reply);
        self.kind_changes.notify_waiters();
    }

    /// Waits until it is requested that the session is handed over.
    pub(super) async fn hand_over_requested(&self) {
        self.until(|state| state.handing_over().is_some().then_some(())).await;
    }

    /// Takes the request to hand the session over.
    pub(super) fn take_hand_over(&self) -> Option<HandOverReply> {
        self.handing_over().take()
    }

    fn handing_over(&self) -> MutexGuard<'_, Option<HandOverReply>> {
        self.handing_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, next: impl FnOnce(&Status) -> Option<Status>) -> Status {
        let mut is_new_kind = false;
        self.reported.send_if_modified(|reported| match next(reported) {
            Some(next) if next != *reported => {
                is_new_kind = StatusKind::of(&next) != StatusKind::of(reported);
                *reported = next;
                true
            }
            _ => false,
        });
        if is_new_kind {
            self.kind_changes.notify_waiters();
        }
        *self.reported.borrow()
    }

    /// Returns the reason for the end of the session, if it is over.
    pub(crate) fn loss(&self) -> Option<SessionEnd> {
        match self.now() {
            Status::Lost { reason } => Some(reason),
            _ => None,
        }
    }

    /// Returns `true` if the store itself reports the session as lost: then no call can succeed,
    /// not even to clean up.
    pub(super) fn is_lost_at_store(&self) -> bool {
        self.store.borrow().is_lost()
    }

    pub(super) fn is_certain(&self) -> bool {
        let now = self.now();
        mistake!(CertainUntilTold: return !now.is_lost());
        now.is_certain()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Status> {
        let _copied = self.now();
        self.reported.subscribe()
    }

    /// Waits until the session is over.
    pub(crate) async fn lost(&self) -> SessionEnd {
        self.until(Self::loss).await
    }

    /// Waits until the status is of another kind than `seen`.
    pub(crate) async fn kind_changed(&self, seen: StatusKind) -> StatusKind {
        self.until(|state| Some(StatusKind::of(&state.now())).filter(|now| *now != seen)).await
    }

    /// Waits until the client stops trying to close the session. Returns `true` if the store
    /// confirmed its end.
    pub(crate) async fn closed(&self) -> bool {
        self.until(Self::is_closed).await
    }

    /// Returns the result of [`Self::closed`], if it is known.
    pub(super) fn is_closed(&self) -> Option<bool> {
        self.closed.get().map(|cleanly| *cleanly || self.confirmed.get().is_some())
    }

    /// Records that the store confirmed the end of the session, after an attempt that was not
    /// confirmed.
    pub(super) fn confirm(&self) {
        let _first = self.confirmed.set(()).is_ok();
    }

    pub(super) fn set_closed(&self, cleanly: bool) {
        let _first = self.closed.set(cleanly).is_ok();
        self.kind_changes.notify_waiters();
    }

    async fn until<T>(&self, select: impl Fn(&Self) -> Option<T>) -> T {
        loop {
            // Listens before the check, so that a change between the check and the wait also wakes.
            let change = self.kind_changes.notified();
            if let Some(found) = select(self) {
                return found;
            }
            change.await;
        }
    }
}

/// Returns the error of a call on a session that is over.
pub(crate) fn over(reason: SessionEnd, doing: &'static str) -> Error {
    Error::new(ErrorKind::SessionLost, doing).because(reason.to_string())
}
