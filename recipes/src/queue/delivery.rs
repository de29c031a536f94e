//! [`Delivery`]: the guard of an item that a consumer has claimed.

use std::fmt;
use std::time::Duration;

use futures_core::future::BoxFuture;
use synod_core::error::Result;
use synod_core::held::{Held, Token};
use synod_core::path::Path;
use synod_core::store::{Outcome, Txn};

use crate::queue::claimed_item::ClaimedItem;

/// An item that this consumer has claimed. While it is held, no other consumer has the item.
///
/// Dropping it puts the item back, in its place, and the next consumer gets it; so does the end of the session. It is a guard as
/// those of locks are: see [`Hold`](crate::Hold), and the trait [`Held`].
#[must_use = "the item is put back when this is dropped"]
pub struct Delivery<T> {
    item: T,
    claimed: ClaimedItem,
}

impl<T> Delivery<T> {
    pub(super) fn new(item: T, claimed: ClaimedItem) -> Self {
        Self { item, claimed }
    }

    /// The item.
    pub fn item(&self) -> &T {
        &self.item
    }

    /// The id that its producer gave it.
    pub fn id(&self) -> Option<String> {
        self.claimed.name.id()
    }

    /// Its priority: one with a lower number is delivered earlier.
    pub fn priority(&self) -> u16 {
        self.claimed.name.priority
    }

    /// How often the item was delivered, with this delivery.
    pub fn delivered(&self) -> u32 {
        self.claimed.name.delivered
    }

    /// Returns true if the item is moved to the dead letters when it is put back now, as it was delivered
    /// [so often](crate::Queue::deliver_at_most).
    pub fn is_last(&self) -> bool {
        self.claimed.is_last
    }

    /// Removes the item from the queue, as it is done. It is one transaction, which a stale consumer's never is.
    ///
    /// # Errors
    ///
    /// [`SessionLost`](synod_core::error::ErrorKind::SessionLost) if the claim was lost before: the item is not removed, and another
    /// consumer gets it or has had it. With an unknown effect the item is removed, or is delivered again.
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
    /// If one of them is rejected, it is still held: [`Rejected::index`](synod_core::store::Rejected::index) counts from
    /// the first of them. The look of the transaction is not answered.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`], and what the store says of the operations.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has done all of it, or nothing.
    pub async fn ack_with(&self, txn: Txn) -> Result<Outcome<()>> {
        self.claimed.is_done_with(txn).await
    }

    /// Puts the item back in its place, for any consumer. So does dropping it, in the background.
    ///
    /// # Errors
    ///
    /// As [`Hold::release`](crate::Hold::release).
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background.
    pub async fn put_back(self) -> Result<()> {
        self.claimed.is_put_back().await
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
    /// A dropped call has put it back so, or has not.
    pub async fn put_back_after(&self, after: Duration) -> Result<()> {
        self.claimed.is_put_off(after).await
    }

    /// Moves the item to the dead letters, in one transaction: no consumer gets it any more.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has moved it, or has not.
    pub async fn reject(&self) -> Result<()> {
        self.claimed.is_rejected().await
    }

    /// [`Delivery::ack`] of a delivery that is shared. A part of the work may have acknowledged it already.
    pub(super) async fn is_done(&self) -> Result<()> {
        self.claimed.is_done().await
    }

    /// Takes note that the caller of the claim has it: from here on it is delivered.
    pub(super) fn received(mut self) -> Self {
        self.claimed.is_received = true;
        self
    }

    /// Whether it counts: its session may be uncertain by the time of the answer.
    pub(super) fn is_certain(&self) -> bool {
        self.claimed.hold.is_held()
    }

    /// Whether it was acknowledged, put back or lost.
    pub(super) fn is_over(&self) -> bool {
        self.claimed.is_over()
    }
}

/// Shows no data.
impl<T> fmt::Debug for Delivery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("item", &format_args!("{}", self.claimed.name))
            .field("hold", &self.claimed.hold)
            .finish_non_exhaustive()
    }
}

impl<T: Send + Sync> Held for Delivery<T> {
    fn token(&self) -> Token {
        self.claimed.hold.token()
    }

    fn path(&self) -> &Path {
        self.claimed.hold.path()
    }

    fn seen_path(&self) -> &Path {
        self.claimed.hold.seen_path()
    }

    fn is_held(&self) -> bool {
        self.claimed.hold.is_held()
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.claimed.hold.lost())
    }

    fn txn(&self) -> Txn {
        self.claimed.hold.txn()
    }

    async fn run<U: Send>(&self, work: impl Future<Output = U> + Send) -> Result<U> {
        self.claimed.hold.run(work).await
    }

    async fn release(self) -> Result<()> {
        self.put_back().await
    }
}
