//! [`SessionState`]: whether a session lives. Its end is final.

use std::sync::OnceLock;

use tokio::sync::{Notify, watch};

use crate::error::{Error, ErrorKind};
use crate::mutant::mistake;
use crate::store::{SessionEnd, Status};

/// What the session's store says of it, except that the end is final even if the store takes it
/// back or has not heard of it yet.
///
/// Every look at the state first takes over what the store says now, so that no answer waits for a task to run.
/// Waiting goes through one [`Notify`], which wakes in the order of waiting; the wakers of a `watch`
/// are woken in an order that differs per run.
#[derive(Debug)]
pub(crate) struct SessionState {
    store: watch::Receiver<Status>,
    told: watch::Sender<Status>,
    turned: Notify,
    /// Whether the store said that the session is over at the server, once nothing more is done about it.
    closed: OnceLock<bool>,
    /// Set once the store has said so after all.
    confirmed: OnceLock<()>,
}

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
        let (told, turned) = (watch::Sender::new(first), Notify::new());
        Self { store, told, turned, closed: OnceLock::new(), confirmed: OnceLock::new() }
    }

    /// The status as of this very moment.
    pub(crate) fn now(&self) -> Status {
        let (told, store) = (*self.told.borrow(), *self.store.borrow());
        if told == store {
            return told;
        }
        self.change(|told| {
            let store = *self.store.borrow();
            mistake!(LostTakenBack: return Some(store));
            (!told.is_lost()).then_some(store)
        })
    }

    /// Says that the session is over, unless it was said already.
    pub(super) fn end(&self, reason: SessionEnd) {
        let _now = self.change(|told| (!told.is_lost()).then_some(Status::Lost { reason }));
    }

    fn change(&self, next: impl FnOnce(&Status) -> Option<Status>) -> Status {
        let mut turned = false;
        self.told.send_if_modified(|told| match next(told) {
            Some(next) if next != *told => {
                turned = StatusKind::of(&next) != StatusKind::of(told);
                *told = next;
                true
            }
            _ => false,
        });
        if turned {
            self.turned.notify_waiters();
        }
        *self.told.borrow()
    }

    /// Why the session is over, if it is.
    pub(crate) fn loss(&self) -> Option<SessionEnd> {
        match self.now() {
            Status::Lost { reason } => Some(reason),
            _ => None,
        }
    }

    /// Whether the store itself says that the session is over: nothing can be done with it then,
    /// not even tidying up.
    pub(super) fn is_gone(&self) -> bool {
        self.store.borrow().is_lost()
    }

    pub(super) fn is_certain(&self) -> bool {
        let now = self.now();
        mistake!(CertainUntilTold: return !now.is_lost());
        now.is_certain()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Status> {
        let _carried_over = self.now();
        self.told.subscribe()
    }

    /// Waits until the session is over.
    pub(crate) async fn lost(&self) -> SessionEnd {
        self.until(Self::loss).await
    }

    /// Waits until the status is another kind than `seen`.
    pub(crate) async fn turned(&self, seen: StatusKind) -> StatusKind {
        self.until(|state| Some(StatusKind::of(&state.now())).filter(|now| *now != seen)).await
    }

    /// Waits until nothing more is done about the session. Whether its store said that it is over.
    pub(crate) async fn closed(&self) -> bool {
        self.until(Self::is_closed).await
    }

    /// The result of [`Self::closed`], if it is known.
    pub(super) fn is_closed(&self) -> Option<bool> {
        self.closed.get().map(|cleanly| *cleanly || self.confirmed.get().is_some())
    }

    /// Records that the store says that the session is over, after it has not said so at first.
    pub(super) fn confirm(&self) {
        let _first = self.confirmed.set(()).is_ok();
    }

    pub(super) fn set_closed(&self, cleanly: bool) {
        let _first = self.closed.set(cleanly).is_ok();
        self.turned.notify_waiters();
    }

    async fn until<T>(&self, is: impl Fn(&Self) -> Option<T>) -> T {
        loop {
            // Listens from here on, so that a turn between the look and the wait wakes too.
            let turned = self.turned.notified();
            if let Some(found) = is(self) {
                return found;
            }
            turned.await;
        }
    }
}

/// What a call on a session that is over fails with.
pub(crate) fn over(reason: SessionEnd, doing: &'static str) -> Error {
    Error::new(ErrorKind::SessionLost, doing).because(reason.to_string())
}
