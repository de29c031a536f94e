//! [`Consumer`]: what one process knows of a queue, and how its tasks choose the item that they try to get.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use synod_core::chance::Chance;
use synod_core::clock;
use synod_core::error::Result;
use synod_core::store::Node;
use synod_core::task::{self, Task};
use tokio::sync::Notify;

use crate::mirror::Mirror;
use crate::mirror::event::CacheEvent;
use crate::mirror::extent::Extent;
use crate::mirror::news::until_news;
use crate::mirror::reader::EventReader;
use crate::queue::item_name::ItemName;
use crate::queue::place::QueuePlace;
use crate::queue::stock::{Pick, Stock};
use crate::queue::stock_item::StockItem;
use crate::queue::width::Width;
use crate::stamped::date::date;

/// The most bytes of data of an item that a consumer keeps. Those of larger ones are read when they are wanted.
const KEPT: usize = 1_024;

/// The shortest and the longest time that a consumer waits where there are too few items for its choice.
const STEP: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(5));

/// The items of a queue, followed for as long as this value exists.
///
/// A consumer tries the first item. Whenever another consumer was faster, it chooses among twice as many from then on, and among
/// a sixteenth less whenever it was not. Among these it prefers what its own process has put, which need not be read. Where there are too
/// few items for its choice, it waits for news, at most about as long as another consumer needs to have them, which is what its own
/// last request took, and chooses among half as many from then on. So consumers of other processes seldom try the same item, and a single
/// one gets them in their order.
pub(super) struct Consumer {
    shelf: Arc<Shelf>,
    items: Mirror,
    claims: Mirror,
    /// Whether the claims were complete once. A later claim that is not known is a request for nothing, and a wait is longer.
    has_begun: AtomicBool,
    width: Width,
    /// How many microseconds the last request for items took.
    last_took: AtomicU64,
    _task: Task,
}

/// What the tasks of a consumer share.
#[derive(Default)]
struct Shelf {
    stock: Mutex<Stock>,
    news: Notify,
}

/// An item that a task of this process tries to get. No other task tries it meanwhile.
pub(super) struct Reserved {
    shelf: Arc<Shelf>,
    pub(super) item: StockItem,
    was_tried: bool,
}

impl Consumer {
    /// Begins to follow. Nothing has been sent when this returns.
    pub(super) fn start(place: &QueuePlace) -> Self {
        let items = Extent::children(place.items.clone()).data_up_to(KEPT).deletions_as_reported();
        let items = items.known_by_name(|_name| true);
        let items = Mirror::start(&place.client, items, "queue");
        let claims = Extent::children(place.claims.clone()).names_only().deletions_as_reported();
        let claims = claims.known_by_name(|_name| true);
        let claims = Mirror::start(&place.client, claims, "queue");
        let shelf = Arc::<Shelf>::default();
        let following = follow(shelf.clone(), items.reader(), claims.reader());
        let task = task::spawn(following);
        let (has_begun, width, last_took) =
            (AtomicBool::new(false), Width::default(), AtomicU64::new(0));
        Self { shelf, items, claims, has_begun, width, last_took, _task: task }
    }

    /// Waits for items that may be tried: one, and up to so many that follow it.
    pub(super) async fn next(&self, most: usize, chance: &Chance) -> Result<Vec<Reserved>> {
        if !self.has_begun.load(Ordering::Relaxed) {
            self.claims.complete().await?;
            self.has_begun.store(true, Ordering::Relaxed);
        }
        loop {
            let news = self.shelf.news.notified();
            let width = self.width.get();
            match self.pick(width, most, chance) {
                Pick::Items(items) => {
                    let reserved = items.into_iter().map(|item| Reserved::new(&self.shelf, item));
                    return Ok(reserved.collect());
                }
                Pick::Unread(names) => {
                    self.items
                        .want(names.iter().filter_map(|name| self.items.path().join(name).ok()));
                    until_news(news, None, [&self.items, &self.claims]).await?;
                }
                Pick::Few => {
                    let step = Duration::from_micros(self.last_took.load(Ordering::Relaxed));
                    let until = clock::now() + step.clamp(STEP.0, STEP.1);
                    until_news(news, Some(until), [&self.items, &self.claims]).await?;
                    if clock::now() >= until {
                        self.width.halve(width);
                    }
                }
                Pick::None(until) => {
                    until_news(news, until, [&self.items, &self.claims]).await?;
                }
            }
        }
    }

    /// Takes note of items that this process has put.
    pub(super) fn has_put(&self, nodes: impl Iterator<Item = Node>) {
        {
            let (mut stock, now) = (self.shelf.lock(), clock::now());
            for node in nodes.filter(|node| node.data.len() <= KEPT) {
                stock.has_put(&node, now, date());
            }
        }
        self.shelf.news.notify_waiters();
    }

    fn pick(&self, width: usize, most: usize, chance: &Chance) -> Pick {
        let (mut stock, now) = (self.shelf.lock(), clock::now());
        let own = if width > 1 && most == 1 { stock.pick_own(width, now) } else { None };
        own.map_or_else(
            || stock.pick(choice(width, chance) * most, most, now),
            |own| Pick::Items(vec![own]),
        )
    }

    /// Records whether another consumer was faster, and how long the request took.
    pub(super) fn learn(&self, lost: bool, took: Duration) {
        self.width.learn(lost);
        self.last_took
            .store(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// One of so many places.
fn choice(width: usize, chance: &Chance) -> usize {
    if width < 2 {
        return 0;
    }
    let place = chance.below(u64::try_from(width).unwrap_or(1));
    usize::try_from(place).unwrap_or(0)
}

/// Takes over what the mirrors report, until the client is closed.
async fn follow(shelf: Arc<Shelf>, mut items: EventReader, mut claims: EventReader) {
    loop {
        let next = match select(pin!(items.next()), pin!(claims.next())).await {
            Either::Left((event, _)) => event.map(|event| (event, true)),
            Either::Right((event, _)) => event.map(|event| (event, false)),
        };
        let Some(first) = next else { return };
        // A part of them would show items in another order.
        let mut all = vec![first];
        all.extend(at_hand(&mut items).map(|event| (event, true)));
        all.extend(at_hand(&mut claims).map(|event| (event, false)));
        shelf.take_over(all);
        shelf.news.notify_waiters();
    }
}

/// The events that are there already.
fn at_hand(reader: &mut EventReader) -> impl Iterator<Item = CacheEvent> {
    std::iter::from_fn(|| reader.next().now_or_never().flatten())
}

impl Shelf {
    /// Takes over events: of the items if that is true, otherwise of the claims.
    fn take_over(&self, events: Vec<(CacheEvent, bool)>) {
        let (mut stock, now) = (self.lock(), clock::now());
        for (event, of_items) in events {
            match (event, of_items) {
                (CacheEvent::Created(node) | CacheEvent::Updated { node, .. }, true) => {
                    stock.add(&node, now, date());
                }
                (CacheEvent::Deleted(node), true) => stock.remove(node.path.name()),
                (CacheEvent::Reset, true) => stock.clear_items(),
                (CacheEvent::Created(node) | CacheEvent::Updated { node, .. }, false) => {
                    stock.claim(node.path.name(), now);
                }
                (CacheEvent::Deleted(node), false) => stock.unclaim(node.path.name(), now),
                (CacheEvent::Reset, false) => stock.clear_claims(now),
                (CacheEvent::Complete(_) | CacheEvent::Stale, _) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reserved {
    fn new(shelf: &Arc<Shelf>, item: StockItem) -> Self {
        Self { shelf: shelf.clone(), item, was_tried: true }
    }

    /// Ends the reservation of an item for which no request was sent.
    pub(super) fn was_not_tried(mut self) {
        self.was_tried = false;
    }

    /// Records that the item is not in the queue any more under this name: a name is never used again.
    pub(super) fn is_gone(&self) {
        let name = self.item.name.to_string();
        self.shelf.lock().is_gone(&name);
    }

    /// The reservation of the same item under its next name, for as long as this process has it.
    pub(super) fn under(&self, name: ItemName) -> Self {
        self.shelf.lock().reserve(&name.to_string(), clock::now());
        Self::new(&self.shelf, StockItem { name, ..self.item.clone() })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let name = self.item.name.to_string();
        self.shelf.lock().give_back(&name, self.was_tried, clock::now());
        self.shelf.news.notify_waiters();
    }
}
