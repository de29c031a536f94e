//! [`BatchTries`]: the attempts to write a batch, and the waits before the next one.

use std::pin::pin;

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::held::Held;
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::store::{Query, View};

use crate::cell::change::{ChangeBatch, DOING};
use crate::cell::promotion::{PromotionLock, ValueNodes};
use crate::cell::writer_state::{WriterState, unless_lost};
use crate::mutant::mistake;
use crate::support::exactly_once::write_id::without_effect;
use crate::support::retry::{RetryDelays, repeat_in_session};
use crate::support::wait::until;

/// The attempts to write a batch.
pub(super) struct BatchTries<'a> {
    client: &'a Client,
    nodes: &'a ValueNodes,
    lock: Option<&'a PromotionLock>,
    /// The number of lost attempts plus the number of times that the batch yielded.
    lost: u32,
    /// The number of lost attempts since the start.
    races: u32,
    /// The delays after every second lost attempt.
    delays: RetryDelays,
    /// True if a delay comes before the next attempt.
    is_delayed: bool,
    /// The lock, if the batch is promoted.
    held: Option<Box<dyn Held>>,
}

impl<'a> BatchTries<'a> {
    pub(super) fn new(
        client: &'a Client,
        nodes: &'a ValueNodes,
        lock: Option<&'a PromotionLock>,
    ) -> Self {
        let delays = RetryDelays::new(Retry::optimistic(), client.random());
        Self { client, nodes, lock, lost: 0, races: 0, delays, is_delayed: false, held: None }
    }

    /// Returns `true` if writes yield to promoted changes: only writes that are not promoted yield.
    pub(super) fn yields(&self) -> bool {
        mistake!(PromotedKeepsNobodyOut: return false);
        self.held.is_none()
    }

    /// Counts a lost attempt. An attempt that has to yield is counted when it yields.
    pub(super) fn count_lost(&mut self, state: Option<&WriterState>) {
        let gate = state.and_then(|state| state.gate.as_ref());
        if self.yields() && gate.is_some_and(|gate| gate.ticket.is_some()) {
            return;
        }
        self.lost = self.lost.saturating_add(1);
        self.races += 1;
        self.is_delayed = self.races.is_multiple_of(2);
    }

    /// Waits before the next attempt: for the lock after too many lost attempts, and otherwise for
    /// a delay before every second one. Returns `true` if any caller is still waiting.
    ///
    /// An attempt after a delay starts from a value that may be out of date. If it is lost, its
    /// rejection shows the value, and the next attempt follows without a delay: only such an
    /// attempt can succeed while other clients write.
    pub(super) async fn ready(&mut self, batch: &mut ChangeBatch) -> Result<bool> {
        mistake!(LostRaceStarves: if self.lost > 0 {
            std::future::pending::<()>().await;
        });
        let is_delayed = std::mem::take(&mut self.is_delayed);
        let Some(lock) = self.lock.filter(|lock| self.lost >= lock.tries_without()) else {
            if is_delayed {
                self.delays.wait().await;
            }
            return Ok(true);
        };
        batch.promote();
        if self.held.as_ref().is_none_or(|held| !held.is_held()) {
            self.held = None;
            let entering = lock.enter(self.client, &self.nodes.value);
            self.held = unless_abandoned(batch, entering).await?;
        }
        Ok(self.held.is_some())
    }

    /// Returns `true` if the batch may be written now. Otherwise this call has waited or has closed
    /// the gate, and the known value may be out of date.
    pub(super) async fn admit(
        &mut self,
        state: &mut Option<WriterState>,
        batch: &mut ChangeBatch,
    ) -> Result<bool> {
        let Some(WriterState { gate: Some(gate), write_id, value }) = state else {
            return Ok(true);
        };
        let Some(held) = &self.held else {
            let Some(ticket) = gate.ticket.clone() else { return Ok(true) };
            tracing::debug!(%ticket, "yields to a promoted change");
            self.lost = self.lost.saturating_add(1);
            if unless_abandoned(batch, until_gone(self.client, ticket)).await?.is_some() {
                gate.ticket = None;
                *value = None;
            }
            return Ok(false);
        };
        if gate.ticket.as_ref() == Some(held.path()) {
            return Ok(true);
        }
        let Some(closing) = self.nodes.closing(held.path()) else { return Ok(true) };
        let session = write_id.session().clone();
        let closed = repeat_in_session(self.client, || session.commit(closing.clone())).await;
        let closed = closed.map_err(|error| without_effect(error, DOING));
        if let Some(outcome) = unless_lost(state, closed)?
            && let Some(state) = state
        {
            state.record_view(self.nodes, outcome.ok().and_then(|commit| commit.look));
        }
        Ok(false)
    }

    /// Records that the batch is written. Its lock is released in the background.
    pub(super) fn end(self, state: &mut Option<WriterState>) {
        if self.held.is_some()
            && let Some(WriterState { gate: Some(gate), .. }) = state
        {
            gate.ticket = None;
        }
    }
}

/// Returns the result of a wait; `None` if all callers of the batch were dropped in the meantime.
async fn unless_abandoned<T>(
    batch: &mut ChangeBatch,
    wait: impl Future<Output = Result<T>>,
) -> Result<Option<T>> {
    match select(pin!(wait), pin!(batch.abandoned())).await {
        Either::Left((done, _)) => done.map(Some).map_err(|error| without_effect(error, DOING)),
        Either::Right(_) => Ok(None),
    }
}

/// Waits until a ticket is gone. A node without an owner is not a ticket.
async fn until_gone(client: &Client, ticket: Path) -> Result<()> {
    let has_owner = |view: &View| {
        view.node().is_some_and(|node| node.stat.is_some_and(|it| it.owner.is_some()))
    };
    until(client, Query::until_gone(ticket), |view| !has_owner(view)).await
}
