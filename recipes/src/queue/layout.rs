//! [`QueueShared`]: the nodes of a queue, and the transactions that move its items.
//!
//! # Decisions that are easy to undo by mistake
//!
//! - **A name means one delivery of one item.** A claim renames the item, with the number of its
//!   deliveries and the revision of its first node, and creates an ephemeral node of that name. So
//!   a delete by path means that delivery, also on ZooKeeper, where versions start again; a stale
//!   acknowledgement is rejected; and an item keeps its place without a sequence in its name.
//! - **Each step increases the number of changes, or keeps it and increases the number of
//!   deliveries.** So a name is used once, even if an undelivered claim is taken back, or a dead
//!   letter is revived.
//! - **A failed item waits, not the consumer that had it**: the delay is written in the transaction
//!   that puts the item back.
//! - **A claim moves the item** to another directory, which no consumer follows. So a put, claimed
//!   and acknowledged item is two events per consumer.
//! - **An item without its claim is lost, and is put back after a read.** A process creates an
//!   ephemeral node before its first claim in a session, and every consumer follows these nodes.
//!   Each consumer looks for lost items when one of them goes, at its start, and after an outage.
//!   Claim nodes are deleted once and never re-created. So an item that is listed as claimed, and
//!   whose claim node is absent in a later read, has no consumer.
//! - **A claim is sent until its effect is known**, or until its session is lost, and the claim
//!   with it. So none arrives late.
//! - **The failures of an item are a node in a directory of its own.** A node below the item would
//!   keep other programs from removing it, and its name has no room. The node is written in the
//!   transaction that puts the item back, and deleted in the one that removes the item. That of a
//!   dead letter has the name of its letter, and is created and deleted together with it.
//! - **Only a transaction decides who has an item.** The local knowledge of a process is a hint.
//! - **The attempt to get an item is its own task.** If its caller is gone when it ends, the item
//!   is put back: the caller confirms the receipt. A dropped delivery leaves its return to a task
//!   of its process, because a drop cannot wait.
//! - **An item that was tried in vain pauses, and delays the later ones.** It would lose its place
//!   otherwise.
//! - **A consumer chooses among more items after lost races**, prefers items that its own process
//!   put, and waits where there are fewer. So consumers need not know each other.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{Expect, Lifetime, Query, RejectReason, Rejected, Txn};
use synod_core::{clock, value};

use crate::layout::queue as layout;
use crate::line::ticket_name::dated;
use crate::mutant::mistake;
use crate::queue::failures::{self, FailedDelivery, with_failure};
use crate::queue::item_name::ItemName;
use crate::support::exactly_once::settling::Sent;
use crate::support::exactly_once::write_id::WriteIds;
use crate::support::exactly_once::writes::ExactlyOnceWrites;
use crate::support::names::dir_for_any_name;
use crate::support::time::date;

/// The operation that errors of a queue name.
pub(super) const DOING: &str = "using a queue";

/// The nodes of a queue, shared by its handle and its tasks. All its transactions are marked, so
/// each is applied exactly once and its effect can be determined.
pub(super) struct QueueShared {
    pub(super) client: Client,
    pub(super) dir: Path,
    /// The items that wait, persistent.
    pub(super) items: Path,
    /// The items that a consumer has claimed, persistent. They stay here when their consumer is
    /// gone.
    pub(super) claimed: Path,
    /// The claims of these items, ephemeral, each with the name of its item.
    pub(super) claims: Path,
    /// The processes with claims, ephemeral. Other processes follow these in place of the claims.
    pub(super) consumers: Path,
    /// The ids that applications chose, for as long as their items are in the queue.
    ids: Path,
    /// The slots that the items of bounded queues fill.
    pub(super) slots: Path,
    /// The items that are not delivered to any consumer.
    pub(super) dead: Path,
    /// The failures of items and of dead letters.
    failures: Path,
    pub(super) writes: ExactlyOnceWrites,
}

impl QueueShared {
    pub(super) fn new(client: &Client, dir: Path) -> Result<Self> {
        let below = |name: &str| dir_for_any_name(dir.join(name)?);
        Ok(Self {
            client: client.clone(),
            items: below(layout::ITEMS)?,
            claimed: below(layout::CLAIMED)?,
            claims: below(layout::CLAIMS)?,
            consumers: below(layout::CONSUMERS)?,
            ids: below(layout::IDS)?,
            slots: below(layout::SLOTS)?,
            dead: below(layout::DEAD)?,
            failures: below(layout::FAILURES)?,
            writes: ExactlyOnceWrites::new(
                client,
                WriteIds::persistent(below(layout::MARKS)?, "queue-", DOING),
            ),
            dir,
        })
    }

    /// Creates a unique id that contains the current time.
    pub(super) fn unique_id(&self) -> String {
        dated(&self.client.random().id(), Some(clock::date()))
    }

    pub(super) fn item(&self, name: &ItemName) -> Result<Path> {
        Ok(self.items.join(&name.to_string())?)
    }

    /// Returns the path of an item that a consumer has claimed.
    pub(super) fn claimed(&self, name: &ItemName) -> Result<Path> {
        Ok(self.claimed.join(&name.to_string())?)
    }

    pub(super) fn claim(&self, name: &ItemName) -> Result<Path> {
        Ok(self.claims.join(&name.to_string())?)
    }

    /// Adds the operations that create an item.
    pub(super) fn with_item(&self, txn: Txn, name: &ItemName, data: Bytes) -> Result<Txn> {
        let create = |txn: Txn, other| txn.create(other, "", Lifetime::Persistent);
        let txn = self.others(name).fold(txn, create);
        Ok(txn.create(self.item(name)?, data, Lifetime::Persistent))
    }

    /// Adds the operations that delete an item that waits.
    pub(super) fn without_item(&self, txn: Txn, name: &ItemName) -> Result<Txn> {
        Ok(self.without(txn, self.item(name)?, name))
    }

    /// Adds the operations that delete the item with this node.
    pub(super) fn without(&self, txn: Txn, node: Path, name: &ItemName) -> Txn {
        let item = txn.delete(node, Expect::Any);
        self.others(name).fold(item, |txn, other| txn.delete(other, Expect::Any))
    }

    /// Returns the nodes that exist as long as the item: the nodes of its id, of its slot and of
    /// its failures, if it has them.
    fn others(&self, name: &ItemName) -> impl Iterator<Item = Path> + use<> {
        let (id, slot) = (name.id_node(&self.ids), name.slot_node(&self.slots));
        mistake!(CapacityUnguarded: let slot = None);
        [id, slot, name.failures_node(&self.failures)].into_iter().flatten()
    }

    /// Builds the transaction that puts the claimed item with this node back among the waiting
    /// items, under this name. It does not delete the claim.
    pub(super) fn back(&self, claimed: &Path, name: &str, data: Bytes) -> Result<Txn> {
        let txn = Txn::new().delete(claimed, Expect::Any);
        Ok(txn.create(self.items.join(name)?, data, Lifetime::Persistent))
    }

    /// Sends a transaction that removes an item, with the further operations of `more`. If the node
    /// of the id, the slot or the failures is missing, its operation is left out: another program
    /// may have removed it, or may have put an item whose name only looks like one with an id or a
    /// slot.
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
                    tracing::warn!(path = %no.path, "a node of the id, the slot or the failures of an item is missing");
                    own.ops.remove(no.index);
                }
                sent => return Ok(sent),
            }
        }
    }

    /// Returns true if a transaction was rejected because the node of an id, a slot or failures is
    /// missing.
    fn is_missing_companion(&self, no: &Rejected) -> bool {
        let dir = no.path.parent();
        no.reason == RejectReason::Missing
            && dir.is_some_and(|dir| [&self.ids, &self.slots, &self.failures].contains(&&dir))
    }

    /// Adds the operations that create a dead letter, with the failures of its item.
    pub(super) async fn with_dead(
        &self,
        txn: Txn,
        name: &ItemName,
        data: Bytes,
        reason: &str,
    ) -> Result<Txn> {
        let (_is_there, before) = self.failures_of(name).await?;
        let (letter, node) = (self.dead.join(&name.to_string())?, self.failures_of_dead(name)?);
        let failures = with_failure(&node, &before, (name.delivered, date(), reason))?;
        let txn = txn.create(letter, data, Lifetime::Persistent);
        Ok(txn.create(node, failures, Lifetime::Persistent))
    }

    /// The node of the failures of a dead letter with this name.
    fn failures_of_dead(&self, name: &ItemName) -> Result<Path> {
        Ok(self.failures.join(&name.to_string())?)
    }

    /// Adds the operation that deletes the failures of the dead letter of this name.
    pub(super) fn without_failures_of_dead(&self, txn: Txn, name: &ItemName) -> Result<Txn> {
        Ok(txn.delete(self.failures_of_dead(name)?, Expect::Any))
    }

    /// Builds the transaction that puts a claimed item back under the name `later` after a failure.
    /// It does not delete the claim.
    pub(super) async fn back_after_failure(
        &self,
        claimed: &ItemName,
        later: ItemName,
        data: Bytes,
        reason: &str,
    ) -> Result<Txn> {
        let (is_there, before) = self.failures_of(claimed).await?;
        let later = later.with_failures(true);
        let txn = self.back(&self.claimed(claimed)?, &later.to_string(), data)?;
        let Some(node) = later.failures_node(&self.failures) else { return Ok(txn) };
        let failures = with_failure(&node, &before, (claimed.delivered, date(), reason))?;
        Ok(if is_there {
            txn.set(node, failures, Expect::Any)
        } else {
            txn.create(node, failures, Lifetime::Persistent)
        })
    }

    /// Reads the failures of an item that is not a dead letter. Returns whether their node exists.
    async fn failures_of(&self, name: &ItemName) -> Result<(bool, Vec<FailedDelivery>)> {
        let Some(node) = name.failures_node(&self.failures) else { return Ok((false, vec![])) };
        let view = self.client.read(Query::node(node).local()).await?;
        let node = view.into_node();
        let failures = node.as_ref().map(|node| failures::read(&node.path, &node.data));
        Ok((node.is_some(), failures.unwrap_or_default()))
    }

    /// Reads the failures of all items and dead letters. Each is found by
    /// [`QueueShared::take_failures`].
    pub(super) async fn all_failures(&self) -> Result<BTreeMap<Path, Vec<FailedDelivery>>> {
        let nodes = self.client.read(Query::children(&self.failures)).await?.nodes.into_iter();
        Ok(nodes.map(|node| (node.path.clone(), failures::read(&node.path, &node.data))).collect())
    }

    /// Removes and returns the failures of an item, or of a dead letter.
    pub(super) fn take_failures(
        &self,
        all: &mut BTreeMap<Path, Vec<FailedDelivery>>,
        name: &ItemName,
        is_dead: bool,
    ) -> Option<Vec<FailedDelivery>> {
        let node = if is_dead {
            self.failures_of_dead(name).ok()
        } else {
            name.failures_node(&self.failures)
        };
        all.remove(&node?)
    }

    /// Returns true if a transaction was rejected because the id of this item is in the queue
    /// already.
    pub(super) fn is_known_id(&self, no: &Rejected, name: &ItemName) -> bool {
        name.id_node(&self.ids).is_some_and(|id| id == no.path)
    }

    /// Returns true if a transaction was rejected because some id is in the queue already.
    pub(super) fn is_used_id(&self, no: &Rejected) -> bool {
        no.path.parent().is_some_and(|dir| dir == self.ids)
    }

    /// Returns true if a transaction was rejected because another item fills a slot.
    pub(super) fn is_filled_slot(&self, no: &Rejected) -> bool {
        no.path.parent().is_some_and(|dir| dir == self.slots)
    }
}

/// The serialization of items.
pub(super) struct Codec<T> {
    encode: fn(&Path, &T) -> Result<Bytes>,
    decode: fn(&Path, &Bytes) -> Result<T>,
}

impl<T: Serialize + DeserializeOwned> Codec<T> {
    /// Serializes items as JSON.
    pub(super) const JSON: Self = Self {
        encode: |path, item| value::encode(path, item),
        decode: |path, data| value::decode(path, data),
    };
}

impl Codec<Bytes> {
    /// Stores bytes unchanged.
    pub(super) const RAW: Self =
        Self { encode: |_, item| Ok(item.clone()), decode: |_, data| Ok(data.clone()) };
}

impl<T> Codec<T> {
    pub(super) fn encode(self, path: &Path, item: &T) -> Result<Bytes> {
        (self.encode)(path, item)
    }

    /// Deserializes an item. A panic of its type counts as an error: in a background task each
    /// consumer would meet the same panic again.
    pub(super) fn decode(self, path: &Path, data: &Bytes) -> Result<T> {
        catch_unwind(AssertUnwindSafe(|| (self.decode)(path, data))).unwrap_or_else(|_panic| {
            Err(Error::new(ErrorKind::Corrupt, DOING)
                .at(path)
                .because("the type of the item panicked"))
        })
    }
}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Codec<T> {}
