//! [`StockShared`]: the stock of one process, shared by the tasks that follow the queue, try items,
//! and return them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::Node;
use tokio::sync::Notify;

use crate::mirror::event::CacheEvent;
use crate::queue::arrivals::StockItem;
use crate::queue::stock::Stock;
use crate::support::time::date;

/// The stock of a process, with its lock and the notification of changes.
#[derive(Default)]
pub(super) struct StockShared {
    stock: Mutex<Stock>,
    pub(super) changed: Notify,
}

/// An item that a task of this process tries. No other task tries it meanwhile.
pub(super) struct Reserved {
    stock: Arc<StockShared>,
    pub(super) item: StockItem,
    was_tried: bool,
}

impl StockShared {
    /// Adds an item that this process has put back: its next claim does not depend on the time of
    /// the store's report.
    pub(super) fn add_returned(&self, node: Path) {
        self.lock().add(&Node::new(node), clock::now(), date());
        self.changed.notify_waiters();
    }

    /// Applies the changes that the store reported.
    pub(super) fn apply(&self, events: Vec<CacheEvent>) {
        let (mut stock, now) = (self.lock(), clock::now());
        for event in events {
            match event {
                CacheEvent::Created(node) | CacheEvent::Updated { node, .. } => {
                    stock.add(&node, now, date());
                }
                CacheEvent::Deleted(node) => stock.remove(node.path.name()),
                CacheEvent::Reset => stock.clear(),
                CacheEvent::Complete(_) | CacheEvent::Stale => {}
            }
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reserved {
    pub(super) fn new(stock: &Arc<StockShared>, item: StockItem) -> Self {
        Self { stock: stock.clone(), item, was_tried: true }
    }

    /// Ends the reservation of an item for which no request was sent.
    pub(super) fn release_untried(mut self) {
        self.was_tried = false;
    }

    /// Records that this process cannot move the item: the item is not tried again.
    pub(super) fn set_aside(&self) {
        let name = self.item.name.to_string();
        self.stock.lock().set_aside(&name);
    }

    /// Records that the item is no longer in the queue under this name: a name is never used again.
    pub(super) fn record_gone(&self) {
        let name = self.item.name.to_string();
        self.stock.lock().record_gone(&name);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let name = self.item.name.to_string();
        self.stock.lock().release(&name, self.was_tried, clock::now());
        self.stock.changed.notify_waiters();
    }
}
