//! [`BatchTries`]: the tries to write a batch, and what it waits for before the next one.

use std::pin::pin;

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::Result;
use synod_core::held::Held;
use synod_core::path::Path;
use synod_core::retry::{Delays, Retry};
use synod_core::store::{Query, View};

use crate::cell::batch::Batch;
use crate::cell::gate::Nodes;
use crate::cell::mark::harmless;
use crate::cell::place::{Place, unless_lost};
use crate::cell::promotion::Lock;
use crate::cell::repeat::repeat_in_session;
use crate::cell::until::until;
use crate::mutant::mistake;

/// The tries to write a batch.
pub(super) struct BatchTries<'a> {
    client: &'a Client,
    nodes: &'a Nodes,
    lock: Option<&'a Lock>,
    /// How many were lost, and how often the batch stood back.
    lost: u32,
    /// How many were lost since the start.
    races: u32,
    /// The delays after every second lost try.
    delays: Option<Delays>,
    /// Whether to wait for one of them.
    is_late: bool,
    /// The lock, if the batch is promoted.
    held: Option<Box<dyn Held>>,
}

impl<'a> BatchTries<'a> {
    pub(super) fn new(client: &'a Client, nodes: &'a Nodes, lock: Option<&'a Lock>) -> Self {
        Self { client, nodes, lock, lost: 0, races: 0, delays: None, is_late: false, held: None }
    }

    /// Whether writes stand back for promoted changes: only those that are not promoted.
    pub(super) fn stand_back(&self) -> bool {
        mistake!(PromotedKeepsNobodyOut: return false);
        self.held.is_none()
    }

    /// Counts a try that was lost. One that is to stand back is counted when it does.
    pub(super) fn lose(&mut self, place: Option<&Place>) {
        let gate = place.and_then(|place| place.gate.as_ref());
        if self.stand_back() && gate.is_some_and(|gate| gate.ticket.is_some()) {
            return;
        }
        self.lost = self.lost.saturating_add(1);
        self.races += 1;
        self.is_late = self.races.is_multiple_of(2);
    }

    /// Waits before the next try: for the lock if too many were lost, and otherwise for some time before every second one.
    /// Returns whether any caller still waits.
    ///
    /// A try after a delay starts from a value that may be out of date. If it is lost, its rejection shows the value, and the
    /// next one is at once: no other try has a chance while other clients write.
    pub(super) async fn ready(&mut self, batch: &mut Batch) -> Result<bool> {
        mistake!(LostRaceStarves: if self.lost > 0 {
            std::future::pending::<()>().await;
        });
        let is_late = std::mem::take(&mut self.is_late);
        let Some(lock) = self.lock.filter(|lock| self.lost >= lock.tries_without()) else {
            if is_late {
                let optimistic = || Retry::optimistic().delays(self.client.random());
                let delays = self.delays.get_or_insert_with(optimistic);
                clock::sleep(delays.next().unwrap_or_default()).await;
            }
            return Ok(true);
        };
        batch.promote();
        if self.held.as_ref().is_none_or(|held| !held.is_held()) {
            self.held = None;
            let entering = lock.enter(self.client, &self.nodes.cell);
            self.held = unless_given_up(batch, entering).await?;
        }
        Ok(self.held.is_some())
    }

    /// Whether the batch may be written now. If not, it waited or closed the gate, and what was known may be another.
    pub(super) async fn admit(
        &mut self,
        place: &mut Option<Place>,
        batch: &mut Batch,
    ) -> Result<bool> {
        let Some(Place { gate: Some(gate), mark, value }) = place else { return Ok(true) };
        let Some(held) = &self.held else {
            let Some(ticket) = gate.ticket.clone() else { return Ok(true) };
            tracing::debug!(%ticket, "a promoted change goes first");
            self.lost = self.lost.saturating_add(1);
            if unless_given_up(batch, until_gone(self.client, ticket)).await?.is_some() {
                gate.ticket = None;
                *value = None;
            }
            return Ok(false);
        };
        if gate.ticket.as_ref() == Some(held.path()) {
            return Ok(true);
        }
        let Some(closing) = self.nodes.closing(held.path()) else { return Ok(true) };
        let session = mark.session().clone();
        let closed = repeat_in_session(self.client, || session.commit(closing.clone())).await;
        if let Some(outcome) = unless_lost(place, closed.map_err(harmless))?
            && let Some(place) = place
        {
            place.see(self.nodes, outcome.ok().and_then(|commit| commit.look));
        }
        Ok(false)
    }

    /// The batch is written. Its lock is released in the background.
    pub(super) fn end(self, place: &mut Option<Place>) {
        if self.held.is_some()
            && let Some(Place { gate: Some(gate), .. }) = place
        {
            gate.ticket = None;
        }
    }
}

/// The result of a wait; `None` if all callers of the batch have gone meanwhile.
async fn unless_given_up<T>(
    batch: &mut Batch,
    wait: impl Future<Output = Result<T>>,
) -> Result<Option<T>> {
    match select(pin!(wait), pin!(batch.given_up())).await {
        Either::Left((done, _)) => done.map(Some).map_err(harmless),
        Either::Right(_) => Ok(None),
    }
}

/// Waits until a ticket is gone. A node without an owner is none.
async fn until_gone(client: &Client, ticket: Path) -> Result<()> {
    let owned = |view: &View| {
        view.node().is_some_and(|node| node.stat.is_some_and(|it| it.owner.is_some()))
    };
    until(client, Query::until_gone(ticket), |view| !owned(view)).await
}
