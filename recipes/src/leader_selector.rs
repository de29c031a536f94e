//! [`LeaderSelector`]: runs a future while leading, and drops it when the lead is lost.

use std::fmt;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use tokio::sync::watch;
use tracing::Instrument;

use crate::line::hold::{Hold, Leadership};
use crate::line::order::Contender;
use crate::line::ticket::Ticket;
use crate::line::{Form, Line};
use crate::mutant::mistake;
use crate::support::retry::RetryDelays;

#[cfg_attr(not(doctest), doc = include_str!("../docs/leader_selector.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/elections.md"))]
#[derive(Clone, Debug)]
pub struct LeaderSelector {
    line: Line,
    interrupts: Interrupts,
}

/// The end of one term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a leader must distinguish them")]
pub enum Term<T> {
    /// The work completed, with this result.
    Done(T),
    /// The lead was lost; the work was dropped.
    Lost,
    /// [`LeaderSelector::interrupt`] was called; the work was dropped, or had not begun.
    Interrupted,
}

/// The number of interruptions. Clones share it.
#[derive(Clone, Default)]
struct Interrupts(watch::Sender<u64>);

/// The interruptions after the creation of this value.
struct InterruptListener(watch::Receiver<u64>);

/// The leadership of one term. Dropping it releases the lead.
struct Lead(Arc<Hold>);

impl LeaderSelector {
    /// The election at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        let line = Line::new(client, path.into(), Form::exclusive("leader_selector", "lock-"));
        Self { line, interrupts: Interrupts::default() }
    }

    /// Sets the label of the candidates of this selector, which the list of candidates shows.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()), ..self }
    }

    /// Waits for the lead, runs the work, and releases the lead: one term.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::lock::Mutex::lock). An error of the work is in [`Term::Done`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call drops the work and leaves nothing in the store.
    pub async fn lead<T, F>(&self, work: impl FnOnce(Leadership) -> F) -> Result<Term<T>>
    where
        F: Future<Output = T>,
    {
        let mut interrupts = self.interrupts.listen();
        let ticket = self.line.enqueue().await?;
        let Some(lead) = Lead::begin(ticket, &mut interrupts).await? else {
            return Ok(Term::Interrupted);
        };
        let term = lead.work(work, interrupts).await;
        lead.end().await;
        Ok(term)
    }

    /// Leads whenever it is its turn, until the work returns [`ControlFlow::Break`]. After a loss
    /// or an interruption of the lead, after [`ControlFlow::Continue`], and after an outage of the
    /// store, it becomes a candidate again, as the last.
    ///
    /// # Errors
    ///
    /// The error with which the store rejects a request, and `SessionLost` once the client is
    /// closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call drops the work and leaves nothing in the store.
    pub async fn keep_leading<T, F>(&self, mut work: impl FnMut(Leadership) -> F) -> Result<T>
    where
        F: Future<Output = ControlFlow<T>>,
    {
        let mut delays = self.line.delays();
        loop {
            mistake!(RequeuesTwice: std::mem::forget(self.line.enqueue().await?));
            let term = self.rest_if_failed(self.lead(&mut work).await, &mut delays).await?;
            if let Some(Term::Done(ControlFlow::Break(done))) = term {
                return Ok(done);
            }
        }
    }

    /// Ends the term of the candidate that leads through this selector or a clone of it, if there
    /// is one: its work is dropped, and the next candidate leads. The same applies to a candidate
    /// that is the first in the queue and was not notified yet: its work does not begin. A
    /// candidate that waits for other candidates is not affected.
    pub fn interrupt(&self) {
        self.interrupts.add();
    }

    /// The first candidate: it leads, or is about to lead.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn leader(&self) -> Result<Option<Contender>> {
        Ok(self.candidates().await?.into_iter().next())
    }

    /// All candidates, the leader first, in the order in which they will lead.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn candidates(&self) -> Result<Vec<Contender>> {
        self.line.contenders().await
    }

    /// The result of a term. `None`, after a delay with backoff, if it failed for a reason that may
    /// be transient.
    async fn rest_if_failed<T>(
        &self,
        term: Result<Term<T>>,
        delays: &mut RetryDelays,
    ) -> Result<Option<Term<T>>> {
        let error = match term {
            Err(error) if self.line.is_transient(&error) => error,
            term => {
                delays.reset();
                return term.map(Some);
            }
        };
        // Only an outage is transient: the session logs it.
        tracing::debug!(path = %self.line.dir(), %error, "could not campaign; retrying");
        delays.wait().await;
        Ok(None)
    }
}

impl Interrupts {
    fn add(&self) {
        self.0.send_modify(|times| *times += 1);
    }

    /// The interruptions from now on.
    fn listen(&self) -> InterruptListener {
        InterruptListener(self.0.subscribe())
    }
}

impl fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0.borrow(), f)
    }
}

impl Lead {
    /// Waits for the lead. `None` if an interruption came after the grant and before its
    /// notification: then the lead is released.
    async fn begin(mut ticket: Ticket, interrupts: &mut InterruptListener) -> Result<Option<Self>> {
        if wait_to_begin(&mut ticket, &mut interrupts.0).await? {
            return Ok(Some(Self(Arc::new(ticket.hold(())))));
        }
        ticket.leave().await;
        Ok(None)
    }

    /// Runs the work of the term, as long as the term lasts.
    async fn work<T, F>(
        &self,
        work: impl FnOnce(Leadership) -> F,
        interrupts: InterruptListener,
    ) -> Term<T>
    where
        F: Future<Output = T>,
    {
        let (ticket, token) = (self.0.path(), self.0.token());
        let path = ticket.parent().map(tracing::field::display);
        let span = tracing::info_span!("leading", path, %ticket, %token);
        work_while(&self.0, work(Leadership(self.0.clone())), interrupts.0).instrument(span).await
    }

    /// Releases the lead. The result of the work is returned in any case; a release that fails
    /// continues in the background.
    async fn end(self) {
        mistake!(LeadKeptAfterWork: return std::mem::forget(self));
        if let Err(error) = self.0.give_back().await {
            tracing::debug!(ticket = %self.0.path(), %error, "the lead will be released in the background");
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Waits for the lead. False if an interruption came after the grant and before its notification.
async fn wait_to_begin(ticket: &mut Ticket, interrupts: &mut watch::Receiver<u64>) -> Result<bool> {
    loop {
        // The interruption is polled first: if both are ready, the grant happened before it.
        match select(pin!(interrupts.changed()), pin!(ticket.granted())).await {
            Either::Left(_) => {}
            Either::Right((granted, _)) => return granted.map(|()| true),
        }
        // The interruption is for the candidate that was the first in the queue at that moment,
        // even if its session has not observed that yet. The view of the create, or a lagging read,
        // may be older than the interruption.
        if ticket.check_granted_now().await? {
            return Ok(false);
        }
    }
}

/// Runs the work of a term, as long as the term lasts.
async fn work_while<T>(
    lead: &Hold,
    work: impl Future<Output = T>,
    mut interrupts: watch::Receiver<u64>,
) -> Term<T> {
    mistake!(WorkOutlivesLead: return Term::Done(work.await));
    // The loss is polled first: work that becomes ready at the same moment did not complete within
    // the term.
    let (lost, interrupted) = (pin!(lead.lost()), pin!(interrupts.changed()));
    match select(select(lost, interrupted), pin!(work)).await {
        Either::Left((Either::Left(_), _)) => Term::Lost,
        Either::Left((Either::Right(_), _)) => Term::Interrupted,
        Either::Right((done, _)) => Term::Done(done),
    }
}
