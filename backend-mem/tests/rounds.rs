//! The number of successive round trips of a recipe, in virtual time: each call takes one, and
//! nothing else takes any.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use synod_core::client::{Client, ClientOptions};
use synod_core::clock;
use synod_core::path;
use synod_core::task::{Task, spawn};
use synod_mem::MemBackend;
use synod_recipes::partition::{Partition, Share, ShareChange};
use synod_testkit::hesitant::HesitantBackend;

const TRIP: Duration = Duration::from_millis(100);
const ITEMS: usize = 1_000;
const MEMBERS: usize = 16;

/// A member that stops as soon as it is requested to.
struct Worker {
    share: Arc<Share>,
    _task: Task,
}

async fn joined(backend: &MemBackend, name: &str) -> Worker {
    let slow = HesitantBackend::new(backend.clone()).pausing(TRIP / 2);
    let client = Client::open(slow, ClientOptions::default()).await.expect("memory is there");
    let items = (0..ITEMS).map(|number| format!("item-{number:04}"));
    let share = Partition::new(&client, path!("/parts"), items).join(name).await;
    let share = Arc::new(share.expect("memory is there"));
    let working = share.clone();
    let task = spawn(async move {
        let mut changes = pin!(working.changes());
        while let Some(change) = changes.next().await {
            if let ShareChange::Release(items) = change {
                working.release(&items).await.expect("memory is there");
            }
        }
    });
    Worker { share, _task: task }
}

fn is_settled(workers: &[Worker]) -> bool {
    let mut all = BTreeSet::new();
    for worker in workers {
        let items = worker.share.items();
        if !(ITEMS / workers.len()..=ITEMS.div_ceil(workers.len())).contains(&items.len()) {
            return false;
        }
        for item in items {
            assert!(all.insert(item), "two members hold one item");
        }
    }
    all.len() == ITEMS
}

/// The time until all have their items.
async fn settles(workers: &[Worker]) -> Duration {
    let start = clock::now();
    while !is_settled(workers) {
        clock::sleep(Duration::from_millis(1)).await;
        assert!(clock::elapsed(start) < TRIP * 100, "they do not settle");
    }
    clock::elapsed(start)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_items_of_sixteen_members_settle_within_three_round_trips() {
    let backend = MemBackend::new();
    let mut workers = Vec::new();
    for number in 0..MEMBERS - 1 {
        workers.push(joined(&backend, &format!("{number}")).await);
        settles(&workers).await;
    }

    // Until then the last read of each is answered. The store has the new member before the answer
    // to that arrives.
    clock::sleep(TRIP * 5).await;
    workers.push(joined(&backend, "last").await);
    let after_join = settles(&workers).await + TRIP / 2;

    assert!(after_join <= TRIP * 3, "{after_join:?} after a member came");
    clock::sleep(TRIP * 5).await;
    let last = workers.pop().expect("it came");
    drop(last);
    let after_leave = settles(&workers).await;
    assert!(after_leave <= TRIP * 3, "{after_leave:?} after a member left");
}
