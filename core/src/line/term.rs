//! [`Term`]: one term of a leader who works, from his waiting for it to his giving it back.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use tokio::sync::watch;
use tracing::Instrument;

use crate::clock::sleep;
use crate::error::Result;
use crate::line::Line;
use crate::line::follow::may_pass;
use crate::line::hold::Hold;
use crate::line::wait::Ticket;
use crate::mutant::{self, Mutant};
use crate::retry::Delays;

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

/// The lead, while the work is done: to look at, and for guarded transactions. It is over with the work, whoever
/// still looks at it.
pub type Leadership = Arc<Hold>;

/// How often the leader was interrupted. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Interrupts(watch::Sender<u64>);

/// The interruptions from some moment on.
pub(crate) struct Heard(watch::Receiver<u64>);

/// The lead of one term, which goes with it.
pub(crate) struct Lead(Leadership);

impl Interrupts {
    pub(crate) fn happen(&self) {
        self.0.send_modify(|times| *times += 1);
    }

    /// Those from now on.
    pub(crate) fn hear(&self) -> Heard {
        Heard(self.0.subscribe())
    }
}

impl fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0.borrow(), f)
    }
}

impl Lead {
    /// Waits for the lead. `None` if it was there, and interrupted before it was heard of: it is given back then.
    pub(crate) async fn begin(mut ticket: Ticket, heard: &mut Heard) -> Result<Option<Self>> {
        if may_begin(&mut ticket, &mut heard.0).await? {
            return Ok(Some(Self(Arc::new(ticket.hold(())))));
        }
        ticket.leave().await;
        Ok(None)
    }

    /// The work of the term, for as long as that lasts.
    pub(crate) async fn work<T, F>(
        &self,
        work: impl FnOnce(Leadership) -> F,
        heard: Heard,
    ) -> Term<T>
    where
        F: Future<Output = T>,
    {
        let (ticket, token) = (self.0.path(), self.0.token());
        let path = ticket.parent().map(tracing::field::display);
        let span = tracing::info_span!("leading", path, %ticket, %token);
        work_while(&self.0, work(self.0.clone()), heard.0).instrument(span).await
    }

    /// Gives it back. What the work came to is told in any case; if this fails it goes on in the background.
    pub(crate) async fn end(self) {
        if mutant::is(Mutant::LeadKeptAfterWork) {
            return std::mem::forget(self);
        }
        if let Err(error) = self.0.give_back().await {
            tracing::debug!(ticket = %self.0.path(), %error, "the lead was not given back in the foreground");
        }
    }
}

impl Line {
    /// How a term ended. `None` if it failed for a reason that may pass, after a pause that grows.
    pub(crate) async fn rest_if_failed<T>(
        &self,
        term: Result<Term<T>>,
        delays: &mut Delays,
    ) -> Result<Option<Term<T>>> {
        let error = match term {
            Err(error) if may_pass(&error, self.client()) => error,
            term => {
                *delays = self.client().delays();
                return term.map(Some);
            }
        };
        tracing::warn!(path = %self.dir(), %error, "could not stand; trying again");
        sleep(delays.next().unwrap_or_default()).await;
        Ok(None)
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Waits for the lead. False if it is there, and interrupted before it was heard of.
async fn may_begin(ticket: &mut Ticket, interrupts: &mut watch::Receiver<u64>) -> Result<bool> {
    let mut remembered = interrupts.clone();
    let interrupts =
        if mutant::is(Mutant::InterruptRemembered) { &mut remembered } else { interrupts };
    loop {
        // The interruption first: the lead that is heard of in the same moment was there before.
        match select(pin!(interrupts.changed()), pin!(ticket.called())).await {
            Either::Left(_) => {}
            Either::Right((called, _)) => return called.map(|()| true),
        }
        // It was meant for the first in the line at that moment, whether its session saw that already or not. What
        // the draw saw, or a read that lags shows, may be of a moment before the interruption.
        if !mutant::is(Mutant::InterruptUnheard) && ticket.is_called_now().await? {
            return Ok(false);
        }
    }
}

/// The work of a term, for as long as that lasts.
async fn work_while<T>(
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
