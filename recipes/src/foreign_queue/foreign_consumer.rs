//! [`ForeignConsumer`]: what one process knows of a queue of another library.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::task::{self, Task};
use tokio::sync::Notify;

use crate::foreign_queue::foreign_stock::{ForeignPick, ForeignStock};
use crate::foreign_queue::layout::QueueLayout;
use crate::mirror::Mirror;
use crate::mirror::event::CacheEvent;
use crate::mirror::extent::Extent;
use crate::mirror::news::until_news;
use crate::mirror::reader::EventReader;
use crate::stamped::date::date;
use crate::stamped::old_marks::{OldMarks, remove_old_marks};

/// The items of a queue and their locks, followed for as long as this value exists.
pub(super) struct ForeignConsumer {
    known: Arc<ForeignShelf>,
    items: Mirror,
    locks: Option<Mirror>,
    _tasks: [Task; 2],
}

/// What the tasks of a consumer share.
struct ForeignShelf {
    stock: Mutex<ForeignStock>,
    news: Notify,
}

/// An item that a task of this process tries to take. No other task tries it meanwhile.
pub(super) struct ForeignItem {
    known: Arc<ForeignShelf>,
    pub(super) name: String,
}

impl ForeignConsumer {
    /// Begins to follow. Nothing has been sent when this returns.
    pub(super) fn start(
        client: &Client,
        layout: QueueLayout,
        items: &Path,
        locks: Option<&Path>,
        old_marks: OldMarks,
    ) -> Self {
        let follow =
            |dir: &Path| Mirror::start(client, Extent::children(dir).names_only(), "foreign_queue");
        let (items, locks) = (follow(items), locks.map(follow));
        let stock = Mutex::new(ForeignStock::new(layout));
        let known = Arc::new(ForeignShelf { stock, news: Notify::new() });
        let reader = locks.as_ref().map(Mirror::reader);
        let following = keep_up(known.clone(), items.reader(), reader);
        let tasks = [task::spawn(following), task::spawn(remove_old_marks(old_marks))];
        Self { known, items, locks, _tasks: tasks }
    }

    /// Waits for the first item that may be tried.
    pub(super) async fn next(&self) -> Result<ForeignItem> {
        // A lock that is not known yet would be a request for nothing.
        if let Some(locks) = &self.locks {
            locks.complete().await?;
        }
        loop {
            let news = self.known.news.notified();
            let found = self.known.stock().pick(clock::now());
            match found {
                ForeignPick::Item(name) => {
                    return Ok(ForeignItem { known: self.known.clone(), name });
                }
                ForeignPick::None(until) => {
                    until_news(news, until, [&self.items].into_iter().chain(&self.locks)).await?;
                }
            }
        }
    }
}

/// Takes over what the mirrors report, until the client is closed.
async fn keep_up(known: Arc<ForeignShelf>, mut items: EventReader, mut locks: Option<EventReader>) {
    loop {
        let lock = async {
            match &mut locks {
                Some(locks) => locks.next().await,
                None => pending().await,
            }
        };
        match select(pin!(items.next()), pin!(lock)).await {
            Either::Left((Some(event), _)) => known.learn_item(event),
            Either::Right((Some(event), _)) => known.learn_lock(event),
            Either::Left((None, _)) | Either::Right((None, _)) => return,
        }
        known.news.notify_waiters();
    }
}

impl ForeignShelf {
    fn learn_item(&self, event: CacheEvent) {
        let mut stock = self.stock();
        match event {
            CacheEvent::Created(node) | CacheEvent::Updated { node, .. } => {
                stock.add(&node, clock::now(), date());
            }
            CacheEvent::Deleted(node) => stock.remove(node.path.name()),
            CacheEvent::Reset => stock.clear(),
            CacheEvent::Complete(_) | CacheEvent::Stale => {}
        }
    }

    fn learn_lock(&self, event: CacheEvent) {
        let mut stock = self.stock();
        match event {
            CacheEvent::Created(node) | CacheEvent::Updated { node, .. } => {
                stock.lock(node.path.name(), clock::now());
            }
            CacheEvent::Deleted(node) => stock.unlock(node.path.name(), clock::now()),
            CacheEvent::Reset => stock.clear_locks(clock::now()),
            CacheEvent::Complete(_) | CacheEvent::Stale => {}
        }
    }

    fn stock(&self) -> MutexGuard<'_, ForeignStock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ForeignItem {
    /// Records that it was not to be had.
    pub(super) fn rests(&self) {
        self.known.stock().rests(&self.name, clock::now());
    }

    /// Records that its data cannot be read.
    pub(super) fn is_unreadable(&self) {
        self.known.stock().is_unreadable(&self.name, clock::now());
    }

    /// Records that it is not in the queue any more.
    pub(super) fn is_gone(&self) {
        self.known.stock().remove(&self.name);
    }
}

impl Drop for ForeignItem {
    fn drop(&mut self) {
        self.known.stock().give_back(&self.name, clock::now());
        self.known.news.notify_waiters();
    }
}
