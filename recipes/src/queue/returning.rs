//! [`ItemReturn`]: an item on its way back into the queue, as its delivery has ended without an acknowledgement.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::Expect;
use synod_core::task;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::line::hold::Hold;
use crate::mutant::mistake;
use crate::queue::consumer_node::ConsumerNode;
use crate::queue::item_name::ItemName;
use crate::queue::place::QueuePlace;
use crate::queue::stock_shared::StockShared;
use crate::stamped::sent::Sent;

/// An item that its consumer does not want any more.
pub(super) struct ItemReturn {
    /// Its claim, which is spent.
    pub(super) hold: Arc<Hold>,
    pub(super) name: ItemName,
    /// Its name among the items that wait.
    pub(super) next: ItemName,
    pub(super) data: Bytes,
    /// Gets the answer.
    pub(super) done: oneshot::Sender<Result<()>>,
}

/// Starts the task that puts items back. It goes on, and keeps the node of this consumer, until the last sender is dropped and
/// all items are back. A drop may send, where nothing can be spawned.
pub(super) fn start(
    place: &Arc<QueuePlace>,
    node: Arc<ConsumerNode>,
    stock: Arc<StockShared>,
    lost: Arc<Notify>,
) -> mpsc::UnboundedSender<ItemReturn> {
    let (sender, returns) = mpsc::unbounded_channel::<ItemReturn>();
    let place = place.clone();
    let work = async move {
        let next = async |mut returns: mpsc::UnboundedReceiver<ItemReturn>| {
            let next = returns.recv().await?;
            Some((next, returns))
        };
        let (place, stock, lost) = (&*place, &*stock, &*lost);
        let all = unfold(returns, next);
        all.for_each_concurrent(None, |item| item.put_back(place, stock, lost)).await;
        drop(node);
    };
    task::spawn(work).let_go();
    sender
}

impl ItemReturn {
    async fn put_back(self, place: &QueuePlace, stock: &StockShared, lost: &Notify) {
        mistake!(ClaimsNeverEnd: return);
        let answer = self.try_to(place).await.map(|returned| stock.add_returned(returned));
        if answer.is_err() {
            // If it is still there, it is lost.
            self.hold.node.abandon();
            lost.notify_one();
        }
        let _heard = self.done.send(answer).is_ok();
    }

    /// Puts the item back. Returns its node.
    async fn try_to(&self, place: &QueuePlace) -> Result<Path> {
        let (node, claim) = (place.claimed(&self.name)?, self.hold.seen_path());
        let txn = place.back(&node, &self.next.to_string(), self.data.clone())?;
        let txn = txn.delete(claim, Expect::Any);
        match place.writes.send_patiently(self.hold.node.session(), txn, Some(&node)).await? {
            Sent::Applied(_) => place.item(&self.next),
            Sent::Lost | Sent::Rejected(_) => Err(self.hold.node.was_lost()),
        }
    }
}
