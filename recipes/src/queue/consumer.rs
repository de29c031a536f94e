//! [`Consumer`]: what one process knows of a queue, and how its tasks choose the item that they try to get.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use synod_core::clock;
use synod_core::error::Result;
use synod_core::random::Random;
use synod_core::session::Session;
use synod_core::store::Node;
use synod_core::task::{self, Task};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use crate::mirror::Mirror;
use crate::mirror::event::CacheEvent;
use crate::mirror::extent::Extent;
use crate::mirror::news::until_news;
use crate::mirror::reader::EventReader;
use crate::queue::consumer_node::ConsumerNode;
use crate::queue::lost_items::look_for_lost_items;
use crate::queue::place::QueuePlace;
use crate::queue::returning::{self, ItemReturn};
use crate::queue::stock::Pick;
use crate::queue::stock_shared::{Reserved, StockShared};
use crate::queue::width::Width;
use crate::stamped::date::date;
use crate::stamped::old_marks::remove_old_marks;

/// The most bytes of data of an item that a consumer keeps. Those of larger ones are read when they are wanted.
const KEPT: usize = 1_024;

/// The shortest and the longest time that a consumer waits where there are too few items for its choice.
const STEP: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(5));

/// The items of a queue, followed for as long as this value exists.
///
/// A consumer tries the first item. Whenever another consumer was faster, it chooses among four times as many from then on, and among
/// a thirty-second less whenever it was not. Among these it prefers what its own process has put, which need not be read. Where there are too
/// few items for its choice, it waits for news, at most about as long as another consumer needs to have them, which is what its own
/// last request took, and chooses among half as many from then on. So consumers of other processes seldom try the same item, and a single
/// one gets them in their order.
pub(super) struct Consumer {
    stock: Arc<StockShared>,
    items: Mirror,
    /// The processes with claims.
    consumers: Mirror,
    /// That of this process.
    node: Arc<ConsumerNode>,
    returns: UnboundedSender<ItemReturn>,
    /// Asks for a look for items whose consumers are gone.
    lost: Arc<Notify>,
    width: Width,
    /// How many microseconds the last request for items took.
    last_took: AtomicU64,
    _tasks: [Task; 4],
}

impl Consumer {
    /// Begins to follow. Nothing has been sent when this returns.
    pub(super) fn start(place: &Arc<QueuePlace>) -> Self {
        let items = Extent::children(place.items.clone()).data_up_to(KEPT).deletions_as_reported();
        let items = items.known_by_name(|_name| true);
        let items = Mirror::start(&place.client, items, "queue");
        let consumers = Extent::children(place.consumers.clone()).names_only();
        let consumers = consumers.deletions_as_reported().known_by_name(|_name| true);
        let consumers = Mirror::start(&place.client, consumers, "queue");
        let (stock, lost) = (Arc::<StockShared>::default(), Arc::<Notify>::default());
        let following = follow(stock.clone(), items.reader());
        let noticing = notice(lost.clone(), consumers.reader());
        let looking = look_for_lost_items(place.clone(), lost.clone());
        let tidying = remove_old_marks(place.writes.old_marks());
        let tasks = [
            task::spawn(following),
            task::spawn(noticing),
            task::spawn(looking),
            task::spawn(tidying),
        ];
        let node = Arc::new(ConsumerNode::new(place.consumers.clone()));
        let returns = returning::start(place, node.clone(), stock.clone(), lost.clone());
        let (width, last_took) = (Width::default(), AtomicU64::new(0));
        Self { stock, items, consumers, node, returns, lost, width, last_took, _tasks: tasks }
    }

    /// Creates the node of this process for a session, if it is not there.
    pub(super) async fn ensure_node(&self, session: &Session) -> Result<()> {
        self.node.ensure(session).await
    }

    /// Has items looked for whose claims are gone.
    pub(super) fn look_for_lost_items(&self) {
        self.lost.notify_one();
    }

    /// Has an item put back.
    pub(super) fn take_back(&self, item: ItemReturn) {
        // Without its task the runtime ends, and the session with it.
        let _taken = self.returns.send(item).is_ok();
    }

    /// Waits for items that may be tried: one, and up to so many that follow it.
    pub(super) async fn next(&self, most: usize, random: &Random) -> Result<Vec<Reserved>> {
        loop {
            let news = self.stock.news.notified();
            let width = self.width.get();
            match self.pick(width, most, random) {
                Pick::Items(items) => {
                    let reserved = items.into_iter().map(|item| Reserved::new(&self.stock, item));
                    return Ok(reserved.collect());
                }
                Pick::Unread(names) => {
                    self.items
                        .want(names.iter().filter_map(|name| self.items.path().join(name).ok()));
                    until_news(news, None, [&self.items, &self.consumers]).await?;
                }
                Pick::Few => {
                    let step = Duration::from_micros(self.last_took.load(Ordering::Relaxed));
                    let until = clock::now() + step.clamp(STEP.0, STEP.1);
                    until_news(news, Some(until), [&self.items, &self.consumers]).await?;
                    if clock::now() >= until {
                        self.width.halve(width);
                    }
                }
                Pick::None(until) => {
                    until_news(news, until, [&self.items, &self.consumers]).await?;
                }
            }
        }
    }

    /// Takes note of items that this process has put.
    pub(super) fn has_put(&self, nodes: impl Iterator<Item = Node>) {
        {
            let (mut stock, now) = (self.stock.lock(), clock::now());
            for node in nodes.filter(|node| node.data.len() <= KEPT) {
                stock.has_put(&node, now, date());
            }
        }
        self.stock.news.notify_waiters();
    }

    fn pick(&self, width: usize, most: usize, random: &Random) -> Pick {
        let (mut stock, now) = (self.stock.lock(), clock::now());
        let own = if width > 1 && most == 1 { stock.pick_own(width, now) } else { None };
        own.map_or_else(
            || stock.pick(choice(width, random).saturating_mul(most), most, now),
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
fn choice(width: usize, random: &Random) -> usize {
    if width < 2 {
        return 0;
    }
    let place = random.below(u64::try_from(width).unwrap_or(1));
    usize::try_from(place).unwrap_or(0)
}

/// Takes over what is reported of the items, until the client is closed.
async fn follow(stock: Arc<StockShared>, mut items: EventReader) {
    while let Some(first) = items.next().await {
        // A part of them would show items in another order.
        let mut all = vec![first];
        all.extend(at_hand(&mut items));
        stock.take_over(all);
        stock.news.notify_waiters();
    }
}

/// Has items looked for whose consumers may be gone.
async fn notice(lost: Arc<Notify>, mut consumers: EventReader) {
    while let Some(event) = consumers.next().await {
        if matches!(event, CacheEvent::Deleted(_) | CacheEvent::Complete(_)) {
            lost.notify_one();
        }
    }
}

/// The events that are there already.
fn at_hand(reader: &mut EventReader) -> impl Iterator<Item = CacheEvent> {
    std::iter::from_fn(|| reader.next().now_or_never().flatten())
}
