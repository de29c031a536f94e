//! No change is lost between a view and its watch, at any point in time: L-WAT-1, L-WAT-2, L-KV-3.

use std::time::Duration;

use synod_conformance::harness::Link;
use synod_core::store::{Event, Expect, Query, Txn};
use tokio::time::{Instant, timeout};

use crate::protocol::{Request, op};
use crate::scene::{LONG, PATIENCE, create, done, make, open, panics, path, peer, remove, set};
use crate::script::{Deed, Rule};

/// What is observed.
type Observed = (&'static str, fn(&str) -> Query);

const QUERIES: [Observed; 5] = [
    ("node", |dir| Query::node(path(&format!("{dir}/a")))),
    ("until it goes", |dir| Query::until_gone(path(&format!("{dir}/a")))),
    ("names", |dir| Query::children(path(dir)).names_only()),
    ("children", |dir| Query::children(path(dir))),
    ("subtree", |dir| Query::subtree(path(dir))),
];

/// The requests before or after which another client writes.
const SITES: [i32; 6] =
    [op::ADD_WATCH, op::SYNC, op::GET_DATA, op::GET_CHILDREN, op::GET_CHILDREN_2, op::MULTI_READ];

/// The writes of another client.
fn changes(dir: &str) -> [Vec<Request>; 3] {
    let (a, b) = (format!("{dir}/a"), format!("{dir}/b"));
    [vec![remove(&a)], vec![make(&b), set(&a, "new"), remove(&a)], vec![set(&a, "new"), make(&b)]]
}

/// Whether the current state is the one that was last reported.
fn same(view: &synod_core::store::View, now: &synod_core::store::View, until_gone: bool) -> bool {
    if until_gone {
        return view.node().is_some() == now.node().is_some();
    }
    let short = |view: &synod_core::store::View| {
        let nodes = view.nodes.iter();
        nodes.map(|node| (node.path.clone(), node.data.clone())).collect::<Vec<_>>()
    };
    short(view) == short(now)
}

pub(crate) async fn a_change_around_the_read_is_reported() {
    let peer = peer(1);
    let mut round = 0;
    for (what, query) in QUERIES {
        for site in SITES {
            for change in 0..3 {
                for ahead in [true, false] {
                    round += 1;
                    let (dir, store) = (format!("/around/{round}"), open(&peer, LONG).await);
                    done(&*store, create(&format!("{dir}/a"), "old")).await;
                    let writes = changes(&dir)[change].clone();
                    let deed =
                        if ahead { Deed::Meanwhile(writes) } else { Deed::Afterwards(writes) };
                    peer.when(Rule::new(deed).op(site).of(store.session().id.get()));
                    let query = query(&dir);

                    let observed = timeout(PATIENCE, store.observe(query.clone())).await;
                    let (view, mut watch) = observed.expect("it ends").expect("the peer answers");
                    peer.change(|world| world.script.calm());
                    let now = store.read(query.clone()).await.expect("the peer answers");

                    if !same(&view, &now, query.is_until_gone()) {
                        let event = timeout(PATIENCE, watch.next()).await;
                        event.unwrap_or_else(|_| {
                            panic!("{what}, {site} before the read {ahead}: {view:?} is {now:?}, unreported")
                        });
                    }
                    store.close().await.expect("it is closed");
                }
            }
        }
    }
    let played = peer.world().script.played_to_all();
    assert!(played >= QUERIES.len() * 6, "{played} of {round}: it asked otherwise");
    assert_eq!(panics(), [""; 0]);
}

/// A node that is observed for its deletion, and is created, written and removed while its watcher
/// is disconnected.
pub(crate) async fn a_change_while_disconnected_is_reported() {
    for (what, query) in QUERIES {
        let peer = peer(1);
        let (dir, store) = ("/gone".to_owned(), open(&peer, LONG).await);
        done(&*store, create(&format!("{dir}/a"), "old")).await;
        let observed = store.observe(query(&dir)).await;
        let (_view, mut watch) = observed.expect("the peer answers");
        peer.stop(0);
        let a = format!("{dir}/a");
        let written = peer.change(|world| {
            // Otherwise the collector could remove the directory.
            world.collects = false;
            world.write(&[make(&format!("{dir}/b")), remove(&a)])
        });
        written.expect("nothing is against it");
        peer.resume(0);
        let told = timeout(PATIENCE, watch.next()).await;
        told.unwrap_or_else(|_| panic!("{what}: no event is delivered"))
            .expect("it does not just end");
    }
}

/// A server of version 3.5: queries that cannot be watched are refused, and not requested again for
/// ever.
pub(crate) async fn a_server_without_lasting_watches_is_not_asked_for_ever() {
    let peer = peer(1);
    peer.change(|world| world.servers[0].unknown.insert(op::ADD_WATCH));
    let store = open(&peer, LONG).await;
    done(&*store, create("/old/a", "")).await;
    let observed = timeout(PATIENCE, store.observe(Query::children(path("/old")))).await;
    if let Ok((_view, mut watch)) = observed.expect("it ends") {
        let end = timeout(PATIENCE, watch.next()).await.expect("it is reported");
        assert!(matches!(end, Some(Event::Ended(_)) | None), "{end:?}");
    }
    let client = crate::scene::client(&peer, LONG).await;
    let mutex = || synod_recipes::Mutex::new(&client, path("/old/lock"));
    let held = mutex().lock().await.expect("there is no earlier ticket");
    let before = peer.world().requests;
    let limit = Duration::from_secs(1);
    let _waits = timeout(limit, mutex().lock()).await.is_ok();
    let asked = peer.world().requests - before;
    assert!(asked < 200, "{asked} requests in {limit:?}");
    held.release().await.expect("the peer answers");
}

/// Many watches are set again at each connection, whatever else happens on it.
pub(crate) async fn watches_outlive_many_connections() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/many/a", "0")).await;
    let (_view, mut watch) =
        store.observe(Query::children(path("/many"))).await.expect("the peer answers");
    for lap in 0..20 {
        peer.change(|world| world.servers[0].close_all());
        let began = Instant::now();
        loop {
            let written =
                store.commit(Txn::new().set(path("/many/a"), lap.to_string(), Expect::Any));
            if written.await.is_ok() {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "it cannot write");
        }
        let told = timeout(PATIENCE, watch.next()).await.expect("it is reported");
        assert!(matches!(told, Some(Event::Changed(_) | Event::Resync)), "{told:?}");
    }
    peer.link(store.session().id, Link::Open);
}
