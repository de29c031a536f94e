//! More nodes and watches on one session than is sensible.

use std::time::Duration;

use futures_util::future::join_all;
use synod_core::path::Path;
use synod_core::store::{
    Backend as _, Event, Expect, Kind, Lifetime, Query, SessionOptions, Store, Txn, Watch,
};
use synod_servers::zookeeper::{Ensemble, TICK};
use synod_zk::{Access, ZkBackend};
use tokio::time::{Instant, sleep, timeout};

use super::{done, is_live, options, path};

/// The longest time that the server grants.
const TTL: Duration = Duration::from_secs(60);
/// So many requests take a long time on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const MANY: usize = 10_000;
const OPS_PER_TXN: usize = 40;

fn node(number: usize) -> Path {
    path(&format!("/many-nodes/{number}"))
}

/// Applies an operation to all nodes, several in each transaction.
async fn all(store: &dyn Store, op: impl Fn(Txn, usize) -> Txn) {
    let txns = (0..MANY).step_by(OPS_PER_TXN);
    let txns = txns.map(|first| (first..first + OPS_PER_TXN).fold(Txn::new(), &op));
    join_all(txns.map(|txn| done(store, txn))).await;
}

async fn hears(watch: &mut Watch, wanted: impl Fn(&Event) -> bool) {
    loop {
        let event = timeout(PATIENCE, watch.next()).await.expect("in time").expect("it goes on");
        assert!(!matches!(event, Event::Ended(_)), "{event:?}");
        if wanted(&event) {
            return;
        }
    }
}

async fn watched(server: &Ensemble, store: &dyn Store, count: usize) {
    let end = Instant::now() + PATIENCE;
    loop {
        let watches = server.watches(&[store.session().id]);
        if watches == count {
            return;
        }
        assert!(Instant::now() < end, "{watches} watches, and not {count}");
        sleep(TICK).await;
    }
}

pub(super) async fn ten_thousand_nodes_and_watches_outlive_their_server() {
    let mut own = Ensemble::start(1).expect("the other one started, too");
    let backend = ZkBackend::new(options(own.addresses()).access(Access::Open)).expect("valid");
    let open = async |ttl| backend.open(&SessionOptions::new(ttl)).await.expect("a server runs");
    let store = open(TTL).await;
    // The first create makes the directory.
    done(&*store, Txn::new().create(path("/many-nodes/x"), "", Lifetime::Session)).await;
    all(&*store, |txn, number| txn.create(node(number), "", Lifetime::Session)).await;
    let observed = (0..MANY).map(|number| store.watch(Query::node(node(number)).local()));
    let mut watches: Vec<Watch> = join_all(observed)
        .await
        .into_iter()
        .map(|observed| {
            let (view, watch) = observed.expect("answers");
            assert!(view.node().is_some());
            watch
        })
        .collect();

    own.kill(0).expect("it runs");
    own.restart(0).expect("it starts again");
    for watch in &mut watches {
        hears(watch, |event| matches!(event, Event::Resync)).await;
    }
    is_live(&*store).await;

    let other = open(TTL).await;
    let view = other.read(Query::children(path("/many-nodes")).names_only()).await;
    assert_eq!(view.expect("answers").nodes.len(), MANY + 1);
    all(&*other, |txn, number| txn.set(node(number), "new", Expect::Any)).await;
    for watch in &mut watches {
        let updated =
            |event: &Event| matches!(event, Event::Changed(change) if change.kind == Kind::Updated);
        hears(watch, updated).await;
    }
    drop(watches);
    watched(&own, &*store, 0).await;
}
