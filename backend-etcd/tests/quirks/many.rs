//! More watches on one session than fit in one message.

use std::time::Duration;

use futures_util::future::join_all;
use synod_core::path::Path;
use synod_core::store::{Event, Expect, Lifetime, Query, Store, Txn, Watch};
use synod_servers::etcd::Flavour;
use synod_testkit::limit::waits_for;
use tokio::time::timeout;

use crate::world::{World, eventually, path};

/// Long, so that no session ends while the server is stopped.
const TTL: Duration = Duration::from_secs(60);
/// So many watches take a long time on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const MANY: usize = 10_000;
const AT_ONCE: usize = 40;

fn node(number: usize) -> Path {
    path(&format!("/many/{number}"))
}

/// Applies an operation to all nodes, several in each transaction.
async fn all(store: &dyn Store, op: impl Fn(Txn, usize) -> Txn) {
    for first in (0..MANY).step_by(AT_ONCE * AT_ONCE) {
        let txns = (first..(first + AT_ONCE * AT_ONCE).min(MANY)).step_by(AT_ONCE);
        let txns = txns.map(|first| (first..first + AT_ONCE).fold(Txn::new(), &op));
        let done = join_all(txns.map(|txn| store.commit(txn))).await;
        for outcome in done {
            outcome.expect("answered").required().expect("nothing is in the way");
        }
    }
}

async fn hears(watch: &mut Watch, number: usize) {
    waits_for(format_args!("an event of node {number}"));
    let event = timeout(PATIENCE, watch.next()).await.expect("in time").expect("it goes on");
    let told = match &event {
        Event::Changed(change) => change.path == node(number),
        Event::Resync => true,
        Event::Ended(_) => false,
    };
    assert!(told, "{event:?} is reported to the watch of node {number}");
}

pub(crate) async fn ten_thousand_watches_outlive_their_server() {
    let mut flavour = Flavour::default();
    flavour.fsync = true;
    let mut world = World::new(1, &flavour);
    let (ann, bob) = (world.session(TTL).await, world.session(TTL).await);
    all(&*bob, |txn, number| txn.create(node(number), "0", Lifetime::Persistent)).await;
    let mut watches = Vec::new();
    for first in (0..MANY).step_by(AT_ONCE) {
        waits_for(format_args!("watch {first} and those after it"));
        let some = (first..first + AT_ONCE).map(|number| ann.watch(Query::node(node(number))));
        let some = join_all(some).await;
        watches.extend(some.into_iter().map(|observed| observed.expect("answered").1));
    }
    assert!(world.cluster.watches() >= MANY as u64, "the server keeps them");

    world.cluster.kill(0).expect("it runs");
    world.cluster.restart(0).expect("it can be started");
    world.cluster.await_ready().expect("ready");

    let answers = async || bob.read(Query::node(node(0))).await.is_ok();
    eventually("the server answers again", answers).await;
    all(&*bob, |txn, number| txn.set(node(number), "1", Expect::Any)).await;
    for (number, watch) in watches.iter_mut().enumerate() {
        hears(watch, number).await;
    }
    assert!(!ann.status().borrow().is_lost());
}
