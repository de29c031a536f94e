//! No change is lost between a view and its watch, at any point in time: L-WAT-1, L-WAT-2, L-KV-3.

use std::time::Duration;

use synod_conformance::harness::Link;
use synod_core::store::{Event, Expect, Kind, Lifetime, Query, Revision, Txn, Watch};
use tokio::time::{Instant, timeout};

use crate::effects::ticket;
use crate::protocol::{Request, op};
use crate::scene::{
    LONG, PATIENCE, committed, count, create, done, make, next, open, panics, path, peer,
    reconnects, recovers, remove, set,
};
use crate::script::{Deed, Rule};
use crate::tree::{Entry, Write};

/// The query that is observed.
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

/// Returns `true` if the current state is the one that was last reported.
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

                    let observed = timeout(PATIENCE, store.watch(query.clone())).await;
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
    assert!(played >= QUERIES.len() * 6, "{played} of {round}: it requests otherwise");
    assert_eq!(panics(), [""; 0]);
}

/// A node that is observed for its deletion, and is created, written and removed while its watcher
/// is disconnected.
pub(crate) async fn a_change_while_disconnected_is_reported() {
    for (what, query) in QUERIES {
        let peer = peer(1);
        let (dir, store) = ("/gone".to_owned(), open(&peer, LONG).await);
        done(&*store, create(&format!("{dir}/a"), "old")).await;
        let observed = store.watch(query(&dir)).await;
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
        let reported = timeout(PATIENCE, watch.next()).await;
        reported
            .unwrap_or_else(|_| panic!("{what}: no event is delivered"))
            .expect("it does not just end");
    }
}

/// A server of version 3.5: queries that cannot be watched are refused, and not requested again
/// forever.
pub(crate) async fn a_server_without_lasting_watches_is_not_asked_for_ever() {
    let peer = peer(1);
    peer.change(|world| world.servers[0].unknown.insert(op::ADD_WATCH));
    let store = open(&peer, LONG).await;
    done(&*store, create("/old/a", "")).await;
    let observed = timeout(PATIENCE, store.watch(Query::children(path("/old")))).await;
    if let Ok((_view, mut watch)) = observed.expect("it ends") {
        let end = timeout(PATIENCE, watch.next()).await.expect("it is reported");
        assert!(matches!(end, Some(Event::Ended(_)) | None), "{end:?}");
    }
    let client = crate::scene::client(&peer, LONG).await;
    let mutex = || synod_recipes::lock::Mutex::new(&client, path("/old/lock"));
    let held = mutex().lock().await.expect("there is no earlier ticket");
    let before = peer.world().requests;
    let limit = Duration::from_secs(1);
    let _waits = timeout(limit, mutex().lock()).await.is_ok();
    let requests = peer.world().requests - before;
    assert!(requests < 200, "{requests} requests in {limit:?}");
    held.release().await.expect("the peer answers");
}

/// A watch that a server refuses for an unknown reason ends, and is not requested again forever.
pub(crate) async fn a_watch_that_is_refused_ends() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/refused/a", "")).await;
    let session = store.session().id.get();
    let refused = Rule::new(Deed::Refuse(-5)).op(op::ADD_WATCH).of(session).times(usize::MAX);
    peer.when(refused);

    let observed = store.watch(Query::children(path("/refused"))).await;

    let (_view, mut watch) = observed.expect("the view is answered");
    let end = timeout(PATIENCE, watch.next()).await.expect("it is reported");
    assert!(matches!(end, Some(Event::Ended(_))), "{end:?}");
    assert_eq!(peer.world().script.played(session), 1);
}

/// On a new connection there is nothing to remove.
pub(crate) async fn a_lasting_watch_is_set_again_by_one_request() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/again/a", "")).await;
    let observed = store.watch(Query::children(path("/again"))).await;
    let (_view, mut watch) = observed.expect("the peer answers");
    let added = count(&peer, &*store, &[op::ADD_WATCH, op::REMOVE_WATCHES]);
    for connections in 1..=3 {
        reconnects(&peer).await;
        let is_set = peer.until(|world| world.servers[0].watches.count() == 1);
        timeout(PATIENCE, is_set).await.expect("it is set again");
        done(&*store, create(&format!("/again/{connections}"), "")).await;
        let last = path(&format!("/again/{connections}"));
        while !matches!(next(&mut watch).await, Event::Changed(change) if change.path == last) {}
        assert_eq!(added(), connections);
    }
}

/// Many watches are set again at each connection, whatever else happens on it.
pub(crate) async fn watches_outlive_many_connections() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/many/a", "0")).await;
    let (_view, mut watch) =
        store.watch(Query::children(path("/many"))).await.expect("the peer answers");
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
        let reported = timeout(PATIENCE, watch.next()).await.expect("it is reported");
        assert!(matches!(reported, Some(Event::Changed(_) | Event::Resync)), "{reported:?}");
    }
    peer.link(store.session().id, Link::Open);
}

/// The writes of another client before a created node is read: as the node may be a container, it
/// is reported only after the read.
fn writes_before_the_read(a: &str) -> [Vec<Request>; 6] {
    let anew = vec![remove(a), make(a)];
    let written = [anew.clone(), vec![set(a, "new")]].concat();
    [vec![], vec![set(a, "new")], vec![remove(a)], vec![set(a, "new"), remove(a)], anew, written]
}

/// The changes of a node.
fn history(log: &[Entry], at: &str) -> Vec<(Kind, u64)> {
    let writes = log.iter().flat_map(|entry| entry.writes.iter().map(|write| (entry.zxid, write)));
    let changes = writes.filter_map(|(zxid, write)| {
        let (path, kind) = match write {
            Write::Create { path, .. } => (path, Kind::Created),
            Write::Set { path, .. } => (path, Kind::Updated),
            Write::Delete { path } => (path, Kind::Deleted),
        };
        (path == at).then_some((kind, zxid.cast_unsigned()))
    });
    changes.collect()
}

/// Events that arrive while a change is verified are neither mistaken for that change nor reported
/// before it: L-WAT-2, L-WAT-3.
pub(crate) async fn changes_are_reported_in_order_while_one_is_verified() {
    for query in [Query::children(path("/order")), Query::subtree(path("/order"))] {
        for writes in writes_before_the_read("/order/a") {
            let (peer, shown) = (peer(1), format!("{query:?} {writes:?}"));
            let store = open(&peer, LONG).await;
            done(&*store, create("/order/kept", "")).await;
            let (_view, mut watch) = store.watch(query.clone()).await.expect("it answers");
            let (begun, undisturbed) = (peer.world().log.len(), writes.is_empty());
            let session = store.session().id.get();
            peer.when(Rule::new(Deed::Meanwhile(writes)).op(op::MULTI_READ).of(session));
            let made = peer.change(|world| world.write(&[make("/order/a")]));
            made.expect("nothing is against it");
            let read = peer.until(|world| world.script.played(session) == 1);
            timeout(PATIENCE, read).await.expect("it is read");
            done(&*store, create("/order/last", "")).await;

            let (mut reported, mut whole) = (Vec::new(), true);
            loop {
                match next(&mut watch).await {
                    Event::Changed(change) if change.path == path("/order/last") => break,
                    Event::Changed(change) => reported.push(change),
                    Event::Resync => whole = false,
                    other @ Event::Ended(_) => panic!("{shown}: {other:?}"),
                }
            }
            let truth = history(&peer.world().log[begun..], "/order/a");
            assert!(
                reported.first().is_none_or(|first| first.kind == Kind::Created),
                "{shown}: {reported:?}"
            );
            let mut left = truth.iter();
            for change in &reported {
                let at = change.revision.map(Revision::get);
                let is_it = |(kind, zxid): &(Kind, u64)| {
                    *kind == change.kind && at.is_none_or(|at| at == *zxid)
                };
                assert!(left.any(is_it), "{shown}: {reported:?} of {truth:?}");
            }
            assert!(!whole || left.next().is_none(), "{shown}: {reported:?} of {truth:?}");
            assert!(!undisturbed || reported[0].node.is_some(), "{shown}: {reported:?}");
        }
    }
}

/// The changes that are reported until that of this node.
async fn until(watch: &mut Watch, last: &str) -> Vec<(Kind, String)> {
    let mut reported = Vec::new();
    loop {
        match next(watch).await {
            Event::Changed(change) if change.path == path(last) => return reported,
            Event::Changed(change) => reported.push((change.kind, change.path.as_str().to_owned())),
            other => panic!("{other:?}, after {reported:?}"),
        }
    }
}

/// A container is no node, so what becomes of it is not reported, and what takes its place is.
pub(crate) async fn a_container_is_not_reported_and_what_takes_its_place_is() {
    let peer = peer(1);
    peer.change(|world| world.collects = false);
    let store = open(&peer, LONG).await;
    done(&*store, create("/boxes/kept", "")).await;
    for name in ["full", "gone"] {
        done(&*store, create(&format!("/boxes/{name}/a"), "")).await;
    }
    done(&*store, Txn::new().delete(path("/boxes/gone/a"), Expect::Any)).await;
    let observed = store.watch(Query::children(path("/boxes"))).await;
    let (_view, mut watch) = observed.expect("the peer answers");

    // One is new, the servers remove another, and a node takes the place of the third, by two
    // writes.
    done(&*store, create("/boxes/new/a", "")).await;
    peer.change(|world| world.write(&[remove("/boxes/gone")])).expect("it is empty");
    done(&*store, Txn::new().delete(path("/boxes/full/a"), Expect::Any)).await;
    done(&*store, create("/boxes/full", "")).await;
    done(&*store, create("/boxes/last", "")).await;

    let created = (Kind::Created, "/boxes/full".to_owned());
    assert_eq!(until(&mut watch, "/boxes/last").await, [created]);
}

/// While the client was disconnected a node took the place of a container, whose removal was not
/// reported.
pub(crate) async fn what_took_the_place_of_a_container_meanwhile_is_reported() {
    let peer = peer(1);
    peer.change(|world| world.collects = false);
    let store = open(&peer, LONG).await;
    done(&*store, create("/boxes/kept", "")).await;
    done(&*store, create("/boxes/box/a", "")).await;
    done(&*store, Txn::new().delete(path("/boxes/box/a"), Expect::Any)).await;
    let query = Query::children(path("/boxes"));
    let (_view, mut watch) = store.watch(query).await.expect("the peer answers");
    peer.stop(0);
    let meanwhile = [remove("/boxes/box"), make("/boxes/box")];
    peer.change(|world| world.write(&meanwhile)).expect("nothing is against it");
    peer.resume(0);
    assert!(matches!(next(&mut watch).await, Event::Resync));

    recovers(&*store).await;
    peer.change(|world| world.write(&[remove("/boxes/box")])).expect("it is there");
    done(&*store, create("/boxes/last", "")).await;

    let deleted = (Kind::Deleted, "/boxes/box".to_owned());
    assert_eq!(until(&mut watch, "/boxes/last").await, [deleted]);
}

/// A connection that is lost before a watch is set costs no observation.
pub(crate) async fn an_observation_outlives_the_connection_that_it_began_on() {
    for (what, query) in QUERIES {
        for site in [op::ADD_WATCH, op::GET_DATA, op::GET_CHILDREN, op::GET_CHILDREN_2] {
            let (peer, dir) = (peer(1), "/begun");
            let store = open(&peer, LONG).await;
            done(&*store, create("/begun/a", "old")).await;
            done(&*store, create("/begun/kept", "")).await;
            peer.when(Rule::new(Deed::CloseBefore).op(site).at(dir));
            let observed = timeout(PATIENCE, store.watch(query(dir))).await.expect("it ends");
            let (_view, mut watch) = observed.unwrap_or_else(|error| panic!("{what}: {error}"));
            recovers(&*store).await;
            peer.change(|world| world.write(&[remove("/begun/a")])).expect("it is there");
            loop {
                let event = next(&mut watch).await;
                assert!(matches!(event, Event::Changed(_) | Event::Resync), "{what}: {event:?}");
                let now = store.read(query(dir)).await.expect("the peer answers");
                if !now.nodes.iter().any(|node| node.path == path("/begun/a")) {
                    break;
                }
            }
        }
    }
}

/// The node is gone, and the observer needs no read to learn that.
pub(crate) async fn one_event_is_what_happened() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    for query in [Query::until_gone(path("/one/a")), Query::node(path("/one/a")).once()] {
        done(&*store, Txn::new().create(path("/one/a"), "", Lifetime::Session)).await;
        let (_view, mut watch) = store.watch(query).await.expect("the peer answers");
        peer.change(|world| world.write(&[remove("/one/a")])).expect("it is there");
        let Event::Changed(change) = next(&mut watch).await else { panic!("it is deleted") };
        assert_eq!(change.kind, Kind::Deleted);
    }
    done(&*store, create("/one/a", "")).await;
    let query = Query::node(path("/one/a")).once();
    let (_view, mut watch) = store.watch(query).await.expect("the peer answers");
    peer.change(|world| world.write(&[set("/one/a", "new")])).expect("it is there");
    let Event::Changed(change) = next(&mut watch).await else { panic!("it is written") };
    assert_eq!(change.kind, Kind::Updated);
}

/// While the client was disconnected another node took the place of the one that it watches: the
/// servers report that as a write.
pub(crate) async fn another_node_in_its_place_is_no_write() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/place/kept", "")).await;
    done(&*store, create("/place/a", "")).await;
    let query = Query::node(path("/place/a")).once();
    let (_view, mut watch) = store.watch(query).await.expect("the peer answers");
    peer.stop(0);
    let anew = [remove("/place/a"), make("/place/a")];
    peer.change(|world| world.write(&anew)).expect("nothing is against it");
    peer.resume(0);
    let event = next(&mut watch).await;
    assert!(matches!(event, Event::Resync), "{event:?}");
}

/// A check that nothing is there creates and deletes a node in one transaction of the servers.
pub(crate) async fn a_check_for_absence_is_not_reported() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/absent/kept", "")).await;
    let query = Query::children(path("/absent"));
    let (_view, mut watch) = store.watch(query).await.expect("the peer answers");
    done(&*store, Txn::new().check(path("/absent/a"), Expect::Absent)).await;
    done(&*store, create("/absent/last", "")).await;
    match next(&mut watch).await {
        Event::Resync => {}
        Event::Changed(change) => assert_eq!(change.path, path("/absent/last"), "{change:?}"),
        other @ Event::Ended(_) => panic!("{other:?}"),
    }
}

/// An observer that takes hints learns of a node in the place of a container, so that a later
/// observer is notified of its deletion.
pub(crate) async fn what_was_only_a_hint_is_no_container_any_more() {
    let peer = peer(1);
    peer.change(|world| world.collects = false);
    let store = open(&peer, LONG).await;
    done(&*store, create("/hints/kept", "")).await;
    done(&*store, create("/hints/box/a", "")).await;
    done(&*store, Txn::new().delete(path("/hints/box/a"), Expect::Any)).await;
    let query = || Query::children(path("/hints"));
    let first = store.watch(query()).await.expect("the peer answers");
    let (_view, mut hints) = store.watch(query().hints()).await.expect("the peer answers");
    drop(first);

    let meanwhile = [remove("/hints/box"), make("/hints/box")];
    peer.change(|world| world.write(&meanwhile)).expect("nothing is against it");
    loop {
        match next(&mut hints).await {
            Event::Changed(change) if change.kind == Kind::Created => break,
            _ => {}
        }
    }
    let (view, mut watch) = store.watch(query()).await.expect("the peer answers");
    assert_eq!(view.nodes.len(), 2, "{view:?}");
    peer.change(|world| world.write(&[remove("/hints/box")])).expect("it is there");
    done(&*store, create("/hints/last", "")).await;

    let deleted = (Kind::Deleted, "/hints/box".to_owned());
    assert_eq!(until(&mut watch, "/hints/last").await, [deleted]);
}

/// A session that created tickets in a directory watched it for itself, until it was observed. When
/// it forgets the directory, the observer loses nothing.
pub(crate) async fn a_directory_is_observed_on_after_the_session_forgot_its_tickets() {
    /// The number of directories that are remembered.
    const MAX_DIRS: usize = 256;

    let peer = peer(1);
    peer.change(|world| world.collects = false);
    let store = open(&peer, LONG).await;
    let cycle = async |dir: &str| {
        let drawn = committed(&*store, ticket(dir)).await;
        done(&*store, Txn::new().delete(&drawn.results[0].path, Expect::Any)).await;
    };
    for _ in 0..5 {
        cycle("/drawn").await;
    }
    let query = Query::children(path("/drawn"));
    let (_view, mut watch) = store.watch(query).await.expect("the peer answers");
    for number in 0..3 * MAX_DIRS {
        cycle(&format!("/other/{number}")).await;
    }
    done(&*store, create("/drawn/last", "")).await;
    until(&mut watch, "/drawn/last").await;
}
