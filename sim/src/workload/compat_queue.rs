//! A queue of another library: three processes put and take its items, and a consumer of that
//! library locks them.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::cluster::Site;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{Effect, Error};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Outcome, Txn};
use synod_recipes::queue::{CompatQueue, QueueLayout};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::items::{End, Items, Layout, Put};

/// Three processes put items and take them, in two ways, and the items are counted.
pub(super) struct CompatQueues;

const ROUNDS: u64 = 4;

const RESOLVED: &str = "a lost answer was found out";
const UNKNOWN: &str = "a call had an unknown effect";
const LOCKED: &str = "an item was taken under a lock of the other library";

/// The nodes of the queue.
const NODES: Layout = Layout {
    is_item,
    is_claimed: |_| false,
    is_mark: |path| path.parent_str() == Some("/foreign.synod"),
    text,
};

/// A layout with locks.
const LAYOUT: QueueLayout = QueueLayout::KazooLocking;

impl Workload for CompatQueues {
    fn name(&self) -> &'static str {
        "compat_queue"
    }

    fn about(&self) -> &'static str {
        "three processes put and take items beside a consumer of another library, and none is lost or doubled"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-Q-1", "L-Q-2", "L-Q-3", "L-Q-5", "L-Q-6", "L-Q-12"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, RESOLVED, UNKNOWN, LOCKED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::NearTheEnd, Site::WallClockSet]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let book = Items::new(NODES);
        let (left, puts, working) = (book.clone(), book.clone(), book.clone());
        // Strangers would remove items.
        sim.without_strangers()
            .processes(3, move |me| work(me, working.clone()))
            .must_end("L-Q-12")
            .eventually("L-Q-12", move |me| drain(me, book.clone()))
            .check("L-Q-1", move |truth| left.none_is_lost(&truth.log))
            .check("L-Q-3", move |truth| each_is_made_once(&puts, truth))
    }
}

async fn work(me: Process, items: Items) {
    items.starts(&me);
    let Ok(client) = me.impatient_client().await else { return };
    let queue = || CompatQueue::new(&client, dir(), LAYOUT);
    // Two instances in one session.
    let queues = [queue(), queue()];
    let worker = Worker { me: me.clone(), client, queues, items: items.clone() };
    for round in 0..me.rounds(ROUNDS) {
        worker.round(round).await;
    }
}

struct Worker {
    me: Process,
    client: Client,
    queues: [CompatQueue; 2],
    items: Items,
}

impl Worker {
    async fn round(&self, round: u64) {
        self.puts(round).await;
        self.me.rest(Duration::from_millis(100)).await;
        if self.me.pick(3) == 0 {
            self.takes_as_the_other_library().await;
        } else {
            self.takes().await;
        }
    }

    fn queue(&self) -> &CompatQueue {
        &self.queues[usize::from(self.me.pick(3) == 0)]
    }

    async fn puts(&self, round: u64) {
        let me = &self.me;
        let item = format!("{}.{}.{round}", me.name(), me.life());
        self.items.lock().put.insert(item.clone(), Put::Unknown);
        let lost = me.suffered(&[Site::ReplyLost]);
        let put = match me.perhaps(self.queue().put(item.clone())).await {
            Some(Ok(())) => {
                me.sometimes(RESOLVED, me.suffered(&[Site::ReplyLost]) > lost);
                Put::Done
            }
            Some(Err(error)) if self.is_unknown(&error) => Put::Unknown,
            Some(Err(_)) => Put::Failed,
            None => Put::Unknown,
        };
        self.items.lock().put.insert(item, put);
    }

    fn is_unknown(&self, error: &Error) -> bool {
        let is_unknown = error.effect() == Effect::Unknown;
        self.me.sometimes(UNKNOWN, is_unknown);
        is_unknown
    }

    async fn takes(&self) {
        let taking = clock::timeout(self.me.ttl() * 2, self.queue().take());
        match self.me.perhaps(taking).await {
            Some(Ok(Ok(items))) => {
                for item in items {
                    self.items.ends(&self.me, &text(&item), End::Taken, "L-Q-5");
                }
            }
            Some(Ok(Err(error))) => {
                let _is_unknown = self.is_unknown(&error);
            }
            _ => {}
        }
    }

    /// Takes an item as kazoo's `LockingQueue` does: it locks the item, then removes item and lock
    /// together.
    async fn takes_as_the_other_library(&self) {
        let Some(Ok(view)) = self.me.perhaps(self.client.children(&entries())).await else {
            return;
        };
        let Some(path) = view.into_iter().next().map(|node| node.path) else { return };
        let lock = taken().join(path.name()).expect("it is short");
        let locking = self.client.create(&lock, "theirs", Lifetime::Session);
        let Some(Ok(outcome)) = self.me.perhaps(locking).await else { return };
        if outcome.rejected().is_some() {
            return;
        }
        let Some(Ok(Some(node))) = self.me.perhaps(self.client.get(&path)).await else {
            // The item was already taken. The lock is removed, here or with the session.
            drop(self.me.perhaps(self.client.delete(&lock, Expect::Any)).await);
            return;
        };
        let item = text(&node.data);
        self.me.rest(Duration::from_millis(50)).await;
        self.items.lock().unsure.insert(item.clone());
        let both = Txn::new().delete(path, Expect::Any).delete(lock, Expect::Any);
        if let Some(Ok(Outcome::Committed(_))) = self.me.perhaps(self.client.commit(both)).await {
            self.me.sometimes(LOCKED, true);
            self.items.ends(&self.me, &item, End::Acknowledged, "L-Q-6");
        }
    }
}

/// L-Q-3: each item that was put is one node. An item that is put back for a dropped take has the
/// same name.
fn each_is_made_once(items: &Items, truth: &Truth) -> Result<(), String> {
    let mut made = BTreeSet::new();
    let changes = truth.log.iter().flat_map(|entry| &entry.changes);
    for change in changes.filter(|change| is_item(&change.path)) {
        let Some(node) = &change.node else { continue };
        made.insert((text(&node.data), change.path.clone()));
    }
    let items_made: BTreeSet<_> = made.iter().map(|(item, _)| item.clone()).collect();
    if items_made.len() < made.len() {
        return Err(format!("some item was put twice: {made:?}"));
    }
    items.each_is_there_once(&truth.log)
}

async fn drain(me: Process, items: Items) -> Result<(), String> {
    let take =
        async |queue: &CompatQueue| Ok(queue.take().await?.iter().map(|item| text(item)).collect());
    items.drain(me, &[entries()], |client| Ok(CompatQueue::new(client, dir(), LAYOUT)), take).await
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

fn is_item(path: &Path) -> bool {
    path.parent().is_some_and(|parent| parent == entries())
}

fn dir() -> Path {
    Path::new("/foreign").expect("it is one")
}

fn entries() -> Path {
    Path::new("/foreign/entries").expect("it is one")
}

fn taken() -> Path {
    Path::new("/foreign/taken").expect("it is one")
}
