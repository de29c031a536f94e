//! Several locks that are acquired as one.

use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime};
use synod_recipes::lock::{MultiLock, Mutex};
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::time::timeout;

use crate::door::{answer, failure};
use crate::recipe::{Waiting, line};
use crate::world::World;

cases![
    "L-X-3 L-MX-7" breaks [LocksInAnyOrder] => two_orders_do_not_wait_for_each_other,
    "L-X-3" breaks [DroppedTicketStays] => a_client_that_does_not_get_all_locks_gets_none,
    "L-X-3 L-OUT-5" breaks [RemovalUnnoticed] => a_client_that_loses_one_lock_waits_for_no_other,
    "L-X-3 L-MX-5" breaks [TxnUnguarded] => a_transaction_under_several_locks_needs_all,
];

fn locks(world: &World, client: &Client, names: &[&str]) -> MultiLock {
    MultiLock::new(client, names.iter().map(|name| world.at(name)))
}

async fn two_orders_do_not_wait_for_each_other(world: World) {
    const ROUNDS: usize = 10;
    let mut both = Vec::new();
    for names in [["a", "b", "c"], ["c", "b", "a"]] {
        let client = world.hesitant().await;
        let lock = locks(&world, &client, &names);
        both.push(Waiting::new(async move {
            for _ in 0..ROUNDS {
                let guard = lock.lock().await?;
                assert!(guard.is_held());
                guard.release().await?;
            }
            Ok(())
        }));
    }
    for one in both {
        one.gets(&world, "all locks, in the end").await;
    }
}

async fn a_client_that_loses_one_lock_waits_for_no_other(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let _held = answer(Mutex::new(&ann, world.at("b")).lock().await);
    let several = locks(&world, &bob, &["a", "b"]);
    let mut locking = Box::pin(several.lock());
    let waits = async {
        world.stand(&ann, &world.at("b"), 2).await;
        let first = line(&ann, &world.at("a")).await.remove(0).path;
        answer(ann.delete(&first, Expect::Any).await).ok().expect("it is there");
    };
    let (locked, ()) =
        futures_util::future::join(world.in_time("word of the loss", &mut locking), waits).await;

    assert_eq!(failure(locked, "a lock of which one is lost").kind(), ErrorKind::SessionLost);
    world.stand(&ann, &world.at("b"), 1).await;
}

async fn a_client_that_does_not_get_all_locks_gets_none(world: World) {
    let (ann, (bob, plan)) = (world.client().await, world.scripted([]).await);
    let held = answer(Mutex::new(&ann, world.at("b")).lock().await);
    let several = locks(&world, &bob, &["a", "b", "c"]);
    let tokens = async |name: &str| line(&ann, &world.at(name)).await.len();

    assert!(answer(several.try_lock().await).is_none(), "ann has one of them");
    assert_eq!([tokens("a").await, tokens("b").await, tokens("c").await], [0, 1, 0]);

    let late = timeout(world.brief(), several.lock()).await;
    assert!(late.is_err(), "ann has one of them");
    world.left_alone(&ann, &world.at("a")).await;
    assert_eq!([tokens("b").await, tokens("c").await], [1, 0]);
    answer(held.release().await);

    plan.cue(Cue::new(Site::Denied).of(Verb::Create).under(world.at("b")));
    let denied = failure(several.lock().await, "a lock that is denied");
    assert_eq!((denied.kind(), plan.pending()), (ErrorKind::Denied, 0));
    world.left_alone(&ann, &world.at("a")).await;
    assert_eq!([tokens("b").await, tokens("c").await], [0, 0], "later ones are not requested");

    let guard = answer(several.try_lock().await).expect("all are free");
    assert_eq!([tokens("a").await, tokens("b").await, tokens("c").await], [1, 1, 1]);
    answer(guard.release().await);
    for names in [&["a", "b", "a"][..], &[]] {
        let named = MultiLock::new(&ann, names.iter().map(|name| world.at(name)));
        let refused = failure(named.lock().await, "what cannot be meant");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        let refused = failure(named.try_lock().await, "what cannot be meant");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
}

async fn a_transaction_under_several_locks_needs_all(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let guard = answer(locks(&world, &ann, &["a", "b"]).lock().await);
    let write = |name: &str| guard.txn().create(world.at(name), "", Lifetime::Persistent);
    assert!(answer(ann.commit(write("first")).await).is_committed());

    let removed = bob.delete(guard.guards()[1].path(), Expect::Any).await;

    assert!(answer(removed).is_committed());
    assert!(answer(ann.commit(write("second")).await).rejected().is_some());
    world.in_time("word of the loss", guard.lost()).await;
    assert!(!guard.is_held());
}
