//! [`StockItem`]: an item of the queue, as one process knows it. Pure.

use std::time::Duration;

use bytes::Bytes;
use synod_core::clock::Instant;
use synod_core::store::{Node, Revision};

use crate::mutant::mistake;
use crate::queue::item_name::{ItemName, Rank};
use crate::stamped::due::Due;

/// An item of the queue, as the store reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StockItem {
    pub(super) name: ItemName,
    /// Of no meaning if its name shows its place.
    pub(super) created: Revision,
    /// `None` if it is too much to be kept, or its name shows its place.
    pub(super) data: Option<Bytes>,
    /// It is not to be delivered before.
    pub(super) due: Option<Due>,
    /// This process has put it.
    pub(super) is_own: bool,
}

/// Data that is there. A mirror leaves out what is too much.
fn some(data: &Bytes) -> Option<Bytes> {
    Some(data).filter(|data| !data.is_empty()).cloned()
}

impl StockItem {
    pub(super) fn new(name: ItemName, node: &Node, now: Instant, date: Duration) -> Self {
        let created = node.stat.map(|stat| stat.created).unwrap_or_default();
        let due = name.date().map(|due| Due::after(due.saturating_sub(date), now));
        mistake!(DelayIgnored: let due = None);
        Self { name, created, data: some(&node.data), due, is_own: false }
    }

    pub(super) fn rank(&self) -> Rank {
        let created = self.created;
        mistake!(QueueIgnoresOrder: let created = Revision::ZERO);
        self.name.rank(created)
    }
}
