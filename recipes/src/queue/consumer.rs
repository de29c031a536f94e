//! [`Consumer`]: the items of a queue as one process sees them, and the choice of the item to try.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use synod_core::clock;
use synod_core::error::Result;
use synod_core::random::Random;
use synod_core::session::Session;
use synod_core::store::{Node, Query};
use synod_core::task::{self, Task};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use crate::mirror::Mirror;
use crate::mirror::event::CacheEvent;
use crate::mirror::extent::Extent;
use crate::mirror::reader::EventReader;
use crate::mutant::mistake;
use crate::queue::layout::{DOING, QueueShared};
use crate::queue::returns::{ConsumerNode, ItemReturn, recover_lost_items, spawn_returns};
use crate::queue::stock::Pick;
use crate::queue::stock_shared::{Reserved, StockShared};
use crate::support::exactly_once::old_write_ids::remove_old_write_ids;
use crate::support::time::date;
use crate::support::wait::{ReportWait, until_news};

/// The maximum size of item data that a consumer caches. Larger data is read when it is needed.
const MAX_KEPT_DATA: usize = 1_024;

/// The minimum and the maximum time that a consumer waits while there are fewer items than it
/// chooses from.
const WAIT: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(5));

/// The items of a queue, followed for as long as this value exists.
///
/// A consumer first tries the first item. After each try that it lost to another consumer, it
/// chooses among four times as many items; after each other try, among one thirty-second less.
/// Among these it prefers items that its own process has put, which need not be read. While there
/// are fewer items than it chooses from, it waits for changes, about as long as another consumer
/// needs to take them (the duration of its own last request), and then chooses among half as many.
/// So consumers of different processes seldom try the same item, and a single consumer receives the
/// items in order.
pub(super) struct Consumer {
    stock: Arc<StockShared>,
    items: Mirror,
    /// The processes with claims.
    consumers: Mirror,
    /// The node of this process.
    node: Arc<ConsumerNode>,
    returns: UnboundedSender<ItemReturn>,
    /// Requests the recovery of items whose consumers are gone.
    lost: Arc<Notify>,
    width: Width,
    /// The duration of the last request for items, in microseconds.
    last_took: AtomicU64,
    _tasks: [Task; 4],
}

impl Consumer {
    /// Starts to follow the queue. Nothing has been sent when this returns.
    pub(super) fn start(shared: &Arc<QueueShared>) -> Self {
        let items = Extent::children(shared.items.clone())
            .data_up_to(MAX_KEPT_DATA)
            .deletions_as_reported();
        let items = items.known_by_name(|_name| true);
        let items = Mirror::start(&shared.client, items, "queue");
        let consumers = Extent::children(shared.consumers.clone()).names_only();
        let consumers = consumers.deletions_as_reported().known_by_name(|_name| true);
        let consumers = Mirror::start(&shared.client, consumers, "queue");
        let (stock, lost) = (Arc::<StockShared>::default(), Arc::<Notify>::default());
        let following_items = follow_items(stock.clone(), items.reader());
        let following_consumers = follow_consumers(lost.clone(), consumers.reader());
        let recovering = recover_lost_items(shared.clone(), lost.clone());
        let removing_marks = remove_old_write_ids(shared.writes.old_write_ids());
        let tasks = [
            task::spawn(following_items),
            task::spawn(following_consumers),
            task::spawn(recovering),
            task::spawn(removing_marks),
        ];
        let node = Arc::new(ConsumerNode::new(shared.consumers.clone()));
        let returns = spawn_returns(shared, node.clone(), stock.clone(), lost.clone());
        let (width, last_took) = (Width::default(), AtomicU64::new(0));
        Self { stock, items, consumers, node, returns, lost, width, last_took, _tasks: tasks }
    }

    /// Creates the node of this process for a session, unless it exists.
    pub(super) async fn ensure_node(&self, session: &Session) -> Result<()> {
        self.node.ensure(session).await
    }

    /// Requests the recovery of items whose claims are gone.
    pub(super) fn recover_lost_items(&self) {
        self.lost.notify_one();
    }

    /// Passes an item to the task that puts items back.
    pub(super) fn return_item(&self, item: ItemReturn) {
        // If the task is gone, the runtime ends, and the session with it.
        let _is_received = self.returns.send(item).is_ok();
    }

    /// Waits for items that may be tried, and reserves them: one, and at most `max - 1` items that
    /// follow it.
    pub(super) async fn reserve(&self, max: usize, random: &Random) -> Result<Vec<Reserved>> {
        loop {
            let changed = self.stock.changed.notified();
            let width = self.width.get();
            match self.pick(width, max, random) {
                Pick::Items(items) => {
                    let reserved = items.into_iter().map(|item| Reserved::new(&self.stock, item));
                    return Ok(reserved.collect());
                }
                Pick::Unread(names) => {
                    self.items
                        .want(names.iter().filter_map(|name| self.items.path().join(name).ok()));
                    until_news(changed, None, [&self.items, &self.consumers]).await?;
                }
                Pick::TooFew => {
                    let took = Duration::from_micros(self.last_took.load(Ordering::Relaxed));
                    let until = clock::now() + took.clamp(WAIT.0, WAIT.1);
                    until_news(changed, Some(until), [&self.items, &self.consumers]).await?;
                    if clock::now() >= until {
                        self.width.halve(width);
                    }
                }
                Pick::None(until) => {
                    until_news(changed, until, [&self.items, &self.consumers]).await?;
                }
            }
        }
    }

    /// Reserves items that may be tried now: one, and at most `max - 1` items that follow it.
    /// Returns `None` once the store has answered, to a read sent during this call, that no item
    /// can be delivered. What this process knows of the queue does not prove that.
    pub(super) async fn try_reserve(
        &self,
        shared: &QueueShared,
        max: usize,
    ) -> Result<Option<Vec<Reserved>>> {
        let mut wait = ReportWait::new(&shared.client, DOING, &shared.dir);
        loop {
            let changed = self.stock.changed.notified();
            let (mut is_reading, mut until) = (false, None);
            match self.pick_now(max, shared.client.random()) {
                Pick::Items(items) => {
                    let reserved = items.into_iter().map(|item| Reserved::new(&self.stock, item));
                    return Ok(Some(reserved.collect()));
                }
                Pick::Unread(names) => {
                    is_reading = !names.is_empty();
                    self.items
                        .want(names.iter().filter_map(|name| self.items.path().join(name).ok()));
                }
                Pick::None(then) => until = then,
                Pick::TooFew => {}
            }
            if !is_reading && !self.has_deliverable(shared).await? {
                return Ok(None);
            }
            wait.until_news(changed, until, [&self.items, &self.consumers]).await?;
        }
    }

    /// Chooses items as [`Consumer::pick`] does, or the first ones if there are fewer than this
    /// consumer chooses from.
    fn pick_now(&self, max: usize, random: &Random) -> Pick {
        match self.pick(self.width.get(), max, random) {
            Pick::TooFew => self.pick(1, max, random),
            pick => pick,
        }
    }

    /// Reads whether the queue has an item that may be delivered now.
    async fn has_deliverable(&self, shared: &QueueShared) -> Result<bool> {
        let query = Query::children(&shared.items).names_only();
        let listed = shared.client.read(query).await?.nodes;
        let (stock, now, date) = (self.stock.lock(), clock::now(), date());
        Ok(listed.iter().any(|node| stock.is_deliverable(node.path.name(), now, date)))
    }

    /// Records items that this process has put.
    pub(super) fn record_put(&self, nodes: impl Iterator<Item = Node>) {
        {
            let (mut stock, now) = (self.stock.lock(), clock::now());
            for node in nodes.filter(|node| node.data.len() <= MAX_KEPT_DATA) {
                stock.record_put(&node, now, date());
            }
        }
        self.stock.changed.notify_waiters();
    }

    fn pick(&self, width: usize, max: usize, random: &Random) -> Pick {
        let (mut stock, now) = (self.stock.lock(), clock::now());
        let own = if width > 1 && max == 1 { stock.pick_own(width, now) } else { None };
        own.map_or_else(
            || stock.pick(random_index(width, random).saturating_mul(max), max, now),
            |own| Pick::Items(vec![own]),
        )
    }

    /// Records whether another consumer was faster, and the duration of the request.
    pub(super) fn record_try(&self, lost: bool, took: Duration) {
        self.width.record_try(lost);
        self.last_took
            .store(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Chooses one of the first `width` indexes.
fn random_index(width: usize, random: &Random) -> usize {
    if width < 2 {
        return 0;
    }
    let index = random.below(u64::try_from(width).unwrap_or(1));
    usize::try_from(index).unwrap_or(0)
}

/// Applies the reported changes of the items, until the client is closed.
async fn follow_items(stock: Arc<StockShared>, mut items: EventReader) {
    while let Some(first) = items.next().await {
        // A part of the changes would show the items in another order.
        let mut all = vec![first];
        all.extend(buffered(&mut items));
        stock.apply(all);
        stock.changed.notify_waiters();
    }
}

/// Requests the recovery of lost items whenever a consumer may be gone.
async fn follow_consumers(lost: Arc<Notify>, mut consumers: EventReader) {
    while let Some(event) = consumers.next().await {
        if matches!(event, CacheEvent::Deleted(_) | CacheEvent::Complete(_)) {
            lost.notify_one();
        }
    }
}

/// Returns the events that have already arrived.
fn buffered(reader: &mut EventReader) -> impl Iterator<Item = CacheEvent> {
    std::iter::from_fn(|| reader.next().now_or_never().flatten())
}

/// The parts per item in which a width is counted, so that it decreases by less than one item at a
/// time.
const PARTS: usize = 32;

/// The maximum width, in parts.
const MAX_PARTS: usize = 16 * PARTS;

/// The number of first items among which a consumer chooses. It grows with the number of tries that
/// are lost to other consumers.
#[derive(Debug)]
pub(super) struct Width {
    parts: AtomicUsize,
}

impl Default for Width {
    /// Chooses the first item alone.
    fn default() -> Self {
        Self { parts: AtomicUsize::new(PARTS) }
    }
}

impl Width {
    pub(super) fn get(&self) -> usize {
        mistake!(ConsumersHerd: return 1);
        self.parts().div_ceil(PARTS)
    }

    /// Records whether another consumer was faster.
    pub(super) fn record_try(&self, lost: bool) {
        let parts = self.parts();
        self.set(if lost { parts * 4 } else { parts - parts / PARTS });
    }

    /// Records that there were fewer items than this width, and that no other consumer took them.
    pub(super) fn halve(&self, width: usize) {
        self.set(width * PARTS / 2);
    }

    fn parts(&self) -> usize {
        self.parts.load(Ordering::Relaxed)
    }

    fn set(&self, parts: usize) {
        self.parts.store(parts.clamp(PARTS, MAX_PARTS), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_fast_and_becomes_smaller_slowly() {
        let width = Width::default();
        width.record_try(false);
        assert_eq!(width.get(), 1);
        for expected in [4, 16, 16] {
            width.record_try(true);
            assert_eq!(width.get(), expected);
        }
        for _ in 0..3 {
            width.record_try(false);
        }
        assert_eq!(width.get(), 15);
        for (before, expected) in [(7, 4), (4, 2), (2, 1), (1, 1)] {
            width.halve(before);
            assert_eq!(width.get(), expected);
        }
        width.record_try(true);
        for _ in 0..30 {
            width.record_try(false);
        }
        assert_eq!(width.get(), 2, "for a while");
        for _ in 0..30 {
            width.record_try(false);
        }
        assert_eq!(width.get(), 1);
    }
}
