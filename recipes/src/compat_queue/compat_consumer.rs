//! [`CompatConsumer`]: the items of a queue of another library, followed by one process.

use std::collections::BTreeSet;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::Query;
use synod_core::task::{self, Task};
use tokio::sync::Notify;

use crate::compat_queue::compat_stock::{CompatPick, CompatStock};
use crate::compat_queue::layout::{DOING, QueueLayout};
use crate::mirror::Mirror;
use crate::mirror::event::CacheEvent;
use crate::mirror::extent::Extent;
use crate::mirror::reader::EventReader;
use crate::support::exactly_once::old_write_ids::{OldWriteIds, remove_old_write_ids};
use crate::support::time::date;
use crate::support::wait::{ReportWait, until_news};

/// The items of a queue and their locks, followed as long as this value exists.
pub(super) struct CompatConsumer {
    stock: Arc<CompatStockShared>,
    items: Mirror,
    locks: Option<Mirror>,
    _tasks: [Task; 2],
}

/// The stock with its lock and the notice of changes, shared by the tasks of a consumer.
struct CompatStockShared {
    stock: Mutex<CompatStock>,
    news: Notify,
}

/// An item that a task of this process tries to take. No other task tries the item at the same
/// time.
pub(super) struct CompatItem {
    stock: Arc<CompatStockShared>,
    pub(super) name: String,
}

impl CompatConsumer {
    /// Starts to follow the queue. Nothing has been sent when this returns.
    pub(super) fn start(
        client: &Client,
        layout: QueueLayout,
        items: &Path,
        locks: Option<&Path>,
        old_write_ids: OldWriteIds,
    ) -> Self {
        let follow =
            |dir: &Path| Mirror::start(client, Extent::children(dir).names_only(), "compat_queue");
        let (items, locks) = (follow(items), locks.map(follow));
        let stock = Mutex::new(CompatStock::new(layout));
        let stock = Arc::new(CompatStockShared { stock, news: Notify::new() });
        let reader = locks.as_ref().map(Mirror::reader);
        let following = follow_all(stock.clone(), items.reader(), reader);
        let tasks = [task::spawn(following), task::spawn(remove_old_write_ids(old_write_ids))];
        Self { stock, items, locks, _tasks: tasks }
    }

    /// Waits for the first item that can be tried.
    pub(super) async fn next(&self) -> Result<CompatItem> {
        // A lock that is not known yet would cost a rejected request.
        if let Some(locks) = &self.locks {
            locks.complete().await?;
        }
        loop {
            let news = self.stock.news.notified();
            let pick = self.stock.lock().pick(clock::now());
            match pick {
                CompatPick::Item(name) => {
                    return Ok(CompatItem { stock: self.stock.clone(), name });
                }
                CompatPick::None(until) => {
                    until_news(news, until, [&self.items].into_iter().chain(&self.locks)).await?;
                }
            }
        }
    }
}

impl CompatConsumer {
    /// Returns the first item that can be tried, or `None` once the store has answered, to reads
    /// sent during this call, that no item can be taken.
    pub(super) async fn try_next(&self, client: &Client) -> Result<Option<CompatItem>> {
        let mut wait = ReportWait::new(client, DOING, self.items.path());
        loop {
            let news = self.stock.news.notified();
            let are_locks_known = self.locks.as_ref().is_none_or(|locks| locks.state().is_live());
            let until = match are_locks_known.then(|| self.stock.lock().pick(clock::now())) {
                Some(CompatPick::Item(name)) => {
                    return Ok(Some(CompatItem { stock: self.stock.clone(), name }));
                }
                Some(CompatPick::None(until)) => until,
                None => None,
            };
            if !self.has_deliverable(client).await? {
                return Ok(None);
            }
            let mirrors = [&self.items].into_iter().chain(&self.locks);
            wait.until_news(news, until, mirrors).await?;
        }
    }

    /// Reads whether the queue has an item that may be taken now.
    async fn has_deliverable(&self, client: &Client) -> Result<bool> {
        let names = |mirror: &Mirror| client.read(Query::children(mirror.path()).names_only());
        let listed = names(&self.items).await?.nodes;
        let locked = match &self.locks {
            Some(locks) if !listed.is_empty() => names(locks).await?.nodes,
            _ => Vec::new(),
        };
        let locked: BTreeSet<&str> = locked.iter().map(|node| node.path.name()).collect();
        let (stock, now, date) = (self.stock.lock(), clock::now(), date());
        Ok(listed
            .iter()
            .map(|node| node.path.name())
            .any(|name| !locked.contains(name) && stock.is_deliverable(name, now, date)))
    }
}

/// Records the events of the mirrors, until the client is closed.
async fn follow_all(
    stock: Arc<CompatStockShared>,
    mut items: EventReader,
    mut locks: Option<EventReader>,
) {
    loop {
        let lock = async {
            match &mut locks {
                Some(locks) => locks.next().await,
                None => pending().await,
            }
        };
        match select(pin!(items.next()), pin!(lock)).await {
            Either::Left((Some(event), _)) => stock.record_item(event),
            Either::Right((Some(event), _)) => stock.record_lock(event),
            Either::Left((None, _)) | Either::Right((None, _)) => return,
        }
        stock.news.notify_waiters();
    }
}

impl CompatStockShared {
    fn record_item(&self, event: CacheEvent) {
        let mut stock = self.lock();
        match event {
            CacheEvent::Created(node) | CacheEvent::Updated { node, .. } => {
                stock.add(&node, clock::now(), date());
            }
            CacheEvent::Deleted(node) => stock.remove(node.path.name()),
            CacheEvent::Reset => stock.clear(),
            CacheEvent::Complete(_) | CacheEvent::Stale => {}
        }
    }

    fn record_lock(&self, event: CacheEvent) {
        let mut stock = self.lock();
        match event {
            CacheEvent::Created(node) | CacheEvent::Updated { node, .. } => {
                stock.lock(node.path.name(), clock::now());
            }
            CacheEvent::Deleted(node) => stock.unlock(node.path.name(), clock::now()),
            CacheEvent::Reset => stock.clear_locks(clock::now()),
            CacheEvent::Complete(_) | CacheEvent::Stale => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, CompatStock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CompatItem {
    /// Records that the item is not available for now.
    pub(super) fn set_aside(&self) {
        self.stock.lock().set_aside(&self.name, clock::now());
    }

    /// Records that its data cannot be read.
    pub(super) fn set_unreadable(&self) {
        self.stock.lock().set_unreadable(&self.name, clock::now());
    }

    /// Records that the item is no longer in the queue.
    pub(super) fn remove(&self) {
        self.stock.lock().remove(&self.name);
    }
}

impl Drop for CompatItem {
    fn drop(&mut self) {
        self.stock.lock().give_back(&self.name, clock::now());
        self.stock.news.notify_waiters();
    }
}
