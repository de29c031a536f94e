//! Two queues into which three processes put items, and from which they take items in every way.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::{Rates, Site};
use synod_core::client::Client;
use synod_core::path::Path;
use synod_core::store::Kind;
use synod_recipes::queue::Queue;

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::holding;
use crate::workload::items::{Items, Layout};
use crate::workload::queue_worker::{
    AGAIN, CAPACITY, CONSUMED, Claims, FULL, MEDDLED, NOTHING, QUEUES, REMOVED, RESOLVED, REVIVED,
    STALE, Shared, UNKNOWN, WORN_OUT, Worker, dir,
};

/// Three processes put items into two queues, take, claim, consume, revive and remove items, and
/// each item is tracked.
pub(super) struct Queues;

const ROUNDS: u64 = 4;

/// The nodes of the queues.
const LAYOUT: Layout = Layout {
    is_item: |path| is_in(path, &["items", "claimed", "dead"]),
    is_claimed: |path| is_in(path, &["claimed"]),
    is_mark: |path| is_in(path, &["marks"]),
    text,
};

impl Workload for Queues {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn about(&self) -> &'static str {
        "three processes put items into two queues, take and claim them, and none is lost or doubled"
    }

    fn laws(&self) -> &'static [&'static str] {
        &[
            "L-Q-1", "L-Q-2", "L-Q-3", "L-Q-4", "L-Q-5", "L-Q-6", "L-Q-9", "L-Q-10", "L-Q-11",
            "L-Q-12",
        ]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[
            DROPPED,
            AGAIN,
            RESOLVED,
            STALE,
            UNKNOWN,
            FULL,
            NOTHING,
            REVIVED,
            REMOVED,
            CONSUMED,
            WORN_OUT,
            MEDDLED,
            holding::LOST,
            holding::SILENT,
        ]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::NearTheEnd, Site::WallClockSet]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let items = Items::new(LAYOUT);
        let (left, puts, working) = (items.clone(), items.clone(), items.clone());
        // The clocks of producers may differ by more than the duration of a history. Items are
        // delayed only if the clocks agree.
        let has_delays = sim.seed.is_multiple_of(2);
        let wrong_clocks = Site::WallClock.fault().filter(|_| has_delays);
        let shared = Shared { items: working, claims: Claims::default(), has_delays };
        // Strangers would remove items.
        sim.without_strangers()
            .rates(|rates| wrong_clocks.into_iter().fold(rates, Rates::without))
            .processes(3, move |me| work(me, shared.clone()))
            .must_end("L-Q-12")
            .eventually("L-Q-4", move |me| drain(me, items.clone()))
            .check("L-Q-1", move |truth| left.none_is_lost(&truth.log))
            .check("L-Q-3", move |truth| each_is_made_once(&puts, truth))
            .check("L-Q-10", no_slot_is_filled_twice)
    }
}

async fn work(me: Process, shared: Shared) {
    shared.items.starts(&me);
    let Ok(client) = me.impatient_client().await else { return };
    let worker = Worker::new(me.clone(), client, shared);
    for round in 0..me.rounds(ROUNDS) {
        worker.round(round).await;
    }
}

/// L-Q-3: each item that was put is one node, except for its deliveries.
fn each_is_made_once(items: &Items, truth: &Truth) -> Result<(), String> {
    let mut made = BTreeSet::new();
    let all = truth.log.iter().flat_map(|entry| &entry.changes);
    let waits = |path: &Path| is_in(path, &["items"]);
    for change in all.filter(|change| waits(&change.path) && change.kind == Kind::Created) {
        let first = changing(&change.path)
            .is_none_or(|tokens| tokens.starts_with("d0") && !tokens.contains('c'));
        let item = change.node.as_ref().map(|node| text(&node.data)).unwrap_or_default();
        if first && !made.insert(item.clone()) {
            return Err(format!("{item} was put twice"));
        }
    }
    items.each_is_there_once(&truth.log)
}

/// L-Q-10: each bounded item has its own slot, below the capacity.
fn no_slot_is_filled_twice(truth: &Truth) -> Result<(), String> {
    QUEUES.iter().try_for_each(|queue| no_slot_of(queue, truth))
}

fn no_slot_of(queue: &str, truth: &Truth) -> Result<(), String> {
    let mut filled = BTreeMap::new();
    let is_here =
        |path: &Path| is_in(path, &["items", "claimed"]) && path.as_str().starts_with(queue);
    for entry in &truth.log {
        for change in entry.changes.iter().filter(|change| is_here(&change.path)) {
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

/// Revives the dead letters, and takes the remaining items of both queues.
async fn drain(me: Process, items: Items) -> Result<(), String> {
    let open = |client: &Client| Ok([0, 1].map(|at| Queue::<String>::new(client, dir(at, ""))));
    let take = async |queues: &[Queue<String>; 2]| {
        let mut taken = Vec::new();
        for queue in queues {
            for letter in queue.dead().await? {
                queue.revive(&letter).await?;
            }
            // A used id becomes free when its item is taken.
            if taken.is_empty() && queue.len().await? > 0 {
                taken.push(queue.take().await?);
            }
        }
        Ok(taken)
    };
    let below = |at| ["/items", "/claimed", "/dead"].map(|below| dir(at, below));
    let dirs = [below(0), below(1)].concat();
    items.drain(me, &dirs, open, take).await
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).trim_matches('"').to_owned()
}

/// Returns `true` for a node in one of these directories of a queue.
fn is_in(path: &Path, dirs: &[&str]) -> bool {
    let place = path.parent_str().and_then(|parent| parent.rsplit_once('/'));
    place.is_some_and(|(queue, dir)| QUEUES.contains(&queue) && dirs.contains(&dir))
}
