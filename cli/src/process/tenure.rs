//! [`Tenure`]: the time for which a command may run.

use std::future::pending;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod::Held;
use synod::Session;
use synod::Status;
use synod::clock::{self, Vigil};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

/// The guard that a command runs under, and the session that the guard belongs to.
pub(super) struct Tenure<'a> {
    held: &'a dyn Held,
    status: Receiver<Status>,
    grace: Duration,
    until: Instant,
}

/// A change of a tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The session is certain for longer than before, or no longer certain.
    Renewed,
    /// The lock is lost, or only the grace is left before it may be.
    Endangered,
}

impl<'a> Tenure<'a> {
    /// Creates the tenure of a command that may take `grace` to end. `None` if `held` is already
    /// lost.
    pub(super) fn new(held: &'a dyn Held, session: &Session, grace: Duration) -> Option<Self> {
        let status = session.status();
        let until = status.borrow().until()?;
        // This check comes last: if the lock is held now, it belongs to the session that was read
        // before.
        held.is_held().then_some(Self { held, status, grace, until })
    }

    /// Returns `true` if the lock is certainly held at this moment.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// The latest moment up to which the session was known to live.
    pub(super) fn until(&mut self) -> Instant {
        if let Some(until) = self.status.borrow_and_update().until() {
            self.until = until;
        }
        self.until
    }

    /// Waits for the next change.
    pub(super) async fn change(&mut self) -> Change {
        let endangered = endangered(self.held, self.status.clone(), self.grace);
        let renewed = async {
            if self.status.changed().await.is_err() {
                pending::<()>().await;
            }
        };
        match select(Box::pin(endangered), Box::pin(renewed)).await {
            Either::Left(_) => Change::Endangered,
            Either::Right(_) => Change::Renewed,
        }
    }
}

/// Waits until the lock is lost, or until only `grace` is left before it may be.
pub(crate) async fn endangered(held: &dyn Held, status: Receiver<Status>, grace: Duration) {
    let running_out = async {
        loop {
            let until = status.borrow().until();
            let Some(alarm) = until.and_then(|until| until.checked_sub(grace)) else { return };
            if clock::now() >= alarm {
                return;
            }
            // By then the deadline of the session has usually moved on.
            Vigil::new().sleep_until(alarm).await;
        }
    };
    select(Box::pin(held.lost()), Box::pin(running_out)).await;
}
