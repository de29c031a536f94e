//! [`ClaimedItem`]: an item that this process has claimed, and the ways in which that ends.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use synod_core::clock::timeout;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::retry::Retry;
use synod_core::store::{Expect, Outcome, Rejected, Txn};
use tokio::sync::oneshot;

use crate::line::hold::Hold;
use crate::queue::consumer::Consumer;
use crate::queue::item_name::ItemName;
use crate::queue::place::{DOING, QueuePlace};
use crate::queue::returning::ItemReturn;
use crate::stamped::date::date;
use crate::stamped::handing::stopped;
use crate::stamped::sent::Sent;

/// An item that this process has claimed. Dropping it puts the item back.
pub(super) struct ClaimedItem {
    pub(super) place: Arc<QueuePlace>,
    pub(super) consumer: Arc<OnceLock<Consumer>>,
    pub(super) name: ItemName,
    pub(super) data: Bytes,
    pub(super) hold: Arc<Hold>,
    /// Set if it is not to be delivered once more.
    pub(super) is_last: bool,
    /// Set if the caller of the claim has it.
    pub(super) is_received: bool,
}

impl ClaimedItem {
    /// Removes the item and its claim.
    pub(super) async fn is_done(&self) -> Result<()> {
        self.ends(self.removal()?).await
    }

    /// [`ClaimedItem::is_done`] with other operations.
    pub(super) async fn is_done_with(&self, more: Txn) -> Result<Outcome<()>> {
        self.end_with(self.removal()?, more).await
    }

    /// Moves the item to the dead letters.
    pub(super) async fn is_rejected(&self) -> Result<()> {
        let dead = self.place.with_dead(Txn::new(), &self.name, self.data.clone())?;
        match self.end_with(self.removal()?, dead).await? {
            Outcome::Committed(()) => Ok(()),
            Outcome::Rejected(no) => Err(self.place.writes.refused(&no)),
        }
    }

    /// Puts the item back, not to be delivered before so much time has passed.
    pub(super) async fn is_put_off(&self, after: Duration) -> Result<()> {
        let later = self.name.clone().not_before(date().saturating_add(after)).to_string();
        let own = self.place.back(&self.place.claimed(&self.name)?, &later, self.data.clone())?;
        self.ends(own.delete(self.hold.seen_path(), Expect::Any)).await
    }

    /// Puts the item back, and waits for that as long as for a call. A dropped call goes on in the background.
    pub(super) async fn is_put_back(&self) -> Result<()> {
        if self.is_over() {
            return Err(self.hold.node.was_lost());
        }
        let answer = timeout(self.hold.node.session().timeout(), self.begin_return());
        match answer.await {
            Ok(answer) => answer.unwrap_or_else(|_gone| Err(stopped(DOING))),
            Err(_elapsed) => Err(Error::new(ErrorKind::Unreachable, DOING)
                .at(self.hold.seen_path())
                .because("the item is put back when the store answers")
                .with_unknown_effect()),
        }
    }

    /// Whether it was acknowledged, put back or lost.
    pub(super) fn is_over(&self) -> bool {
        self.hold.node.is_gone()
    }

    /// Begins to put the item back. From here on it is not held any more.
    fn begin_return(&self) -> oneshot::Receiver<Result<()>> {
        self.hold.node.spend();
        let (done, answer) = oneshot::channel();
        let (hold, name, data) = (self.hold.clone(), self.name.clone(), self.data.clone());
        // What no caller got is no delivery.
        let next = if self.is_received { name.clone() } else { name.undelivered() };
        if let Some(consumer) = self.consumer.get() {
            consumer.take_back(ItemReturn { hold, name, next, data, done });
        }
        answer
    }

    async fn ends(&self, own: Txn) -> Result<()> {
        match self.end_with(own, Txn::new()).await? {
            Outcome::Committed(()) => Ok(()),
            Outcome::Rejected(no) => Err(self.place.writes.refused(&no)),
        }
    }

    /// The transaction that removes the item and its claim.
    fn removal(&self) -> Result<Txn> {
        let node = self.place.claimed(&self.name)?;
        let txn = self.place.without(Txn::new(), node, &self.name);
        Ok(txn.delete(self.hold.seen_path(), Expect::Any))
    }

    /// Ends the claim with this transaction, and other operations in it.
    async fn end_with(&self, own: Txn, more: Txn) -> Result<Outcome<()>> {
        let (mut own, node) = (own, self.place.claimed(&self.name)?);
        let session = self.hold.node.session();
        let limit = Retry::until_elapsed(session.timeout());
        let sent = self.place.send_removal(limit, session, &mut own, &more, &node).await?;
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
            // Without its claim it is lost.
            self.consumer.get().into_iter().for_each(Consumer::look_for_lost_items);
        }
    }
}
