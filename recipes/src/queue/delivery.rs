//! [`Delivery`]: the guard of an item that a consumer has claimed.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use synod_core::clock::timeout;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::held::{Held, Release, Token};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::store::{Expect, Outcome, Rejected, Txn};
use tokio::sync::oneshot;

use crate::line::hold::Hold;
use crate::queue::consumer::Consumer;
use crate::queue::item_name::ItemName;
use crate::queue::layout::{DOING, QueueShared};
use crate::queue::returns::ItemReturn;
use crate::support::detached::stopped;
use crate::support::exactly_once::settling::Sent;
use crate::support::time::date;

/// An item that this consumer has claimed. While it is held, no other consumer has the item.
///
/// Dropping the delivery puts the item back in its place, and it is delivered to the next consumer;
/// the end of the session has the same effect. A delivery is a guard, as those of locks: see
/// [`MutexGuard`](crate::lock::MutexGuard) and the trait [`Held`].
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

    /// The id that the producer gave to the item.
    pub fn id(&self) -> Option<String> {
        self.claimed.name.id()
    }

    /// The priority of the item. A lower number is delivered earlier.
    pub fn priority(&self) -> u16 {
        self.claimed.name.priority
    }

    /// The number of deliveries of the item, including this one.
    pub fn delivered(&self) -> u32 {
        self.claimed.name.delivered
    }

    /// Returns true if this is the [last delivery](crate::queue::Queue::max_deliveries) of the
    /// item: if it is put back now, it is moved to the dead letters.
    pub fn is_last(&self) -> bool {
        self.claimed.is_last
    }

    /// Acknowledges the item: removes it from the queue, in one transaction. A consumer whose claim
    /// is lost never removes the item.
    ///
    /// # Errors
    ///
    /// [`SessionLost`](synod_core::error::ErrorKind::SessionLost) if the claim was lost before: the
    /// item is not removed, and another consumer receives it or has received it. If the effect is
    /// unknown, the item is removed, or is delivered again.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has removed the item, or puts it back.
    pub async fn ack(self) -> Result<()> {
        self.ack_shared().await
    }

    /// Acknowledges the item together with other operations: either all are applied and the item is
    /// removed, or nothing changes. So the operations are applied once for each item, however often
    /// it is delivered.
    ///
    /// If one of the operations is rejected, the delivery is still held.
    /// [`Rejected::index`](synod_core::store::Rejected::index) counts from the first of the given
    /// operations. A query of the transaction is not answered.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`], and the errors of the store that concern the operations.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has applied everything, or nothing.
    pub async fn ack_with(&self, txn: Txn) -> Result<Outcome<()>> {
        self.claimed.ack_with(txn).await
    }

    /// Puts the item back in its place, for any consumer. Dropping the delivery does the same in
    /// the background.
    ///
    /// # Errors
    ///
    /// As [`MutexGuard::release`](crate::lock::MutexGuard::release).
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background.
    pub async fn put_back(self) -> Result<()> {
        self.claimed.put_back().await
    }

    /// Puts the item back, and delays its next delivery by `after`: until a date by the wall clock
    /// of this consumer, which is then the [place](crate::queue::PutOptions::at) of the item. After
    /// a delay of zero the item keeps its place.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has put the item back with this delay, or has not.
    pub async fn put_back_after(&self, after: Duration) -> Result<()> {
        self.claimed.put_back_after(after).await
    }

    /// Puts the item back as [`Delivery::put_back_after`] does, after a failure. The first 1,000
    /// bytes of the reason are kept in the [history](crate::queue::QueuedItem::failures) of the
    /// item. After its [last delivery](Delivery::is_last) the next claim moves it to the dead
    /// letters.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`].
    ///
    /// # Cancel safety
    ///
    /// As [`Delivery::put_back_after`].
    pub async fn fail(&self, reason: impl Into<String>, after: Duration) -> Result<()> {
        self.claimed.fail(&reason.into(), after).await
    }

    /// Moves the item to the dead letters, in one transaction: no consumer receives it again. The
    /// first 1,000 bytes of the reason are kept, [for operators](crate::queue::QueuedItem::reason).
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has moved the item, or has not.
    pub async fn reject(&self, reason: impl Into<String>) -> Result<()> {
        self.claimed.reject(&reason.into()).await
    }

    /// Acknowledges the item of a shared delivery. A part of the work may have done so already.
    pub(super) async fn ack_shared(&self) -> Result<()> {
        self.claimed.ack().await
    }

    /// Records that the caller of the claim has received the item: from now on the claim counts as
    /// a delivery.
    pub(super) fn mark_received(mut self) -> Self {
        self.claimed.is_received = true;
        self
    }

    /// Returns true if the claim is certainly held: its session may have become uncertain before
    /// the answer.
    pub(super) fn is_certain(&self) -> bool {
        self.claimed.hold.is_held()
    }

    /// Returns true if the item was acknowledged or put back, or if the claim was lost.
    pub(super) fn is_over(&self) -> bool {
        self.claimed.is_over()
    }
}

/// Omits the data.
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
}

impl<T: Send + Sync> Release for Delivery<T> {
    async fn release(self) -> Result<()> {
        self.put_back().await
    }
}

/// An item that this process has claimed. Dropping it puts the item back.
pub(super) struct ClaimedItem {
    pub(super) shared: Arc<QueueShared>,
    pub(super) consumer: Arc<OnceLock<Consumer>>,
    pub(super) name: ItemName,
    pub(super) data: Bytes,
    pub(super) hold: Arc<Hold>,
    /// True if this is the last delivery of the item.
    pub(super) is_last: bool,
    /// True if the caller of the claim has received the item.
    pub(super) is_received: bool,
}

impl ClaimedItem {
    /// Removes the item and its claim.
    pub(super) async fn ack(&self) -> Result<()> {
        self.end(self.removal()?).await
    }

    /// Removes the item and its claim, together with other operations.
    pub(super) async fn ack_with(&self, more: Txn) -> Result<Outcome<()>> {
        self.end_with(self.removal()?, more).await
    }

    /// Moves the item to the dead letters.
    pub(super) async fn reject(&self, reason: &str) -> Result<()> {
        let dead = self.shared.with_dead(Txn::new(), &self.name, self.data.clone(), reason).await?;
        match self.end_with(self.removal()?, dead).await? {
            Outcome::Committed(()) => Ok(()),
            Outcome::Rejected(no) => Err(self.shared.writes.refused(&no)),
        }
    }

    /// Puts the item back, and delays its next delivery.
    pub(super) async fn put_back_after(&self, after: Duration) -> Result<()> {
        let (node, later) = (self.shared.claimed(&self.name)?, self.later(after).to_string());
        let own = self.shared.back(&node, &later, self.data.clone())?;
        self.end(own.delete(self.hold.seen_path(), Expect::Any)).await
    }

    /// Puts the item back as [`ClaimedItem::put_back_after`] does, and keeps the reason.
    pub(super) async fn fail(&self, reason: &str, after: Duration) -> Result<()> {
        let (later, data) = (self.later(after), self.data.clone());
        let own = self.shared.back_after_failure(&self.name, later, data, reason).await?;
        self.end(own.delete(self.hold.seen_path(), Expect::Any)).await
    }

    /// The name of the item that is put back with this delay. Without one it keeps its place.
    fn later(&self, after: Duration) -> ItemName {
        match after {
            Duration::ZERO => self.name.clone(),
            after => self.name.clone().not_before(date().saturating_add(after)),
        }
    }

    /// Puts the item back, and waits for the answer within the time limit of a call. A dropped call
    /// continues in the background.
    pub(super) async fn put_back(&self) -> Result<()> {
        if self.is_over() {
            return Err(self.hold.node.was_lost());
        }
        let answer = timeout(self.hold.node.session().timeout(), self.begin_return());
        match answer.await {
            Ok(answer) => answer.unwrap_or_else(|_gone| Err(stopped(DOING))),
            Err(_elapsed) => Err(Error::new(ErrorKind::Unreachable, DOING)
                .at(self.hold.seen_path())
                .because("the item is put back once the store answers")
                .with_unknown_effect()),
        }
    }

    /// Returns true if the item was acknowledged or put back, or if the claim was lost.
    pub(super) fn is_over(&self) -> bool {
        self.hold.node.is_gone()
    }

    /// Starts to put the item back. From now on it is not held any more.
    fn begin_return(&self) -> oneshot::Receiver<Result<()>> {
        self.hold.node.spend();
        let (sender, answer) = oneshot::channel();
        let (hold, name, data) = (self.hold.clone(), self.name.clone(), self.data.clone());
        // A claim that no caller received is not a delivery.
        let next = if self.is_received { name.clone() } else { name.undelivered() };
        if let Some(consumer) = self.consumer.get() {
            consumer.return_item(ItemReturn { hold, name, next, data, sender });
        }
        answer
    }

    async fn end(&self, own: Txn) -> Result<()> {
        match self.end_with(own, Txn::new()).await? {
            Outcome::Committed(()) => Ok(()),
            Outcome::Rejected(no) => Err(self.shared.writes.refused(&no)),
        }
    }

    /// Builds the transaction that removes the item and its claim.
    fn removal(&self) -> Result<Txn> {
        let node = self.shared.claimed(&self.name)?;
        let txn = self.shared.without(Txn::new(), node, &self.name);
        Ok(txn.delete(self.hold.seen_path(), Expect::Any))
    }

    /// Ends the claim by `own`, together with the operations of `more`.
    async fn end_with(&self, own: Txn, more: Txn) -> Result<Outcome<()>> {
        let (mut own, node) = (own, self.shared.claimed(&self.name)?);
        let session = self.hold.node.session();
        let limit = Retry::until_elapsed(session.timeout());
        let sent = self.shared.send_removal(limit, session, &mut own, &more, &node).await?;
        let count = own.ops.len();
        match sent {
            Sent::Applied(_) => {
                self.hold.node.spend();
                Ok(Outcome::Committed(()))
            }
            Sent::Lost => Err(self.hold.node.was_lost()),
            Sent::Rejected(no) if no.index < count => Err(self.hold.node.was_lost()),
            Sent::Rejected(no) => {
                Ok(Outcome::Rejected(Rejected::new(no.index - count, no.path, no.reason)))
            }
        }
    }
}

impl Drop for ClaimedItem {
    fn drop(&mut self) {
        if !self.is_over() {
            let _answer = self.begin_return();
        } else if self.hold.node.was_removed() {
            // The claim was removed by another client: the item has no consumer now.
            self.consumer.get().into_iter().for_each(Consumer::recover_lost_items);
        }
    }
}
