//! Containers, and how empty ones are replaced and collected.

use std::time::Duration;

use synod_conformance::harness::Link;
use synod_core::path::Path;
use synod_core::store::{Event, Expect, Kind, Lifetime, Query, RejectReason, Txn};
use synod_servers::zookeeper::Ensemble;
use tokio::time::{Instant, sleep, timeout};

use super::{
    PATIENCE, create, done, hears, linked_with, names, path, patient, refused, server, session,
    session_with, there,
};

pub(super) async fn empty_containers_do_not_keep_a_node_from_being_deleted() {
    let store = session().await;
    for round in 0..5 {
        let top = format!("/hollow{round}");
        done(&*store, create(&top, "")).await;
        done(&*store, create(&format!("{top}/a/b/c"), "")).await;
        let delete = |at: &str| Txn::new().delete(path(at), Expect::Any);
        assert_eq!(refused(&*store, delete(&top)).await, RejectReason::HasChildren);
        done(&*store, delete(&format!("{top}/a/b/c"))).await;

        done(&*store, delete(&top)).await;

        assert!(!there(&*store, &top).await);
    }
}

/// A description, and the transaction below a directory.
type Row = (&'static str, fn(&str) -> Txn);

/// A container that was removed for one operation may be needed by another, or be in its way, too.
pub(super) async fn an_empty_container_gives_way_to_all_of_a_transaction() {
    let patient = patient();
    let store = session_with(&patient).await;
    let absent = |at: &str| Txn::new().check(path(at), Expect::Absent);
    let table: [Row; 5] = [
        ("made in", |top| {
            let txn = Txn::new().check(path(&format!("{top}/a")), Expect::Absent);
            txn.create(path(&format!("{top}/a/new")), "", Lifetime::Session)
        }),
        ("made in, deeper", |top| {
            let txn = Txn::new().check(path(&format!("{top}/a")), Expect::Absent);
            txn.create(path(&format!("{top}/a/b/new")), "", Lifetime::Session)
        }),
        ("in the way twice", |top| {
            let txn = Txn::new().check(path(&format!("{top}/a/b")), Expect::Absent);
            txn.check(path(&format!("{top}/a")), Expect::Absent)
        }),
        ("below what is deleted, and made in", |top| {
            let txn = Txn::new().delete(path(top), Expect::Any);
            txn.create(path(&format!("{top}/a/b/new")), "", Lifetime::Session)
        }),
        ("asked for, then in the way, then made in", |top| {
            let txn = Txn::new().create(path(&format!("{top}/a/b")), "", Lifetime::Container);
            let txn = txn.check(path(&format!("{top}/a")), Expect::Absent);
            txn.create(path(&format!("{top}/a/b/new")), "", Lifetime::Session)
        }),
    ];
    for (row, (what, txn)) in table.into_iter().enumerate() {
        for empty in [true, false] {
            let top = format!("/gives-way/{row}-{empty}");
            done(&*store, create(&top, "")).await;
            if empty {
                done(&*store, create(&format!("{top}/a/b/x"), "")).await;
                let delete = Txn::new().delete(path(&format!("{top}/a/b/x")), Expect::Any);
                done(&*store, delete).await;
            }
            let txn = txn(&top);
            let made = txn.ops.last().expect("there is one").clone();
            let outcome = store.commit(txn).await;
            let outcome = outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(outcome.is_committed(), "{what}");
            if made.is_write() {
                assert!(there(&*store, made.path().as_str()).await, "{what}");
            } else {
                done(&*store, absent(&format!("{top}/a"))).await;
            }
        }
    }
}

/// A create that finds an empty container in its way removes it; it must not remove a node that
/// another client has put there meanwhile.
pub(super) async fn of_many_creates_over_an_empty_container_one_wins() {
    let stores = [session().await, session().await, session().await];
    for round in 0..20 {
        let place = format!("/replace/{round}");
        let lifetime = if round % 2 == 0 { Lifetime::Session } else { Lifetime::Persistent };
        done(&*stores[0], create(&format!("{place}/x"), "")).await;
        done(&*stores[0], Txn::new().delete(path(&format!("{place}/x")), Expect::Any)).await;

        let creates = stores.iter().map(|store| {
            let txn = Txn::new().create(path(&place), store.session().id.to_string(), lifetime);
            store.commit(txn)
        });
        let outcomes = futures_util::future::join_all(creates).await;

        let won: Vec<_> = outcomes
            .into_iter()
            .filter_map(|outcome| outcome.expect("the server answers").ok())
            .collect();
        assert_eq!(won.len(), 1, "round {round}");
        let view = stores[0].read(Query::node(path(&place))).await.expect("answers");
        assert_eq!(view.node().expect("it was made").stat, won[0].results[0].stat);
    }
}

/// One create finds an empty container, and is slow to replace it; meanwhile another finds the path
/// free.
pub(super) async fn a_late_removal_of_a_container_removes_no_node() {
    let slow = Link::Slow { there: Duration::from_millis(60), back: Duration::from_millis(60) };
    let patient = patient();
    let rounds = (0..10).map(async |round| {
        let place = path(&format!("/late{round}/place"));
        let ((links, late), quick) = (linked_with(&patient).await, session_with(&patient).await);
        done(&*quick, create(&format!("{place}/x"), "")).await;
        done(&*quick, Txn::new().delete(path(&format!("{place}/x")), Expect::Any)).await;
        links.set(late.session().id, slow);

        let replacing = late.commit(create(place.as_str(), "late"));
        let overtaking = async {
            // The last round waits until `late` has certainly ended.
            sleep(Duration::from_millis(if round == 9 { 4_000 } else { 40 * round })).await;
            // A container has this version, and the node that replaces it has another.
            let first = Expect::Version(synod_core::store::Version::new(0));
            let gone = quick.commit(Txn::new().delete(&place, first)).await;
            let _either_way = gone.expect("the server answers");
            quick.commit(create(place.as_str(), "quick")).await
        };
        let (late, overtaken) = futures_util::future::join(replacing, overtaking).await;

        let made = |outcome: Result<synod_core::store::Outcome, _>| {
            outcome
                .unwrap_or_else(|error: synod_core::error::Error| panic!("{error}"))
                .ok()
                .is_some()
        };
        let (late, overtaken) = (made(late), made(overtaken));
        assert!(late != overtaken, "round {round}: {late} and {overtaken}");
        let view = quick.read(Query::node(&place)).await.expect("answers");
        let winner = if late { "late" } else { "quick" };
        assert_eq!(view.node().expect("it was made").data, winner);
        late
    });
    let late = futures_util::future::join_all(rounds).await;
    // Otherwise the rounds do not test both orders.
    assert!(late.contains(&true) && late.contains(&false), "{late:?}");
}

/// The property of the server that prevents this.
pub(super) async fn the_name_of_a_sequential_child_counts_every_creation() {
    let address = server().addresses()[0].to_string();
    let client = zookeeper_client::Client::connect(&address).await.expect("a server runs");
    let open = zookeeper_client::Acls::anyone_all();
    let plain = zookeeper_client::CreateMode::Persistent.with_acls(open);
    let sequential = zookeeper_client::CreateMode::PersistentSequential.with_acls(open);
    for node in ["/children_created", "/children_created/a", "/children_created/b"] {
        client.create(node, b"", &plain).await.expect("it is new");
    }
    let children_created = async || {
        let (_data, stat) = client.get_data("/children_created").await.expect("it is there");
        i32::midpoint(stat.cversion, stat.num_children)
    };
    let still = async |children_created: i32| {
        let mut writer = client.new_multi_writer();
        writer.add_create("/children_created/p", b"", &sequential).expect("valid");
        writer
            .add_delete(&format!("/children_created/p{children_created:010}"), None)
            .expect("valid");
        writer.commit().await.is_ok()
    };

    assert_eq!(children_created().await, 2);
    client.delete("/children_created/a", None).await.expect("it is there");
    assert_eq!(children_created().await, 2);
    assert!(still(2).await, "a death is no birth");
    assert!(!still(2).await, "the question was one");
    assert_eq!(children_created().await, 3);
    client.create("/children_created/a", b"", &plain).await.expect("it is gone");
    assert!(!still(3).await, "what is made again is born");
    assert!(still(4).await);
}

pub(super) async fn containers_are_created_and_removed_without_events() {
    let store = session().await;
    let (_view, mut watch) = store.watch(Query::subtree(path("/untold"))).await.expect("answers");

    done(&*store, create("/untold/a/b/c", "")).await;
    done(&*store, Txn::new().delete(path("/untold/a/b/c"), Expect::Any)).await;
    // Until the server has collected them all.
    let end = Instant::now() + PATIENCE;
    while !names(&*store, "/untold").await.is_empty() {
        assert!(Instant::now() < end, "empty containers are not collected");
        sleep(Duration::from_millis(50)).await;
    }
    done(&*store, create("/untold", "last")).await;

    let mut reported = Vec::new();
    loop {
        match timeout(PATIENCE, watch.next()).await.expect("in time") {
            Some(Event::Changed(change)) => reported.push((change.path.to_string(), change.kind)),
            // A node that was gone before it could be read may have been a node or a container.
            Some(Event::Resync) => {}
            other => panic!("{other:?}"),
        }
        if reported.last().is_some_and(|(path, _)| path == "/untold") {
            break;
        }
    }
    let (last, rest) = reported.split_last().expect("at least that");
    assert_eq!(*last, ("/untold".to_owned(), Kind::Created));
    assert!(rest.iter().all(|(path, _)| path == "/untold/a/b/c"), "{reported:?}");
}

/// A node that replaces a container is written twice when it is created, and gets a child that
/// guards it.
pub(super) async fn a_node_that_replaces_a_container_is_reported_as_created_once() {
    let patient = patient();
    let store = session_with(&patient).await;
    done(&*store, create("/born/x", "")).await;
    let node = Query::node(path("/born"));
    let (_view, mut watch) = store.watch(node).await.expect("answers");
    done(&*store, Txn::new().delete(path("/born/x"), Expect::Any)).await;

    done(&*store, create("/born", "once")).await;
    hears(&mut watch, "/born", Kind::Created).await;
    done(&*store, Txn::new().delete(path("/born"), Expect::Any)).await;

    match timeout(PATIENCE, watch.next()).await.expect("in time") {
        Some(Event::Changed(change)) => assert_eq!(change.kind, Kind::Deleted),
        other => panic!("{other:?}"),
    }
}

/// The backend proves to the server that a node is absent by creating and deleting it in one
/// transaction.
pub(super) async fn a_check_for_absence_causes_no_event() {
    let store = session().await;
    let (_view, mut watch) = store.watch(Query::subtree(path("/unborn"))).await.expect("answers");
    let absent = |at: &str| Txn::new().check(path(at), Expect::Absent);
    for (unborn, born) in [("/unborn/a/b", "/unborn/a"), ("/unborn/c", "/unborn/c")] {
        let txn = absent(unborn).create(path(born), "", Lifetime::Persistent);
        done(&*store, txn).await;
        let change = loop {
            match timeout(PATIENCE, watch.next()).await.expect("in time").expect("it goes on") {
                Event::Changed(change) => break change,
                Event::Resync => {}
                Event::Ended(end) => panic!("{end:?}"),
            }
        };
        assert_eq!((change.path.as_str(), change.kind), (born, Kind::Created));
    }
    // Any other event would arrive before this one.
    done(&*store, Txn::new().set(path("/unborn/c"), "x", Expect::Any)).await;
    let next = timeout(PATIENCE, watch.next()).await.expect("in time").expect("it goes on");
    assert!(matches!(&next, Event::Changed(change) if change.kind == Kind::Updated), "{next:?}");
}

pub(super) async fn a_node_without_data_that_others_made_is_a_node() {
    let server = server().addresses()[0].to_string();
    let foreign = zookeeper_client::Client::connect(&server).await.expect("a server runs");
    let open = zookeeper_client::Acls::anyone_all();
    let container = zookeeper_client::CreateMode::Container.with_acls(open);
    foreign.create("/foreign", b"", &container).await.expect("it is new");

    let store = session().await;

    assert!(there(&*store, "/foreign").await);
    assert_eq!(refused(&*store, create("/foreign", "")).await, RejectReason::Exists);
    done(&*store, Txn::new().set(path("/foreign"), "x", Expect::Any)).await;
}

/// The server collects containers from a list that may be old, and checks only whether there are
/// children.
pub(super) async fn what_replaces_a_container_is_not_collected_for_it() {
    const MANY: usize = 40;
    // The server collects one container in 100 ms.
    let arguments =
        ["-Dznode.container.checkIntervalMs=1000", "-Dznode.container.maxPerMinute=600"];
    let server = Ensemble::start_with(1, &arguments, &[]).expect("the other one started, too");
    let (store, other) = (session_with(&server).await, session_with(&server).await);
    let address = server.addresses()[0].to_string();
    let raw = zookeeper_client::Client::connect(&address).await.expect("a server runs");
    let places: Vec<Path> = (0..MANY).map(|at| path(&format!("/stale/{at}"))).collect();
    done(&*store, create("/stale", "")).await;
    let mut empty = Txn::new();
    for place in &places {
        let inside = path(&format!("{place}/x"));
        done(&*store, create(inside.as_str(), "")).await;
        empty = empty.delete(inside, Expect::Any);
    }
    done(&*store, empty).await;
    let end = Instant::now() + PATIENCE;
    let left = async || raw.list_children("/stale").await.expect("it is there").len();
    while left().await == MANY {
        assert!(Instant::now() < end, "nothing is collected");
        sleep(Duration::from_millis(5)).await;
    }

    // The server has made its list, and it contains all of these places.
    for (number, place) in places.iter().enumerate() {
        if number % 2 == 0 {
            // The container is removed before.
            done(&*store, Txn::new().check(place, Expect::Absent)).await;
        }
        done(&*store, create(place.as_str(), "kept")).await;
    }

    // A container that is added to the next list is collected when this list is finished.
    done(&*store, create("/next/x", "")).await;
    done(&*store, Txn::new().delete(path("/next/x"), Expect::Any)).await;
    let end = Instant::now() + PATIENCE * 3;
    while raw.check_stat("/next").await.expect("answers").is_some() {
        assert!(Instant::now() < end, "it does not go on");
        sleep(Duration::from_millis(50)).await;
    }
    let tree = other.read(Query::subtree(path("/stale"))).await.expect("answers");
    assert_eq!(tree.nodes.len(), 1 + MANY);
    for place in &places {
        assert!(names(&*other, place.as_str()).await.is_empty());
        done(&*other, Txn::new().delete(place, Expect::Any)).await;
    }
    assert!(names(&*other, "/stale").await.is_empty());
    done(&*other, Txn::new().delete(path("/stale"), Expect::Any)).await;
}
