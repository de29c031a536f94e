//! A store that runs out of space while many clients write: etcd refuses writes that it has
//! applied.

use std::time::Duration;

use futures_util::future::{join, join_all};
use synod_core::client::{Client, ClientOptions};
use synod_core::error::{Error, ErrorKind};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Query, SessionOptions, Store, Txn};
use synod_etcd::{EtcdBackend, MemberStatus};
use synod_recipes::lock::Mutex;
use synod_servers::etcd::Flavour;
use tokio::time::timeout;

use crate::world::{World, path};

const WRITERS: usize = 16;
/// The size crosses the quota once in each round. Whether requests are in flight then is random.
const ROUNDS: usize = 4;
const TTL: Duration = Duration::from_secs(60);
/// The maximum time to find a ticket and delete it.
const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) fn small() -> World {
    let mut flavour = Flavour::default();
    flavour.arguments = ["--quota-backend-bytes", "4000000"].map(str::to_owned).to_vec();
    World::new(1, &flavour)
}

/// Follows the advice in the error.
pub(crate) async fn make_room(world: &World) {
    let now = world.raw().await.get("now", None).await.expect("answered");
    let now = now.header().expect("always there").revision().to_string();
    let steps: [&[&str]; 3] =
        [&["compaction", "--physical", &now], &["defrag"], &["alarm", "disarm"]];
    for step in steps {
        let done =
            world.cluster.etcdctl().args(step).output().expect("etcdctl is installed with etcd");
        assert!(done.status.success(), "{step:?}: {done:?}");
    }
}

/// Creates one node after the other until that fails.
async fn fill(store: &dyn Store, dir: &str) -> (Path, Error) {
    for number in 0.. {
        let node = path(&format!("{dir}/{number}"));
        let txn = Txn::new().create(node.clone(), vec![0; 40_000], Lifetime::Persistent);
        if let Err(error) = store.commit(txn).await {
            return (node, error);
        }
    }
    unreachable!("no store has room for all numbers")
}

async fn empty(world: &World, store: &dyn Store) {
    let view = store.read(Query::subtree(path("/full"))).await.expect("answered");
    for node in view.nodes.into_iter().rev().filter(|node| node.stat.is_some()) {
        let deleted = store.commit(Txn::new().delete(node.path, Expect::Any)).await;
        deleted.expect("answered").required().expect("it is there");
    }
    make_room(world).await;
}

pub(crate) async fn a_write_that_a_full_store_refused_for_certain_is_not_there() {
    let world = small();
    let ann = world.session(TTL).await;
    for round in 0..ROUNDS {
        let dirs: Vec<_> = (0..WRITERS).map(|writer| format!("/full/{round}/{writer}")).collect();
        let failed = join_all(dirs.iter().map(|dir| fill(&*ann, dir))).await;

        for (node, error) in failed {
            assert_eq!(error.kind(), ErrorKind::Backend, "{error}");
            let view = ann.read(Query::node(node)).await.expect("answered");
            assert!(error.has_unknown_effect() || view.node().is_none(), "it is there: {error}");
        }
        empty(&world, &*ann).await;
    }
}

pub(crate) async fn the_alarm_of_a_full_store_is_in_its_status() {
    let world = small();
    let filler = world.session(TTL).await;
    let status = async || MemberStatus::of(world.options()).await.expect("answered");
    let before = status().await;
    assert!(before.version.starts_with("3.") && before.is_leader && !before.is_learner);
    assert_eq!(before.leader.as_ref(), Some(&before.member));
    assert_eq!((before.leases, before.alarms.len()), (Some(1), 0));

    let (_full, _error) = fill(&*filler, "/full").await;

    let full = status().await;
    let alarms = full.alarms.iter().map(|alarm| (&*alarm.name, &*alarm.member));
    assert_eq!(alarms.collect::<Vec<_>>(), [("NOSPACE", &*before.member)]);
    assert!(full.db_size > before.db_size, "{} bytes", full.db_size);
    empty(&world, &*filler).await;
    assert_eq!(status().await.alarms, []);
}

pub(crate) async fn a_lock_that_failed_for_want_of_space_blocks_no_other() {
    let world = small();
    let filler = world.session(TTL).await;
    let client = async || {
        let options = ClientOptions::default().session(SessionOptions::new(TTL));
        let backend = EtcdBackend::new(world.options()).expect("valid");
        Client::open(backend, options).await.expect("a server runs")
    };
    let (ann, bob) = (client().await, client().await);
    let locking = async |dir: String| {
        let mut held = Vec::new();
        for number in 0.. {
            let lock = path(&format!("{dir}/{number}"));
            match Mutex::new(&ann, lock.clone()).lock().await {
                Ok(guard) => held.push(guard),
                Err(_full) => return (lock, held),
            }
        }
        unreachable!("no store has room for all numbers")
    };
    for round in 0..ROUNDS {
        let fillers = (0..4).map(|writer| format!("/full/{round}/{writer}"));
        let filling = join_all(fillers.map(async |dir| fill(&*filler, &dir).await));
        let lockers = (0..WRITERS).map(|locker| locking(format!("/locks/{round}/{locker}")));
        let (_full, locked) = join(filling, join_all(lockers)).await;
        empty(&world, &*filler).await;

        for (lock, held) in locked {
            let mutex = Mutex::new(&bob, lock.clone());
            let guard = timeout(PATIENCE, mutex.lock()).await;
            let guard = guard.unwrap_or_else(|_| panic!("{lock} is locked by a failed call"));
            guard.expect("there is room again").release().await.expect("answered");
            drop(held);
        }
    }
}
