//! [`QueuePlace`]: where a queue is in the store, and the transactions that move its items there.

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{Expect, Lifetime, RejectReason, Rejected, Txn};

use crate::line::ticket_name::dated;
use crate::mutant::mistake;
use crate::queue::item_name::ItemName;
use crate::stamped::mark::{Marks, roomy};
use crate::stamped::sent::Sent;
use crate::stamped::writes::StampedWrites;

/// What a queue fails while doing.
pub(super) const DOING: &str = "using a queue";

/// Where a queue is. All its transactions are stamped, so each is applied once and its effect is found out.
pub(super) struct QueuePlace {
    pub(super) client: Client,
    pub(super) dir: Path,
    /// The items that wait, persistent.
    pub(super) items: Path,
    /// The items that a consumer has claimed, persistent. A consumer that is gone leaves them here.
    pub(super) claimed: Path,
    /// Their claims, ephemeral, each with the name of its item.
    pub(super) claims: Path,
    /// The processes with claims, ephemeral. Others need not follow the claims themselves.
    pub(super) consumers: Path,
    /// The ids that applications chose, for as long as their items are in the queue.
    ids: Path,
    /// The slots that the items of bounded queues fill.
    pub(super) slots: Path,
    /// The items that no consumer is to have.
    pub(super) dead: Path,
    pub(super) writes: StampedWrites,
}

impl QueuePlace {
    pub(super) fn new(client: &Client, dir: Path) -> Result<Self> {
        let below = |name: &str| roomy(dir.join(name)?);
        Ok(Self {
            client: client.clone(),
            items: below("items")?,
            claimed: below("claimed")?,
            claims: below("claims")?,
            consumers: below("consumers")?,
            ids: below("ids")?,
            slots: below("slots")?,
            dead: below("dead")?,
            writes: StampedWrites::new(client, Marks::lasting(below("marks")?, "queue-", DOING)),
            dir,
        })
    }

    /// An id that no other item has, with the time of now.
    pub(super) fn unique_id(&self) -> String {
        dated(&self.client.random().id(), Some(clock::date()))
    }

    pub(super) fn item(&self, name: &ItemName) -> Result<Path> {
        Ok(self.items.join(&name.to_string())?)
    }

    /// Where an item is while a consumer has claimed it.
    pub(super) fn claimed(&self, name: &ItemName) -> Result<Path> {
        Ok(self.claimed.join(&name.to_string())?)
    }

    pub(super) fn claim(&self, name: &ItemName) -> Result<Path> {
        Ok(self.claims.join(&name.to_string())?)
    }

    /// Adds the creates of an item.
    pub(super) fn with_item(&self, txn: Txn, name: &ItemName, data: Bytes) -> Result<Txn> {
        let create = |txn: Txn, other| txn.create(other, "", Lifetime::Persistent);
        let txn = self.others(name).fold(txn, create);
        Ok(txn.create(self.item(name)?, data, Lifetime::Persistent))
    }

    /// Adds the deletes of an item that waits.
    pub(super) fn without_item(&self, txn: Txn, name: &ItemName) -> Result<Txn> {
        Ok(self.without(txn, self.item(name)?, name))
    }

    /// Adds the deletes of an item whose node this is.
    pub(super) fn without(&self, txn: Txn, node: Path, name: &ItemName) -> Txn {
        let item = txn.delete(node, Expect::Any);
        self.others(name).fold(item, |txn, other| txn.delete(other, Expect::Any))
    }

    /// The nodes that are there as long as an item is: those of its id and of its slot, as far as it has them.
    fn others(&self, name: &ItemName) -> impl Iterator<Item = Path> + use<> {
        let others = [name.id_node(&self.ids), name.slot_node(&self.slots)];
        mistake!(CapacityUnguarded: let others = [name.id_node(&self.ids), None]);
        others.into_iter().flatten()
    }

    /// The transaction that puts the claimed item whose node this is back among those that wait, with this name. Its claim is left.
    pub(super) fn back(&self, claimed: &Path, name: &str, data: Bytes) -> Result<Txn> {
        let txn = Txn::new().delete(claimed, Expect::Any);
        Ok(txn.create(self.items.join(name)?, data, Lifetime::Persistent))
    }

    /// Sends a transaction that removes an item, with more operations. The delete of the node of an id or a slot is left out
    /// if that is missing: another program may have removed it, or have put an item that only seems to have one.
    pub(super) async fn send_removal(
        &self,
        limit: Retry,
        session: &Session,
        own: &mut Txn,
        more: &Txn,
        needed: &Path,
    ) -> Result<Sent> {
        loop {
            let txn = more.ops.iter().cloned().fold(own.clone(), Txn::op);
            match self.writes.send_within(limit.clone(), session, txn, Some(needed)).await? {
                Sent::Rejected(no)
                    if no.index < own.ops.len() && self.is_missing_companion(&no) =>
                {
                    tracing::warn!(path = %no.path, "the node of the id or the slot of an item is missing");
                    own.ops.remove(no.index);
                }
                sent => return Ok(sent),
            }
        }
    }

    /// Returns true if a rejection is that of the node of an id or a slot which is not there.
    fn is_missing_companion(&self, no: &Rejected) -> bool {
        let dir = no.path.parent();
        no.reason == RejectReason::Missing
            && dir.is_some_and(|dir| dir == self.ids || dir == self.slots)
    }

    /// Adds the create of a dead letter.
    pub(super) fn with_dead(&self, txn: Txn, name: &ItemName, data: Bytes) -> Result<Txn> {
        Ok(txn.create(self.dead.join(&name.to_string())?, data, Lifetime::Persistent))
    }

    /// Whether a rejection is that of an id which is in the queue already.
    pub(super) fn is_known_id(&self, no: &Rejected, name: &ItemName) -> bool {
        name.id_node(&self.ids).is_some_and(|id| id == no.path)
    }

    /// Returns true if a rejection is that of some id which is in the queue already.
    pub(super) fn is_used_id(&self, no: &Rejected) -> bool {
        no.path.parent().is_some_and(|dir| dir == self.ids)
    }

    /// Whether a rejection is that of a slot which another item fills.
    pub(super) fn is_filled_slot(&self, no: &Rejected) -> bool {
        no.path.parent().is_some_and(|dir| dir == self.slots)
    }
}
