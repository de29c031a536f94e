//! [`Term`]: one term of a leader who works, from his waiting for it to his giving it back.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use tokio::sync::watch;

use crate::error::Result;
use crate::line::hold::Hold;
use crate::line::wait::Ticket;
use crate::mutant::{self, Mutant};

/// How one term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever leads must tell them apart")]
pub enum Term<T> {
    /// The work came to its end, with this.
    Done(T),
    /// The lead was lost; the work was dropped.
    Lost,
    /// [`LeaderSelector::interrupt`](crate::recipe::leader_selector::LeaderSelector::interrupt) was called; the
    /// work was dropped, or had not begun.
    Interrupted,
}

/// The lead of one term, which goes with it.
pub(crate) struct Lead(pub(crate) Arc<Hold>);

/// Waits for the lead. False if it is there, and interrupted before it was heard of.
pub(crate) async fn may_begin(
    ticket: &mut Ticket,
    interrupts: &mut watch::Receiver<u64>,
) -> Result<bool> {
    let mut remembered = interrupts.clone();
    let interrupts =
        if mutant::is(Mutant::InterruptRemembered) { &mut remembered } else { interrupts };
    loop {
        // The interruption first: the lead that is heard of in the same moment was there before.
        match select(pin!(interrupts.changed()), pin!(ticket.called())).await {
            Either::Left(_) => {}
            Either::Right((called, _)) => return called.map(|()| true),
        }
        // It was meant for the first in the line, whether he knows already or not.
        if !mutant::is(Mutant::InterruptUnheard) && ticket.is_called().await? {
            return Ok(false);
        }
    }
}

/// The work of a term, for as long as that lasts.
pub(crate) async fn work_while<T>(
    lead: &Hold,
    work: impl Future<Output = T>,
    mut interrupts: watch::Receiver<u64>,
) -> Term<T> {
    if mutant::is(Mutant::WorkOutlivesLead) {
        return Term::Done(work.await);
    }
    // The loss first: work that is ready in the same moment did not end in the lead.
    let (lost, interrupted) = (pin!(lead.lost()), pin!(interrupts.changed()));
    match select(select(lost, interrupted), pin!(work)).await {
        Either::Left((Either::Left(_), _)) => Term::Lost,
        Either::Left((Either::Right(_), _)) => Term::Interrupted,
        Either::Right((done, _)) => Term::Done(done),
    }
}

impl Lead {
    /// Gives it back. What the work came to is told in any case; if this fails it goes on in the background.
    pub(crate) async fn end(self) {
        if mutant::is(Mutant::LeadKeptAfterWork) {
            return std::mem::forget(self);
        }
        if let Err(error) = self.0.give_back().await {
            tracing::debug!(path = %self.0.path(), %error, "the lead was not given back in the foreground");
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
