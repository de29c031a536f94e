//! How soon a change is heard of.
//!
//! The server tells a watch that begins in the past from a loop that runs every 100 ms, and keeps
//! it there until it has caught up. Nothing of ours may wait for that.

use std::pin::pin;
use std::time::Duration;

use etcd_client::{Client, WatchOptions};
use futures_util::future::{Either, join, join_all, select};
use synod_core::store::{Event, Expect, Lifetime, Query, Store, Txn};
use tokio::time::{Instant, interval};

use crate::world::{World, create, eventually, next, path};

const TTL: Duration = Duration::from_secs(20);

/// Writes that concern nobody, a thousand in a second if the machine can, until the work is done.
async fn amid_writes<T>(world: &World, work: impl Future<Output = T>) -> T {
    const AT_ONCE: u64 = 10;
    let client = world.raw().await;
    let writing = async {
        let mut ticks = interval(Duration::from_millis(AT_ONCE));
        for round in 0_u64.. {
            ticks.tick().await;
            join_all((0..AT_ONCE).map(|number| put(&client, round * AT_ONCE + number))).await;
        }
    };
    match select(pin!(work), pin!(writing)).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => unreachable!("nobody writes for so long"),
    }
}

async fn put(client: &Client, number: u64) {
    let key = format!("/unrelated//n{}", number % 100);
    client.kv_client().put(key, "x", None).await.expect("answered");
}

/// Whether the server has a watch that must catch up. Waits until it has none.
async fn one_was_late(world: &World) -> bool {
    let late = world.cluster.late_watches() > 0;
    eventually("all watches have caught up", async || world.cluster.late_watches() == 0).await;
    late
}

pub(crate) async fn watches_have_nothing_to_catch_up_with() {
    const ROUNDS: usize = 60;
    let world = World::alone();
    let (ann, bob) = (world.session(TTL).await, world.session(TTL).await);
    let work = Box::pin(async {
        let (mut held, mut late) = (Vec::new(), 0);
        for round in 0..ROUNDS {
            let dir = path(&format!("/d/{}", round % 7));
            let query = match round % 3 {
                0 => Query::node(dir),
                1 => Query::children(dir),
                _ => Query::subtree(dir).names_only(),
            };
            held.push(ann.observe(query).await.expect("answered").1);
            late += usize::from(one_was_late(&world).await);
            create(&*bob, &format!("/d/{}/n{round}", round % 7), Lifetime::Session).await;
            late += usize::from(one_was_late(&world).await);
        }
        // The server looks which revision is now, and takes the watch then: a write may come between.
        assert!(late < ROUNDS / 4, "{late} of {ROUNDS} watches were late");

        // That is what it looks like.
        let mut raw = world.raw().await;
        eventually("a watch of the past is seen to catch up", async || {
            let past = WatchOptions::new().with_start_revision(2).with_all_keys();
            let _watch = raw.watch("", Some(past)).await.expect("answered");
            world.cluster.late_watches() > 0
        })
        .await;
    });
    amid_writes(&world, work).await;
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// How long a set takes, and how long until one hears of it who has just begun to watch, at the
/// median.
async fn paces(ann: &dyn Store, bob: &dyn Store) -> (Duration, Duration) {
    let (mut answered, mut heard) = (Vec::new(), Vec::new());
    for _ in 0..101 {
        let (_view, mut watch) = bob.observe(Query::node(path("/n"))).await.expect("answered");
        let began = Instant::now();
        let setting = async {
            let txn = Txn::new().set(path("/n"), "y", Expect::Any);
            ann.commit(txn).await.expect("answered").required().expect("it is there");
            began.elapsed()
        };
        let hearing = async {
            assert!(matches!(next(&mut watch).await, Event::Changed(_)));
            began.elapsed()
        };
        let (set, told) = join(setting, hearing).await;
        answered.push(set);
        heard.push(told);
    }
    (median(answered), median(heard))
}

pub(crate) async fn a_change_is_heard_of_when_it_is_answered() {
    let world = World::alone();
    let (ann, bob) = (world.session(TTL).await, world.session(TTL).await);
    create(&*ann, "/n", Lifetime::Persistent).await;

    let (answered, heard) = amid_writes(&world, paces(&*ann, &*bob)).await;

    // A slow machine is slow with both. Whatever waits for the loop waits 50 ms at the median.
    assert!(heard < answered * 10, "a set takes {answered:?}, and is heard of after {heard:?}");
}
