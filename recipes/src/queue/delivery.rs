//! [`Delivery`]: the guard of an item that a consumer has claimed.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::held::{Held, Token};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Outcome, Rejected, Txn};

use crate::keeper::own_nodes::OwnNode;
use crate::line::hold::Hold;
use crate::queue::consumer::{Consumer, Reserved};
use crate::queue::item_name::ItemName;
use crate::queue::place::{DOING, QueuePlace};
use crate::queue::taking::ClaimedItem;
use crate::stamped::date::date;
use crate::stamped::sent::Sent;

/// An item that this consumer has claimed. While it is held, no other consumer has the item.
///
/// Dropping it puts the item back, in its place, and the next consumer gets it; so does the end of the session. It is a guard as
/// those of locks are: see [`Hold`], and the trait [`Held`].
#[must_use = "the item is put back when this is dropped"]
pub struct Delivery<T> {
    place: Arc<QueuePlace>,
    /// What this process knows of the queue is kept as long as it works on an item of it.
    _consumer: Arc<OnceLock<Consumer>>,
    name: ItemName,
    item: T,
    data: Bytes,
    hold: Hold,
    /// Dropped after the hold.
    reserved: Reserved,
    _own: OwnNode,
}

impl<T> Delivery<T> {
    pub(super) fn new(
        place: &Arc<QueuePlace>,
        consumer: &Arc<OnceLock<Consumer>>,
        claimed: ClaimedItem<T>,
    ) -> Self {
        let ClaimedItem { name, item, data, hold, reserved, own } = claimed;
        Self {
            place: place.clone(),
            _consumer: consumer.clone(),
            name,
            item,
            data,
            hold,
            reserved,
            _own: own,
        }
    }

    /// The item.
    pub fn item(&self) -> &T {
        &self.item
    }

    /// The id that its producer gave it.
    pub fn id(&self) -> Option<String> {
        self.name.id()
    }

    /// Its priority: one with a lower number is delivered earlier.
    pub fn priority(&self) -> u16 {
        self.name.priority
    }

    /// How often the item was delivered, with this delivery.
    pub fn delivered(&self) -> u32 {
        self.name.delivered
    }

    /// Removes the item from the queue, as it is done. It is one transaction, which a stale consumer's never is.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`] if the claim was lost before: the item is not removed, and another consumer gets it or has had
    /// it. With an unknown effect the item is removed, or is delivered again.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has removed the item, or puts it back.
    pub async fn ack(self) -> Result<()> {
        self.is_done().await
    }

    /// [`Delivery::ack`] together with other operations: all of them are applied and the item is removed, or none of it happens.
    /// So what they write happens once for each item, however often it is delivered.
    ///
    /// If one of them is rejected, it is still held: [`Rejected::index`] counts from the first of them. The look of the transaction
    /// is not answered.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`], and what the store says of the operations.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has done all of it, or nothing.
    pub async fn ack_with(&self, txn: Txn) -> Result<Outcome<()>> {
        let own = self.removal()?;
        self.end_with(own, txn).await
    }

    /// Puts the item back in its place, for any consumer. So does dropping it, in the background.
    ///
    /// # Errors
    ///
    /// As [`Hold::release`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background.
    pub async fn put_back(self) -> Result<()> {
        self.hold.release().await
    }

    /// Puts the item back in its place, not to be delivered before so much time has passed, by the wall clocks of this consumer and
    /// of the next.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has put it back so, or puts it back at once.
    pub async fn put_back_after(self, after: Duration) -> Result<()> {
        let later = self.name.clone().not_before(date() + after);
        let own = Txn::new()
            .delete(self.place.item(&self.name)?, Expect::Any)
            .delete(self.hold.seen_path(), Expect::Any)
            .create(self.place.item(&later)?, self.data.clone(), Lifetime::Persistent);
        self.ends(own).await
    }

    /// Moves the item to the dead letters, in one transaction: no consumer gets it any more.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`].
    ///
    /// # Cancel safety
    ///
    /// As [`Delivery::ack`].
    pub async fn reject(self) -> Result<()> {
        let own = self.place.with_dead(self.removal()?, &self.name, self.data.clone())?;
        self.ends(own).await
    }

    /// [`Delivery::ack`] of a delivery that is shared. A part of the work may have acknowledged it already.
    pub(super) async fn is_done(&self) -> Result<()> {
        self.ends(self.removal()?).await
    }

    /// Whether it was acknowledged, put back or lost.
    pub(super) fn is_over(&self) -> bool {
        self.hold.node.is_gone()
    }

    /// [`Delivery::put_back`] of a delivery that is shared.
    pub(super) async fn gives_up(&self) -> Result<()> {
        self.hold.give_back().await
    }

    async fn ends(&self, own: Txn) -> Result<()> {
        match self.end_with(own, Txn::new()).await? {
            Outcome::Committed(()) => Ok(()),
            Outcome::Rejected(no) => Err(self.place.writes.refused(&no)),
        }
    }

    /// The transaction that removes the item and its claim.
    fn removal(&self) -> Result<Txn> {
        let txn = self.place.without_item(Txn::new(), &self.name)?;
        Ok(txn.delete(self.hold.seen_path(), Expect::Any))
    }

    /// Ends the claim with this transaction, and other operations in it.
    async fn end_with(&self, own: Txn, more: Txn) -> Result<Outcome<()>> {
        let (count, item) = (own.ops.len(), self.place.item(&self.name)?);
        let txn = more.ops.into_iter().fold(own, Txn::op);
        match self.place.writes.send(self.hold.node.session(), txn, Some(&item)).await? {
            Sent::Applied(_) => {
                self.hold.node.spend();
                self.reserved.is_gone();
                Ok(Outcome::Committed(()))
            }
            Sent::Lost => Err(self.was_lost()),
            Sent::Rejected(no) if no.index < count => Err(self.was_lost()),
            Sent::Rejected(no) => {
                Ok(Outcome::Rejected(Rejected::new(no.index - count, no.path, no.why)))
            }
        }
    }

    fn was_lost(&self) -> Error {
        Error::new(ErrorKind::SessionLost, DOING)
            .at(self.hold.seen_path())
            .because("the claim of the item was lost before")
    }
}

/// Shows no data.
impl<T> fmt::Debug for Delivery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("item", &format_args!("{}", self.name))
            .field("hold", &self.hold)
            .finish_non_exhaustive()
    }
}

impl<T: Send + Sync> Held for Delivery<T> {
    fn token(&self) -> Token {
        self.hold.token()
    }

    fn path(&self) -> &Path {
        self.hold.path()
    }

    fn seen_path(&self) -> &Path {
        self.hold.seen_path()
    }

    fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.hold.lost())
    }

    fn txn(&self) -> Txn {
        self.hold.txn()
    }

    async fn run<U: Send>(&self, work: impl Future<Output = U> + Send) -> Result<U> {
        self.hold.run(work).await
    }

    async fn release(self) -> Result<()> {
        self.put_back().await
    }
}
