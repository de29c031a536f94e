//! [`Stand`]: the task of a candidate, who stands in line again whenever a term is over.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, poll_immediate, select};
use tokio::sync::{oneshot, watch};

use crate::client::Connection;
use crate::clock::sleep;
use crate::error::Result;
use crate::line::Line;
use crate::line::candidacy::{Leadership, State};
use crate::line::wait::Ticket;
use crate::mutant::{self, Mutant};

/// What the task of a candidate works with.
pub(super) struct Stand {
    line: Line,
    state: watch::Sender<State>,
    asked: oneshot::Receiver<()>,
}

/// The lead of a task, which goes with it.
struct Term(Leadership);

impl Stand {
    pub(super) fn new(
        line: Line,
        state: watch::Sender<State>,
        asked: oneshot::Receiver<()>,
    ) -> Self {
        Self { line, state, asked }
    }

    /// Stands until asked to leave.
    pub(super) async fn run(mut self, first: Ticket) -> Result<()> {
        let mut delays = self.line.client().delays();
        let mut ticket = Some(first);
        loop {
            match self.term_or_reset(ticket.take()).await {
                Ok(Some(left)) => return left,
                Ok(None) => {
                    delays = self.line.client().delays();
                    self.state.send_replace(State::Waiting);
                }
                Err(error)
                    if self.line.client().is_closed()
                        || mutant::is(Mutant::FailureEndsCandidacy) =>
                {
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(%error, "could not stand; trying again");
                    self.state.send_replace(State::Failed(error));
                    let rest = sleep(delays.next().unwrap_or_default());
                    if let Either::Right(_) = select(pin!(rest), &mut self.asked).await {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// [`Stand::term`], and a mistake.
    async fn term_or_reset(&mut self, ticket: Option<Ticket>) -> Result<Option<Result<()>>> {
        if !mutant::is(Mutant::ReconnectResets) {
            return self.term(ticket).await;
        }
        let mut state = self.line.client().state();
        let reset = async {
            let _down = state.wait_for(|state| *state == Connection::Suspended).await.is_ok();
            let _up = state.wait_for(|state| *state == Connection::Reconnected).await.is_ok();
        };
        match select(pin!(self.term(ticket)), pin!(reset)).await {
            Either::Left((ended, _)) => ended,
            Either::Right(_) => Ok(None),
        }
    }

    /// One term, from standing in line to its loss. `Some` if he was asked to leave.
    async fn term(&mut self, ticket: Option<Ticket>) -> Result<Option<Result<()>>> {
        let mut ticket = match ticket {
            Some(ticket) => ticket,
            None => match select(pin!(self.line.enqueue()), &mut self.asked).await {
                Either::Left((ticket, _)) => ticket?,
                Either::Right(_) => return Ok(Some(Ok(()))),
            },
        };
        let called = {
            let mut called = pin!(ticket.called());
            if let Some(at_once) = poll_immediate(called.as_mut()).await {
                Some(at_once)
            } else {
                self.state.send_replace(State::Waiting);
                match select(called, &mut self.asked).await {
                    Either::Left((called, _)) => Some(called),
                    Either::Right(_) => None,
                }
            }
        };
        let Some(called) = called else {
            ticket.leave().await;
            return Ok(Some(Ok(())));
        };
        called?;
        let term = Term(Arc::new(ticket.hold(())));
        self.state.send_replace(State::Leading(term.0.clone()));
        let (ticket, token) = (term.0.seen_path(), term.0.token());
        tracing::info!(%ticket, %token, "leading");
        if let Either::Right(_) = select(pin!(term.0.lost()), &mut self.asked).await {
            return Ok(Some(term.0.give_back().await));
        }
        tracing::info!(%ticket, %token, "the lead is lost");
        Ok(None)
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
