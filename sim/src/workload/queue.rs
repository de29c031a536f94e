//! A queue into which three processes put items, and from which they have them in both ways.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{Effect, Error};
use synod_core::path::Path;
use synod_core::store::Kind;
use synod_mem::cluster::Site;
use synod_recipes::{Delivery, Held as _, PutOptions, Queue};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::belief::{Among, Beliefs, Laws, is_exception};
use crate::workload::holding::{self, Holding};
use crate::workload::items::{Items, Put, left_in};

/// Three processes put items, take items, and claim items, and the items are counted.
pub(super) struct Queues;

const ROUNDS: u64 = 4;

const AGAIN: &str = "an item was delivered again";
const RESOLVED: &str = "a lost answer was found out";
const STALE: &str = "a stale consumer acknowledged nothing";
const UNKNOWN: &str = "a call had an unknown effect";
const FULL: &str = "a put was refused, as the queue was full";

/// How many items those that are bounded may be.
const CAPACITY: NonZeroUsize = NonZeroUsize::new(2).expect("it is two");

/// The laws of those that have claimed an item.
const CLAIM: Laws = Laws {
    overlap: "L-Q-6",
    certain: "L-Q-6",
    order: "L-Q-6",
    tokens: "L-Q-6",
    twins: "L-Q-6",
    silence: None,
};

impl Workload for Queues {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn about(&self) -> &'static str {
        "three processes put items into a queue, take and claim them, and none is lost or doubled"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-Q-1", "L-Q-2", "L-Q-3", "L-Q-4", "L-Q-5", "L-Q-6", "L-Q-10", "L-Q-12"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, AGAIN, RESOLVED, STALE, UNKNOWN, FULL, holding::LOST, holding::SILENT]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::NearTheEnd, Site::WallClockSet]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let book = Items::default();
        let (left, puts, working) = (book.clone(), book.clone(), book.clone());
        let claims = Claims::default();
        // Strangers would remove items.
        sim.without_strangers()
            .processes(3, move |me| work(me, working.clone(), claims.clone()))
            .must_end("L-Q-12")
            .eventually("L-Q-4", move |me| drain(me, book.clone()))
            .check("L-Q-1", move |truth| left.none_is_lost(&left_in(truth, is_left, text)))
            .check("L-Q-3", move |truth| each_is_made_once(&puts, truth))
            .check("L-Q-10", no_slot_is_filled_twice)
    }
}

async fn work(me: Process, items: Items, claims: Claims) {
    let Ok(client) = me.impatient_client().await else { return };
    let queue = Queue::new(&client, dir()).expect("it is short");
    let worker = Worker { me, client, queue, items, claims };
    for round in 0..worker.me.rounds(ROUNDS) {
        worker.puts(round).await;
        worker.me.rest(Duration::from_millis(100)).await;
        if worker.me.pick(2) == 0 {
            worker.takes().await;
        } else {
            Box::pin(worker.claims()).await;
        }
    }
}

struct Worker {
    me: Process,
    client: Client,
    queue: Queue<String>,
    items: Items,
    claims: Claims,
}

impl Worker {
    async fn puts(&self, round: u64) {
        let me = &self.me;
        let item = format!("{}.{}.{round}", me.name(), me.life());
        self.items.lock().put.insert(item.clone(), Put::Unknown);
        let lost = me.suffered(&[Site::ReplyLost]);
        let putting = async {
            let mut options = PutOptions::default();
            if me.pick(3) == 0 {
                // It may be in use, also by an item that is on its way back.
                options = options.id(me.pick(2).to_string());
            }
            if me.pick(4) == 0 {
                // Without a delay: the clocks of producers may differ by more than a history lasts.
                options = options.priority(99);
            }
            if me.pick(3) > 0 {
                return self.queue.put_with(&item, options).await;
            }
            let bounded = self.queue.clone().capacity(CAPACITY);
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
        self.items.lock().put.insert(item, put);
    }

    fn failed(&self, error: &Error) -> Put {
        let is_unknown = error.effect() == Effect::Unknown;
        self.me.sometimes(UNKNOWN, is_unknown);
        if is_unknown { Put::Unknown } else { Put::Failed }
    }

    async fn takes(&self) {
        const MOST: NonZeroUsize = NonZeroUsize::new(2).expect("it is two");
        self.items.lock().open += MOST.get();
        let taking = clock::timeout(self.me.ttl() * 2, self.queue.take_many(MOST));
        match self.me.perhaps(taking).await {
            Some(Ok(Ok(items))) => {
                self.items.lock().open -= MOST.get();
                for item in items {
                    self.items.ends(&self.me, &item, "L-Q-5");
                }
            }
            Some(Ok(Err(error))) if self.failed(&error) == Put::Failed => {
                self.items.lock().open -= MOST.get();
            }
            _ => {}
        }
    }

    async fn claims(&self) {
        let (me, client) = (&self.me, &self.client);
        let claiming = clock::timeout(me.ttl() * 2, self.queue.claim());
        let Some(Ok(Ok(delivery))) = me.perhaps(claiming).await else { return };
        let item = delivery.item().clone();
        me.sometimes(AGAIN, delivery.delivered() > 1);
        self.items.was_put(me, &item);
        let drawn = me.born(&delivery).map(|(drawn, _)| drawn);
        // An answer may be later than the end of a session by force, and than what others had since.
        if drawn.is_none_or(|drawn| !is_exception(me, &delivery, drawn)) {
            self.items.is_new(me, &item);
        }
        let beliefs = self.claims.of(&item);
        beliefs.entered(me, &delivery, Among::Nobody);
        Holding { me, client, judge: &beliefs, among: Among::Nobody }.linger(&delivery).await;
        match me.pick(6) {
            0 => drop(delivery),
            1 => drop(me.perhaps(delivery.put_back()).await),
            2 => drop(me.perhaps(delivery.reject()).await),
            _ => Box::pin(self.acknowledges(delivery, &item)).await,
        }
    }

    async fn acknowledges(&self, delivery: Delivery<String>, item: &str) {
        let was_held = delivery.is_held();
        self.items.lock().unsure.insert(item.to_owned());
        let answer = self.me.perhaps(delivery.ack()).await;
        match answer {
            Some(Ok(())) => self.items.ends(&self.me, item, "L-Q-6"),
            Some(Err(error)) => {
                self.me.sometimes(STALE, !was_held && error.effect() == Effect::None);
                let _is_unknown = self.failed(&error);
            }
            None => {}
        }
    }
}

/// The beliefs of those that have claimed an item. Clones are the same.
#[derive(Clone, Default)]
struct Claims(Arc<Mutex<BTreeMap<String, Beliefs>>>);

impl Claims {
    fn of(&self, item: &str) -> Beliefs {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(item.to_owned()).or_insert_with(|| Beliefs::new(CLAIM)).clone()
    }
}

/// L-Q-3: what was put is one node, but for its deliveries.
fn each_is_made_once(items: &Items, truth: &Truth) -> Result<(), String> {
    let mut made = BTreeSet::new();
    let all = truth.log.iter().flat_map(|entry| &entry.changes);
    for change in all.filter(|change| is_item(&change.path) && change.kind == Kind::Created) {
        let first = changing(&change.path)
            .is_none_or(|tokens| tokens.starts_with("d0") && !tokens.contains('c'));
        let item = change.node.as_ref().map(|node| text(&node.data)).unwrap_or_default();
        if first && !made.insert(item.clone()) {
            return Err(format!("{item} was put twice"));
        }
    }
    items.none_failed(&made)
}

/// L-Q-10: each bounded item has a slot of its own, below the capacity.
fn no_slot_is_filled_twice(truth: &Truth) -> Result<(), String> {
    let mut filled = BTreeMap::new();
    for entry in &truth.log {
        for change in entry.changes.iter().filter(|change| is_item(&change.path)) {
            match change.node {
                Some(_) => filled.insert(change.path.clone(), slot(&change.path)),
                None => filled.remove(&change.path),
            };
        }
        let slots: Vec<_> = filled.values().flatten().collect();
        let distinct: BTreeSet<_> = slots.iter().collect();
        if distinct.len() < slots.len() || slots.iter().any(|slot| **slot >= CAPACITY.get()) {
            return Err(format!("the slots {slots:?} are filled"));
        }
    }
    Ok(())
}

/// The part of the name of an item that changes.
fn changing(path: &Path) -> Option<&str> {
    path.name().split_once("-+")?.1.split('-').next()
}

/// The slot that an item fills.
fn slot(path: &Path) -> Option<usize> {
    changing(path)?.split_once('s')?.1.parse().ok()
}

async fn drain(me: Process, items: Items) -> Result<(), String> {
    let take = async |queue: &Queue<String>| {
        for letter in queue.dead().await? {
            queue.revive(&letter).await?;
        }
        // An id that is in use is free when its item was taken.
        if queue.len().await? == 0 { Ok(vec![]) } else { queue.take().await.map(|item| vec![item]) }
    };
    let [items_dir, claimed] = dirs_of_items();
    let dirs = [items_dir, claimed, dead()];
    items.drain(me, &dirs, |client| Queue::<String>::new(client, dir()), take).await
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).trim_matches('"').to_owned()
}

fn is_item(path: &Path) -> bool {
    path.parent().is_some_and(|parent| dirs_of_items().contains(&parent))
}

/// Returns true for the node of an item that was not had, also of a dead letter.
fn is_left(path: &Path) -> bool {
    is_item(path) || path.parent().is_some_and(|parent| parent == dead())
}

fn dead() -> Path {
    Path::new("/queue/dead").expect("it is one")
}

fn dir() -> Path {
    Path::new("/queue").expect("it is one")
}

/// Where items are that wait, and those that a consumer has claimed.
fn dirs_of_items() -> [Path; 2] {
    ["/queue/items", "/queue/claimed"].map(|dir| Path::new(dir).expect("it is one"))
}
