//! The delay after which a change is reported.
//!
//! The server serves a watch that begins in the past from a loop that runs every 100 ms, and keeps
//! it there until it has caught up. No watch of synod may wait for that.

use std::pin::pin;
use std::time::Duration;

use etcd_client::{Client, WatchOptions};
use futures_util::future::{Either, join_all, join3, select};
use synod_core::store::{Event, Expect, Lifetime, Query, Store, Txn};
use tokio::time::{Instant, interval};

use crate::world::{World, create, eventually, next, path};

const TTL: Duration = Duration::from_secs(20);

/// Makes unrelated writes, a thousand per second if the machine can, until the work is done.
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
        Either::Right(_) => unreachable!("no client writes for so long"),
    }
}

async fn put(client: &Client, number: u64) {
    let key = format!("/unrelated//n{}", number % 100);
    client.kv_client().put(key, "x", None).await.expect("answered");
}

/// Waits until the server has no watch that must catch up. Returns `true` if there was one.
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
        let (mut held, mut late, mut plainly_late) = (Vec::new(), 0, 0);
        let mut raw = world.raw().await;
        for round in 0..ROUNDS {
            let dir = path(&format!("/d/{}", round % 7));
            let query = match round % 3 {
                0 => Query::node(dir),
                1 => Query::children(dir),
                _ => Query::subtree(dir).names_only(),
            };
            held.push(ann.watch(query).await.expect("answered").1);
            late += usize::from(one_was_late(&world).await);
            // For comparison, the plain client's watch from the current revision.
            let _plain = raw.watch(format!("/plain//{round}"), None).await.expect("answered");
            plainly_late += usize::from(one_was_late(&world).await);
            create(&*bob, &format!("/d/{}/n{round}", round % 7), Lifetime::Session).await;
            late += usize::from(one_was_late(&world).await);
        }
        // The server reads its current revision first, and registers the watch then: a write may
        // come between, more often on a slower machine. It reads the revision twice as often for
        // our watches.
        assert!(
            late <= plainly_late * 3 + ROUNDS / 4,
            "{late} of {ROUNDS} watches were late, and {plainly_late} of the plain client"
        );

        // This shows that the count of late watches works.
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

/// Median times: of a set, until a new watch reports the set, and until an established watch of
/// the plain client reports it.
struct Paces {
    answered: Duration,
    heard: Duration,
    heard_plainly: Duration,
}

async fn paces(world: &World, ann: &dyn Store, bob: &dyn Store) -> Paces {
    let (mut answered, mut heard, mut heard_plainly) = (Vec::new(), Vec::new(), Vec::new());
    let mut raw = world.raw().await;
    let everything = WatchOptions::new().with_prefix();
    let mut plain = raw.watch("//n", Some(everything)).await.expect("answered");
    for _ in 0..101 {
        let (_view, mut watch) = bob.watch(Query::node(path("/n"))).await.expect("answered");
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
        let hearing_plainly = async {
            loop {
                let told = plain.message().await.expect("answered").expect("it goes on");
                if !told.events().is_empty() {
                    return began.elapsed();
                }
            }
        };
        let (set, told, told_plainly) = join3(setting, hearing, hearing_plainly).await;
        answered.push(set);
        heard.push(told);
        heard_plainly.push(told_plainly);
    }
    let [answered, heard, heard_plainly] = [answered, heard, heard_plainly].map(median);
    Paces { answered, heard, heard_plainly }
}

pub(crate) async fn a_change_is_heard_of_when_it_is_answered() {
    let world = World::alone();
    let (ann, bob) = (world.session(TTL).await, world.session(TTL).await);
    create(&*ann, "/n", Lifetime::Persistent).await;

    let measuring = Box::pin(paces(&world, &*ann, &*bob));
    let paces = Box::pin(amid_writes(&world, measuring)).await;

    // A slow machine is slow with all of them. An event that waits for the loop takes 50 ms at the
    // median.
    let Paces { answered, heard, heard_plainly } = paces;
    let slow = answered.max(heard_plainly);
    assert!(
        heard < slow * 10,
        "a set takes {answered:?}, and is heard of after {heard:?}, by the plain client after {heard_plainly:?}"
    );
}
