//! Writes to a ticket, and the version that they expect.

use bytes::Bytes;
use synod_core::error::Result;
use synod_core::store::{Commit, Expect, Outcome, Query, RejectReason, Stat, Txn};

use crate::line::seen_version::SeenVersion;
use crate::line::ticket_node::TicketNode;

impl TicketNode {
    /// From now on writes and checks expect the last version that was seen: see [`SeenVersion`].
    pub(in crate::line) fn counting_by_version(mut self) -> Self {
        self.seen_version = self.node.stat.map(SeenVersion::of);
        self
    }

    pub(in crate::line) fn counts_by_version(&self) -> bool {
        self.seen_version.is_some()
    }

    /// The version that a write to the node, or a transaction under it, expects.
    pub(crate) fn expected(&self) -> Expect {
        self.seen_version.as_ref().map_or(Expect::Any, SeenVersion::expected)
    }

    /// Records what is at its path. Returns whether that is this ticket.
    pub(crate) fn learn(&self, stat: Stat) -> bool {
        self.seen_version.as_ref().is_none_or(|seen| seen.learn(stat))
    }

    /// Replaces the data of the ticket, if it exists: [`Session::commit`] of one operation. If writes expect the
    /// version that was seen last, and another client wrote to the ticket meanwhile, this reads the version and writes
    /// again.
    pub(crate) async fn write(&self, data: Bytes) -> Result<Outcome> {
        loop {
            let set = Txn::new().set(self.path().clone(), data.clone(), self.expected());
            let outcome = self.session.commit(set).await?;
            match &outcome {
                Outcome::Rejected(no)
                    if no.reason == RejectReason::OtherVersion && self.look().await? => {}
                Outcome::Committed(Commit { results: done, .. }) => {
                    let _own = done.first().and_then(|it| it.stat).is_none_or(|it| self.learn(it));
                    return Ok(outcome);
                }
                Outcome::Rejected(_) => return Ok(outcome),
            }
        }
    }

    /// Reads the version of the ticket if writes expect it. Returns whether the ticket exists, as far as that shows.
    pub(crate) async fn look(&self) -> Result<bool> {
        if !self.counts_by_version() {
            return Ok(true);
        }
        let node = Query::node(self.path().clone()).names_only();
        let stat = self.session.read(node).await?.into_node().and_then(|node| node.stat);
        Ok(stat.is_some_and(|stat| self.learn(stat)))
    }
}
