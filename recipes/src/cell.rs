//! [`Cell`]: one node that is read, decided upon, and written if it is unchanged: the base of counters and values.
//!
//! A recipe makes a [`Cell`] of a client and a path, and gets from it
//!
//! - [`Cell::read`]: the node as it is now;
//! - [`Cell::change`]: a decision, which is a function of the value, applied to the value exactly once.
//!
//! A value with a copy in each client is a [`Followed`](followed::Followed) cell.
//!
//! What only waits for a state of the store, such as a barrier, needs no cell, and calls [`until`](until::until) and
//! [`repeat`](repeat::repeat); a wait of another kind pauses with [`Patience`](patience::Patience).
//!
//! What holds for all recipes:
//!
//! - **The cell holds the value and nothing else**, so that other libraries can use it.
//! - **A change is applied once.** A cell writes with a [`Mark`](mark::Mark): an ephemeral node of its own below the
//!   path. One transaction replaces the data of the mark by the number of the write, and the value by the next one, and
//!   expects the versions of both. If its answer is lost, the same transaction is sent again. It is applied at most once,
//!   because it changes the version of the mark. If it is rejected because of the mark, the mark has the number of the
//!   write that was applied; if it is rejected because of the value, it was not applied before, and never will be.
//! - **A version means one incarnation.** A node with children is not deleted, so while the mark is there, the node is the
//!   one that was read. A value that was deleted and created again is never taken for the earlier one, although it may
//!   have the same version.
//! - **The cost is bounded.** There is one mark for each value of a recipe that writes, shared by its clones. It is removed
//!   with the last clone, and with the session. To remove a value in use, remove the tree at its path.
//! - **A lost session is survived.** A change that certainly did not happen is made in the next session. If it may have
//!   happened, the cell looks whether the value is still the one that was to be replaced. Then no other write was applied,
//!   and the change is made on that version: the old request and the new one exclude each other. Otherwise the effect is
//!   unknown, and the error says so.
//! - **One round trip.** A cell remembers the value that it wrote last, and writes again without a read. A write that
//!   another client was faster than costs one more: the rejection shows the value, and the write is sent again.
//! - **Changes of one process travel together.** While a write is on its way, the changes of other tasks wait. They are
//!   decided one after the other, and written at once. Each gets the value before and after its own. A decision that fails, is too
//!   large for a node, or panics, is that of its caller alone, where the panic goes on.
//! - **The task that writes may end at any time**, as the runtime of the caller that has started it does. The changes that it has not
//!   sent go back to their callers, which start another one.
//! - **A decision counts only on the latest value.** One that writes nothing, or that fails, is confirmed by a read or by
//!   the write of another change.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::clock::{self, Instant};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::Node;
use tokio::sync::oneshot;
use tracing::Instrument;

use crate::cell::batch::{CellState, ChangeEnd, Decide, Decided, Pending, stopped};
use crate::cell::promotion::{Enter, Promotion};
use crate::cell::writer::Writer;

mod batch;
pub(crate) mod copy;
pub(crate) mod followed;
mod follower;
mod gate;
pub(crate) mod guarded;
pub(crate) mod json;
mod mark;
mod page;
pub(crate) mod patience;
mod place;
pub(crate) mod promotion;
pub(crate) mod repeat;
mod replace;
mod tries;
pub(crate) mod until;
pub(crate) mod update;
mod writer;

#[cfg(feature = "metrics")]
mod meter;
#[cfg(not(feature = "metrics"))]
mod unmetered;
#[cfg(not(feature = "metrics"))]
use unmetered as meter;

/// The number of tasks that a change starts, one after the other, if each ends before it writes.
const RESTARTS: usize = 8;

/// One value of a recipe, at a path. Clones share the mark and the writes. Costs nothing to make.
#[derive(Clone)]
pub(crate) struct Cell {
    writer: Arc<Writer>,
}

impl Cell {
    pub(crate) fn new(client: &Client, path: Path, recipe: &'static str) -> Self {
        Self { writer: Arc::new(Writer::new(client, path, recipe)) }
    }

    /// The same value, whose changes go on under a lock when they have lost too often.
    pub(crate) fn promoting(&self, promotion: Promotion, enter: Enter) -> Self {
        let writer = Writer::new(self.writer.client(), self.path().clone(), self.writer.recipe());
        Self { writer: Arc::new(writer.promoting(promotion, enter)) }
    }

    pub(crate) fn path(&self) -> &Path {
        self.writer.path()
    }

    /// The node as it is now, if there is one.
    pub(crate) async fn read(&self) -> Result<Option<Node>> {
        self.writer.client().get(self.path()).await
    }

    /// Applies a decision to the latest value: the bytes to write, or `None` to keep what is there.
    ///
    /// `decide` may be called several times. The last call counts, and its error is the error of the change.
    pub(crate) async fn change(
        &self,
        mut decide: impl FnMut(Option<&Bytes>) -> Result<Option<Bytes>> + Send + 'static,
    ) -> Result<Decided> {
        self.decide(move |found| decide(found.data.as_ref())).await
    }

    /// [`Cell::change`] by a decision that also depends on the version of the node.
    pub(crate) async fn decide(
        &self,
        decide: impl FnMut(&CellState) -> Result<Option<Bytes>> + Send + 'static,
    ) -> Result<Decided> {
        let recipe = self.writer.recipe();
        let span = tracing::debug_span!(
            "changing",
            recipe,
            path = %self.path(),
            took = tracing::field::Empty,
            tries = tracing::field::Empty,
        );
        let since = clock::now();
        let decided = self.enqueued(Box::new(decide), since).instrument(span.clone()).await?;
        let (took, tries) = (decided.cost.time, decided.cost.tries);
        meter::changed(recipe, took, tries);
        span.record("took", tracing::field::debug(took)).record("tries", tries);
        Ok(decided)
    }

    /// Waits until a change has come to its end.
    async fn enqueued(&self, mut decide: Decide, since: Instant) -> Result<Decided> {
        for _ in 0..RESTARTS {
            let (tell, told) = oneshot::channel();
            self.writer.clone().enqueue(Pending::new(decide, since, tell));
            decide = match told.await {
                Ok(ChangeEnd::Ended(decided)) => {
                    return decided.map_err(|error| error.or_at(self.path()));
                }
                Ok(ChangeEnd::Panicked(payload)) => resume_unwind(payload),
                Ok(ChangeEnd::Unsent(decide)) => decide,
                Err(_dropped) => return Err(stopped().at(self.path()).with_unknown_effect()),
            };
        }
        Err(stopped().at(self.path()))
    }
}

/// Shows the path only: the value is the application's.
impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.path(), f)
    }
}
