//! [`SingleValue`]: one node that is read, decided upon, and written if it is unchanged. It is the
//! base of counters and values.
//!
//! A recipe creates a [`SingleValue`] from a client and a path, and uses
//!
//! - [`SingleValue::read`]: returns the current node;
//! - [`SingleValue::change`]: applies a decision, which is a function of the value, exactly once.
//!
//! A value with a local copy in each client is a [`FollowedValue`](followed::FollowedValue).
//!
//! All these recipes have these properties:
//!
//! - **The node has the value and nothing else**, so other libraries can use it.
//! - **A change is applied once.** The writer has a [write id](crate::support::exactly_once): an
//!   ephemeral node below the path. One transaction sets the write id to the number of the write,
//!   replaces the value, and expects the versions of both.
//! - **A version means one incarnation.** A node with children is not deleted, so while the write
//!   id exists, the node is the one that was read. A value that was deleted and created again is
//!   never mistaken for the earlier one, although it may have the same version.
//! - **The cost is bounded.** Each value that writes has one write id, shared by its clones. It is
//!   removed with the last clone, and with the session. To remove a value in use, remove the tree
//!   at its path.
//! - **A change continues after a lost session.** A change without an effect is written in the next
//!   session. A change with an unknown effect is written again only if the store still has the
//!   value that it was to replace: the old and the new request then exclude each other. Otherwise
//!   the call fails with an unknown effect.
//! - **A write is one round trip.** A writer remembers the value that it wrote last, and writes
//!   again without a read. After a lost race the rejection shows the value, and the write is sent
//!   again: one more round trip.
//! - **Changes of one process are batched.** While a write is in flight, the changes of other tasks
//!   wait. They are decided in order and written together. Each gets the value before and after its
//!   own decision. A decision that fails, is too large for a node, or panics affects its caller
//!   alone, to which a panic is passed on.
//! - **The task that writes may end at any time**, with the runtime of the caller that started it.
//!   Changes that were not sent are returned to their callers, which start another task.
//! - **A decision is valid only on the latest value.** A decision that writes nothing, or that
//!   fails, is confirmed by a read or by the write of another change.
//!
//! # Decisions that are easy to undo by mistake
//!
//! - **The write id is below the value, not beside it.** A node with children is not deleted, so a
//!   remembered version identifies the node that was read, even on ZooKeeper, where versions start
//!   again in a new node.
//! - **The write id comes first in the transaction.** So a rejection distinguishes "this write, or
//!   an earlier one of this writer, was applied" from "another client was faster". In the second
//!   case the version of the value has passed the expected one, and no delayed request is applied.
//! - **One task writes for all clones of a recipe value**, and is not dropped with its callers. A
//!   dropped transaction that only creates would be undone, together with later writes of other
//!   clients.
//! - **The gate of a promotion is checked and never opened.** A promoted change writes the name of
//!   its ticket to the gate unconditionally, so no fast client can prevent it. Every other change
//!   checks the version of the gate in its own transaction. The gate is closed as long as the
//!   ticket exists, so no holder has to open it, and a dead holder delays others no longer than its
//!   session lives.
//! - **The gate has a name, not a path**, because clients in different namespaces share it.
//! - **A write with an unknown effect does not yield.** Its request may still be applied, and only
//!   the write id shows that. It is sent again without the check of the gate.
//! - **The lock of a promotion is next to the value.** A ticket below the value would prevent the
//!   value from being created again after a removal.
//! - **Revisions order the states of a copy.** Versions start again in a new node, so only the
//!   revision of the last write says which of two states is newer. An absent node has none: a read
//!   that began before a write of this client was answered, and found nothing, is repeated.
//! - **Only one task reads a followed value**: after an event, and after every change of the
//!   connection, regardless of the events. Writes of this client are added to the copy when they
//!   are answered.

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

use crate::cell::change::{ChangeEnd, CurrentValue, Decide, Decided, PendingChange, writer_ended};
use crate::cell::promotion::{Enter, Promotion};
use crate::cell::writer::Writer;
use crate::support::metrics::record_change;

pub(crate) mod change;
pub(crate) mod codec;
pub(crate) mod copy;
pub(crate) mod followed;
pub(crate) mod promotion;
mod tries;
mod value_state;
mod writer;
mod writer_state;

/// The maximum number of tasks that a change starts, one after the other, if each ends before it
/// writes.
const MAX_RESTARTS: usize = 8;

/// One value of a recipe, at a path. Clones share the write id and the writes. Nothing is sent
/// before the first use.
#[derive(Clone)]
pub(crate) struct SingleValue {
    writer: Arc<Writer>,
}

impl SingleValue {
    pub(crate) fn new(client: &Client, path: Path, recipe: &'static str) -> Self {
        Self { writer: Arc::new(Writer::new(client, path, recipe)) }
    }

    /// Returns the same value, whose changes take a lock after too many lost races.
    pub(crate) fn promoting(&self, promotion: Promotion, enter: Enter) -> Self {
        let writer = Writer::new(self.writer.client(), self.path().clone(), self.writer.recipe());
        Self { writer: Arc::new(writer.promoting(promotion, enter)) }
    }

    pub(crate) fn path(&self) -> &Path {
        self.writer.path()
    }

    /// Reads the node; `None` if there is none.
    pub(crate) async fn read(&self) -> Result<Option<Node>> {
        self.writer.client().get(self.path()).await
    }

    /// Applies a decision to the latest value: the bytes to write, or `None` to keep the value.
    ///
    /// `decide` may be called several times. The last call counts, and its error is the error of
    /// the change.
    pub(crate) async fn change(
        &self,
        mut decide: impl FnMut(Option<&Bytes>) -> Result<Option<Bytes>> + Send + 'static,
    ) -> Result<Decided> {
        self.decide(move |found| decide(found.data.as_ref())).await
    }

    /// Applies a decision as [`SingleValue::change`] does. The decision also depends on the version
    /// of the node.
    pub(crate) async fn decide(
        &self,
        decide: impl FnMut(&CurrentValue) -> Result<Option<Bytes>> + Send + 'static,
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
        record_change(recipe, took, tries);
        span.record("took", tracing::field::debug(took)).record("tries", tries);
        Ok(decided)
    }

    /// Enqueues a change, and waits for its result.
    async fn enqueued(&self, mut decide: Decide, since: Instant) -> Result<Decided> {
        for _ in 0..MAX_RESTARTS {
            let (reply, end) = oneshot::channel();
            self.writer.clone().enqueue(PendingChange::new(decide, since, reply));
            decide = match end.await {
                Ok(ChangeEnd::Ended(decided)) => {
                    return decided.map_err(|error| error.or_at(self.path()));
                }
                Ok(ChangeEnd::Panicked(payload)) => resume_unwind(payload),
                Ok(ChangeEnd::Unsent(decide)) => decide,
                Err(_dropped) => return Err(writer_ended().at(self.path()).with_unknown_effect()),
            };
        }
        Err(writer_ended().at(self.path()))
    }
}
