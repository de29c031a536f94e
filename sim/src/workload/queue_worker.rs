//! [`Worker`]: the work of one process at the queues.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::Site;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{Effect, Error};
use synod_core::path::Path;
use synod_core::store::{Expect, Revision};
use synod_recipes::Held;
use synod_recipes::queue::{Delivery, PutOptions, Queue};

use crate::process::Process;
use crate::workload::belief::{Among, Beliefs, Judge, Laws, is_exception};
use crate::workload::holding::Holding;
use crate::workload::items::{End, Items, Put};

pub(super) const AGAIN: &str = "an item was delivered again";
pub(super) const RESOLVED: &str = "a lost answer was found out";
pub(super) const STALE: &str = "a stale consumer acknowledged nothing";
pub(super) const UNKNOWN: &str = "a call had an unknown effect";
pub(super) const FULL: &str = "a put was refused, as the queue was full";
pub(super) const NOTHING: &str = "a take that does not wait had no item";
pub(super) const REVIVED: &str = "a dead letter was revived";
pub(super) const REMOVED: &str = "an item was removed";
pub(super) const CONSUMED: &str = "a call of `consume` did work until it was stopped";
pub(super) const WORN_OUT: &str = "an item was delivered for the last time";
pub(super) const MEDDLED: &str = "a mark or a claim of another was removed";

/// The paths of the queues, one beside the other in each session.
pub(super) const QUEUES: [&str; 2] = ["/queue", "/other"];

/// The maximum number of items that are put with a capacity.
pub(super) const CAPACITY: NonZeroUsize = NonZeroUsize::new(2).expect("it is two");

const TWO: NonZeroUsize = NonZeroUsize::new(2).expect("it is two");

/// The laws for processes that have claimed an item.
const CLAIM: Laws = Laws {
    overlap: "L-Q-6",
    certain: "L-Q-6",
    order: "L-Q-6",
    tokens: "L-Q-6",
    twins: "L-Q-6",
    silence: None,
};

/// The data that the processes of a simulation share. Clones share it.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) items: Items,
    pub(super) claims: Claims,
    /// `true` if the wall clocks are right, so that items can be delayed.
    pub(super) has_delays: bool,
}

/// The claims of processes to hold an item. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Claims(Arc<Mutex<BTreeMap<String, Beliefs>>>);

impl Claims {
    fn of(&self, item: &str) -> Beliefs {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(item.to_owned()).or_insert_with(|| Beliefs::new(CLAIM)).clone()
    }
}

/// Checks claims, except claims that another process has removed.
struct Claimant<'a> {
    items: &'a Items,
    beliefs: &'a Beliefs,
}

impl Judge for Claimant<'_> {
    fn believes(&self, me: &Process, held: &dyn Held, among: Among, drawn: Option<Revision>) {
        if !self.items.is_meddled(held.seen_path()) {
            self.beliefs.believes(me, held, among, drawn);
        }
    }
}

/// A queue as a process uses it.
struct Handle {
    queue: Queue<String>,
    /// The index of its path in [`QUEUES`].
    at: usize,
    most_deliveries: u32,
}

/// A process: two instances of one queue, and another queue, in one session.
pub(super) struct Worker {
    me: Process,
    client: Client,
    handles: [Handle; 3],
    shared: Shared,
}

impl Worker {
    pub(super) fn new(me: Process, client: Client, shared: Shared) -> Self {
        let handle = |at: usize, most_deliveries| {
            let queue = Queue::new(&client, dir(at, ""));
            let most = NonZeroU32::new(most_deliveries).expect("it is not zero");
            Handle { queue: queue.max_deliveries(most), at, most_deliveries }
        };
        let handles = [handle(0, 25), handle(0, 2), handle(1, 25)];
        Self { me, client, handles, shared }
    }

    pub(super) async fn round(&self, round: u64) {
        let me = &self.me;
        self.puts(self.handle(), round).await;
        me.rest(Duration::from_millis(100)).await;
        let handle = self.handle();
        match me.pick(16) {
            0..6 => self.takes(handle).await,
            6..11 => Box::pin(self.claims(handle)).await,
            11..13 => Box::pin(self.consumes(handle)).await,
            13 | 14 => self.tends(handle).await,
            _ => self.meddles(handle).await,
        }
    }

    /// Usually the first one, so that the processes meet.
    fn handle(&self) -> &Handle {
        const WEIGHTS: [usize; 5] = [0, 0, 0, 1, 2];
        let pick = usize::try_from(self.me.pick(WEIGHTS.len() as u64)).unwrap_or_default();
        &self.handles[WEIGHTS[pick]]
    }

    async fn puts(&self, handle: &Handle, round: u64) {
        let (me, items) = (&self.me, &self.shared.items);
        let item = format!("{}.{}.{}.{round}", handle.at, me.name(), me.life());
        items.lock().put.insert(item.clone(), Put::Unknown);
        let lost = me.suffered(&[Site::ReplyLost]);
        let mut options = PutOptions::default();
        if me.pick(3) == 0 {
            // The id may be in use, even by an item that is being put back.
            options = options.id(me.pick(2).to_string());
        }
        if me.pick(4) == 0 {
            options = options.priority(99);
        }
        if self.shared.has_delays && me.pick(4) == 0 {
            let delay = me.ttl() / 2;
            // The timer of a consumer may be 2 % fast, and dates are in milliseconds.
            let due = me.wall_clock() + delay.saturating_sub(delay / 20);
            items.lock().due.insert(item.clone(), due);
            options = options.after(delay);
        }
        let putting = async {
            if me.pick(3) > 0 {
                return handle.queue.put_with(&item, options).await;
            }
            let bounded = handle.queue.clone().capacity(CAPACITY);
            let put = bounded.try_put(&item, options).await?;
            me.sometimes(FULL, put.is_none());
            Ok(put == Some(true))
        };
        let put = match me.perhaps(putting).await {
            Some(Ok(false)) => Put::Failed,
            Some(Ok(true)) => {
                me.sometimes(RESOLVED, me.suffered(&[Site::ReplyLost]) > lost);
                Put::Done
            }
            Some(Err(error)) => self.failed(&error),
            None => Put::Unknown,
        };
        items.lock().put.insert(item, put);
    }

    fn failed(&self, error: &Error) -> Put {
        let is_unknown = error.effect() == Effect::Unknown;
        self.me.sometimes(UNKNOWN, is_unknown);
        if is_unknown { Put::Unknown } else { Put::Failed }
    }

    /// A dropped or abandoned take puts its item back: no item may be missing after that.
    async fn takes(&self, handle: &Handle) {
        let taking = async {
            if self.me.pick(3) > 0 {
                return handle.queue.take_many(TWO).await;
            }
            let taken = handle.queue.try_take().await?;
            self.me.sometimes(NOTHING, taken.is_none());
            Ok(taken.into_iter().collect())
        };
        let taking = clock::timeout(self.me.ttl() * 2, taking);
        match self.me.perhaps(taking).await {
            Some(Ok(Ok(items))) => {
                for item in items {
                    self.arrives(handle, &item);
                    self.shared.items.ends(&self.me, &item, End::Taken, "L-Q-5");
                }
            }
            Some(Ok(Err(error))) => {
                let _is_unknown = self.failed(&error);
            }
            _ => {}
        }
    }

    async fn claims(&self, handle: &Handle) {
        let me = &self.me;
        let claiming = clock::timeout(me.ttl() * 2, handle.queue.claim());
        let Some(Ok(Ok(delivery))) = me.perhaps(claiming).await else { return };
        self.holds(handle, &delivery).await;
        match me.pick(8) {
            0 => drop(delivery),
            1 => drop(me.perhaps(delivery.put_back()).await),
            2 => drop(me.perhaps(delivery.reject("on purpose")).await),
            3 if self.shared.has_delays => {
                drop(me.perhaps(delivery.put_back_after(me.ttl() / 4)).await);
            }
            _ => Box::pin(self.acknowledges(delivery)).await,
        }
    }

    /// Holds a delivery for a while, and checks continuously that it is held.
    async fn holds(&self, handle: &Handle, delivery: &Delivery<String>) {
        let (me, client, items) = (&self.me, &self.client, &self.shared.items);
        let item = delivery.item();
        self.arrives(handle, item);
        me.sometimes(AGAIN, delivery.delivered() > 1);
        me.sometimes(WORN_OUT, delivery.is_last());
        if delivery.delivered() > handle.most_deliveries {
            me.wrong("L-Q-11", || format!("{item} is delivered {} times", delivery.delivered()));
        }
        let beliefs = self.shared.claims.of(item);
        let drawn = me.born(delivery).map(|(drawn, _)| drawn);
        if !items.is_meddled(delivery.seen_path()) {
            // An answer may arrive after a session ended by force, and after others had the item
            // since.
            if drawn.is_none_or(|drawn| !is_exception(me, delivery, drawn)) {
                items.is_new(me, item);
            }
            beliefs.entered(me, delivery, Among::Nobody);
        }
        let judge = &Claimant { items, beliefs: &beliefs };
        Holding { me, client, judge, among: Among::Nobody }.linger(delivery).await;
    }

    /// L-Q-2, L-Q-9: a delivered item was put into this queue, and is not delivered before its
    /// time.
    fn arrives(&self, handle: &Handle, item: &str) {
        let (me, items) = (&self.me, &self.shared.items);
        items.was_put(me, item);
        if !item.starts_with(&format!("{}.", handle.at)) {
            me.wrong("L-Q-2", || format!("{item} was put into another queue"));
        }
        let due = items.lock().due.remove(item);
        if due.is_some_and(|due| me.wall_clock() < due) {
            me.wrong("L-Q-9", || format!("{item} is delivered before its time"));
        }
    }

    async fn acknowledges(&self, delivery: Delivery<String>) {
        let (was_held, item) = (delivery.is_held(), delivery.item().clone());
        self.shared.items.lock().unsure.insert(item.clone());
        match self.me.perhaps(delivery.ack()).await {
            Some(Ok(())) => {
                self.shared.items.ends(&self.me, &item, End::Acknowledged, "L-Q-6");
            }
            Some(Err(error)) => {
                self.me.sometimes(STALE, !was_held && error.effect() == Effect::None);
                let _is_unknown = self.failed(&error);
            }
            None => {}
        }
    }

    /// Works on two items at once until it is stopped, which also stops the work on its current
    /// items.
    async fn consumes(&self, handle: &Handle) {
        let me = &self.me;
        let (stopped, done) = (&AtomicBool::new(false), &AtomicBool::new(false));
        let stop = async {
            me.rest(me.ttl()).await;
            stopped.store(true, Ordering::Relaxed);
        };
        let work = |delivery: Arc<Delivery<String>>| async move {
            me.always("no work begins after the stop", !stopped.load(Ordering::Relaxed));
            self.holds(handle, &delivery).await;
            done.store(true, Ordering::Relaxed);
            // An item is delayed by a date, which means different times for wrong clocks.
            if self.shared.has_delays && me.pick(4) == 0 {
                return Err("as this item has to be tried again");
            }
            self.shared.items.lock().unsure.insert(delivery.item().clone());
            Ok(())
        };
        let queue = handle.queue.clone().backoff(me.ttl() / 8, me.ttl() / 2);
        let consumed = me.perhaps(queue.consume(TWO, stop, work)).await;
        me.sometimes(
            CONSUMED,
            consumed.is_some_and(|it| it.is_ok()) && done.load(Ordering::Relaxed),
        );
    }

    /// Revives a dead letter, or removes it or another item, regardless of claims.
    async fn tends(&self, handle: &Handle) {
        let (me, queue, items) = (&self.me, &handle.queue, &self.shared.items);
        let is_dead = me.pick(3) > 0;
        let listing = async { if is_dead { queue.dead().await } else { queue.items().await } };
        let Some(Ok(listed)) = me.perhaps(listing).await else { return };
        let Some(first) = listed.first() else { return };
        let Some(item) = first.item().cloned() else { return };
        if is_dead && me.pick(4) > 0 {
            let revived = me.perhaps(queue.revive(first)).await;
            me.sometimes(REVIVED, matches!(revived, Some(Ok(true))));
            return;
        }
        items.lock().removed.insert(item.clone());
        if let Some(Ok(true)) = me.perhaps(queue.remove(first)).await {
            me.sometimes(REMOVED, true);
            items.ends(me, &item, End::Removed, "L-Q-5");
        }
    }

    /// Removes a write id or a claim, which may belong to another client.
    async fn meddles(&self, handle: &Handle) {
        let (me, client) = (&self.me, &self.client);
        let dir = dir(handle.at, if me.pick(2) == 0 { "/marks" } else { "/claims" });
        let Some(Ok(nodes)) = me.perhaps(client.children(&dir)).await else { return };
        let nodes: Vec<_> = nodes.into_iter().map(|node| node.path).collect();
        let pick = usize::try_from(me.pick(nodes.len().max(1) as u64)).unwrap_or_default();
        let Some(path) = nodes.get(pick) else { return };
        self.shared.items.lock().meddled.insert(path.clone());
        let removed = me.perhaps(client.delete(path, Expect::Any)).await;
        me.sometimes(
            MEDDLED,
            matches!(removed, Some(Ok(ref outcome)) if outcome.rejected().is_none()),
        );
    }
}

/// A directory of a queue.
pub(super) fn dir(at: usize, below: &str) -> Path {
    Path::new(&format!("{}{below}", QUEUES[at])).expect("it is one")
}
