//! [`MultiGuard`]: several holds as one.

use std::pin::pin;

use futures_util::future::{Either, pending, select, select_all};

use crate::error::{Error, ErrorKind, Result};
use crate::line::Line;
use crate::line::hold::Hold;
use crate::mutant::{self, Mutant};
use crate::store::Txn;

/// All the locks, held.
#[derive(Debug)]
#[must_use = "the locks are given back when this is dropped"]
pub struct MultiGuard {
    holds: Vec<Hold>,
}

impl MultiGuard {
    pub(crate) fn new(holds: Vec<Hold>) -> Self {
        Self { holds }
    }

    /// These and one more, which is waited for no longer than these are held.
    pub(crate) async fn and(mut self, line: &Line) -> Result<Self> {
        let lost = async {
            if self.holds.is_empty() || mutant::is(Mutant::LossSeenLate) {
                return pending().await;
            }
            self.lost().await;
        };
        let entered = match select(pin!(line.enter()), pin!(lost)).await {
            Either::Left((entered, _)) => Some(entered?),
            Either::Right(((), _)) => None,
        };
        let ticket = entered.filter(|_| self.is_held()).ok_or_else(|| {
            Error::new(ErrorKind::SessionLost, "locking several")
                .because("one was lost while the others were waited for")
        })?;
        self.holds.push(ticket.hold(()));
        Ok(self)
    }

    /// What is held, in the order of the paths. Each has its own token.
    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// Whether all of them are certainly held at this moment.
    pub fn is_held(&self) -> bool {
        self.holds.iter().all(Hold::is_held)
    }

    /// Waits until any of them is lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn lost(&self) {
        let each = self.holds.iter().map(|hold| Box::pin(hold.lost()));
        let _first = select_all(each).await;
    }

    /// A transaction that happens only while all of them are held. See [`Hold::txn`].
    pub fn txn(&self) -> Txn {
        self.holds.iter().fold(Txn::new(), |txn, hold| hold.node.check(txn))
    }

    /// Does something while all of them are held. See [`Hold::run`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`] if one was lost before `work` came to its end.
    ///
    /// # Cancel safety
    ///
    /// A dropped call drops `work`.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        match select(pin!(work), pin!(self.lost())).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(Error::new(ErrorKind::SessionLost, "working under locks")
                .because("one was lost; what was done under them was stopped")),
        }
    }

    /// Gives all of them back, the last one first.
    ///
    /// # Errors
    ///
    /// As [`Hold::release`]: the first that there was. The others are given back all the same.
    ///
    /// # Cancel safety
    ///
    /// A dropped call goes on in the background.
    pub async fn release(self) -> Result<()> {
        let mut released = Ok(());
        for hold in self.holds.into_iter().rev() {
            released = released.and(hold.release().await);
        }
        released
    }
}
