//! A node takes the place of an empty container: no collector deletes it, and no other node is
//! removed for it.

use std::time::Duration;

use synod_core::store::{Expect, Lifetime, Query, RejectReason, Store, Txn};
use tokio::time::timeout;

use crate::peer::Peer;
use crate::protocol::{Request, op};
use crate::scene::{
    LONG, PATIENCE, committed, create, delete, done, ends, make, open, owned, passes, path, peer,
    remove,
};
use crate::script::{Deed, Rule};
use crate::tree::Write;

/// A time after which the lists of the collector are no longer used.
const LATER: Duration = Duration::from_secs(130);

/// Creates this path as empty containers.
async fn empty(store: &dyn Store, innermost: &str) {
    let inside = format!("{innermost}/gone");
    done(store, create(&inside, "")).await;
    done(store, delete(&inside)).await;
}

/// The containers that the servers would collect now.
fn collectable(peer: &Peer) -> Vec<String> {
    let world = peer.world();
    world.servers[world.leader].tree.collectable(world.time())
}

/// Collects the paths of an earlier list, as the servers do: they check only whether a path has
/// children.
fn collect(peer: &Peer, listed: &[String]) {
    peer.change(|world| {
        for path in listed {
            let node = world.servers[world.leader].tree.nodes.get(path);
            if node.is_some_and(|node| node.children.is_empty()) {
                world.commit(0, vec![Write::Delete { path: path.clone() }], false);
            }
        }
    });
}

/// The ways in which a node can be created there.
fn ways(at: &str) -> Vec<Vec<Txn>> {
    let absent = || Txn::new().check(path(at), Expect::Absent);
    let again = |txn: Txn| txn.create(path(at), "", Lifetime::Persistent);
    vec![
        vec![create(at, "")],
        vec![create(&format!("{at}-beside"), "").create(path(at), "", Lifetime::Persistent)],
        vec![Txn::new().create(path(at), "", Lifetime::Ttl(LONG * 100))],
        vec![again(absent())],
        vec![absent(), create(at, "")],
        vec![owned(at), delete(at), create(at, "")],
        vec![owned(at), delete(at), again(create(&format!("{at}-beside"), ""))],
    ]
}

pub(crate) async fn no_collector_deletes_what_took_the_place_of_a_container() {
    let peer = peer(1);
    peer.change(|world| world.collects = false);
    let store = open(&peer, LONG).await;
    done(&*store, create("/late/kept", "")).await;
    let count = ways("/late/any").len();
    for way in 0..count {
        let at = format!("/late/{way}");
        empty(&*store, &at).await;
        let listed = collectable(&peer);
        assert!(listed.contains(&at), "{listed:?}");
        for txn in ways(&at).swap_remove(way) {
            done(&*store, txn).await;
        }

        collect(&peer, &listed);

        let view = store.read(Query::node(path(&at))).await.expect("the peer answers");
        assert!(view.node().is_some(), "{:?}", ways(&at).swap_remove(way));
        let listing = store.read(Query::children(path(&at))).await.expect("the peer answers");
        assert!(listing.nodes.is_empty(), "{listing:?}");
        done(&*store, delete(&at)).await;
    }
}

/// The guard of such a node is removed when no list can still contain the node, and no other node
/// is removed.
pub(crate) async fn what_protects_from_collectors_goes_after_a_while() {
    let peer = Peer::start_with(1, Duration::from_secs(1)).expect("there are ports");
    peer.change(|world| world.collects = false);
    let store = open(&peer, LATER * 4).await;
    for at in ["/guard/a", "/guard/b"] {
        empty(&*store, at).await;
        done(&*store, create(at, "").create(path(&format!("{at}-too")), "", Lifetime::Session))
            .await;
    }
    // A container was at this path lately.
    done(&*store, delete("/guard/b")).await;
    let tree = |below: &str| {
        let world = peer.world();
        let nodes = world.servers[0].tree.nodes.keys();
        nodes.filter(|at| at.starts_with(below)).cloned().collect::<Vec<_>>()
    };
    assert_eq!(tree("/guard/a/").len(), 1);

    passes(LATER).await;
    let relieved = peer
        .until(|world| !world.servers[0].tree.nodes.keys().any(|at| at.starts_with("/guard/a/")));
    timeout(PATIENCE, relieved).await.expect("an answered heartbeat relieves it");

    done(&*store, create("/guard/b", "")).await;
    assert_eq!(tree("/guard"), ["/guard", "/guard/a", "/guard/a-too", "/guard/b", "/guard/b-too"]);
}

/// A sequential node may use the path as a prefix, and an ephemeral node needs no protection.
pub(crate) async fn the_place_of_a_container_is_of_use_at_once() {
    let peer = peer(1);
    peer.change(|world| world.collects = false);
    let store = open(&peer, LONG).await;
    for again in 0..2 {
        empty(&*store, "/place/t-").await;
        for lifetime in [Lifetime::Persistent, Lifetime::Session] {
            done(&*store, Txn::new().create_sequential(path("/place/t-"), "", lifetime)).await;
        }
        done(&*store, owned("/place/t-")).await;
        done(&*store, delete("/place/t-")).await;
        let tickets = store.read(Query::children(path("/place"))).await.expect("it answers");
        assert_eq!(tickets.nodes.len(), 2 * (again + 1), "{tickets:?}");
    }
}

/// A node that took the place of a container can be deleted immediately, also where containers are
/// below it.
pub(crate) async fn what_is_protected_can_be_deleted() {
    let peer = peer(1);
    peer.change(|world| world.collects = false);
    let store = open(&peer, LONG).await;
    done(&*store, create("/undo/kept", "")).await;
    for below in ["", "/b", "/b/c"] {
        empty(&*store, "/undo/a").await;
        done(&*store, create("/undo/a", "")).await;
        if !below.is_empty() {
            empty(&*store, &format!("/undo/a{below}")).await;
        }
        done(&*store, delete("/undo/a")).await;
        let view = store.read(Query::node(path("/undo/a"))).await.expect("the peer answers");
        assert!(view.node().is_none());
        assert!(!peer.world().servers[0].tree.nodes.contains_key("/undo/a"), "{below:?}");
    }
}

/// Another client replaces one of several containers, after they were found empty and before they
/// are removed.
pub(crate) async fn what_took_the_place_of_one_container_is_not_removed_with_the_others() {
    const ALL: [&str; 3] = ["/box", "/box/in", "/box/in/deep"];

    for (at, why) in [("/top/box", RejectReason::Exists), ("/top", RejectReason::HasChildren)] {
        for replaced in ALL {
            let peer = peer(1);
            peer.change(|world| world.collects = false);
            let store = open(&peer, LONG).await;
            done(&*store, create("/top", "")).await;
            empty(&*store, "/top/box/in/deep").await;
            let within = ALL.into_iter().filter(|it| it.starts_with(replaced)).rev();
            let mut meanwhile: Vec<Request> =
                within.map(|it| remove(&format!("/top{it}"))).collect();
            meanwhile.push(make(&format!("/top{replaced}")));
            let session = store.session().id.get();
            peer.when(Rule::new(Deed::Meanwhile(meanwhile)).op(op::MULTI).of(session));

            let txn = if why == RejectReason::Exists { create(at, "") } else { delete(at) };
            let no = ends(&*store, txn).await.rejected().map(|no| no.reason);

            assert_eq!(no, Some(why), "{replaced}");
            let there = peer.world().servers[0].tree.nodes.get(&format!("/top{replaced}")).cloned();
            assert_eq!(there.expect("it is there").data, b"made", "{replaced}");
            assert_eq!(peer.world().script.played(session), 1);
        }
    }
}

/// An ephemeral node has no children; without that node the path may have some.
pub(crate) async fn what_is_below_a_sessions_node_is_absent() {
    let absent = || {
        let check = Txn::new().check(path("/owned/a/b"), Expect::Absent);
        check.set(path("/owned/kept"), "x", Expect::Any)
    };
    let anew = vec![remove("/owned/a"), make("/owned/a"), make("/owned/a/b")];
    let gone = vec![remove("/owned/a")];
    for (meanwhile, why) in [(vec![], None), (gone, None), (anew, Some(RejectReason::Exists))] {
        let peer = peer(1);
        let store = open(&peer, LONG).await;
        done(&*store, create("/owned/kept", "")).await;
        done(&*store, owned("/owned/a")).await;
        for _ in 0..3 {
            done(&*store, Txn::new().set(path("/owned/a"), "", Expect::Any)).await;
        }
        let container = Txn::new().create(path("/owned/a/b"), "", Lifetime::Container);
        assert_eq!(
            ends(&*store, container).await.rejected().map(|no| no.reason),
            Some(RejectReason::BelowEphemeral)
        );

        let session = store.session().id.get();
        // The first request finds the nodes above it.
        peer.when(Rule::new(Deed::Proceed).op(op::MULTI).of(session));
        peer.when(Rule::new(Deed::Meanwhile(meanwhile)).op(op::MULTI).of(session));
        assert_eq!(ends(&*store, absent()).await.rejected().map(|no| no.reason), why);
        assert_eq!(peer.world().script.played(session), 1);
    }
}

/// The facts about one operation are discarded together with the facts about another one.
pub(crate) async fn what_is_below_a_sessions_node_is_proved_again_with_the_rest() {
    let peer = peer(1);
    peer.change(|world| world.collects = false);
    let store = open(&peer, LONG).await;
    done(&*store, owned("/owned/a")).await;
    done(&*store, create("/boxes/kept", "")).await;
    empty(&*store, "/boxes/box").await;
    let session = store.session().id.get();
    let anew = vec![remove("/owned/a"), make("/owned/a"), make("/owned/a/b")];
    for deed in [
        // The node of the session is found, and the container.
        Deed::Proceed,
        Deed::Proceed,
        Deed::Meanwhile(vec![make("/boxes/other")]),
        Deed::Proceed,
        Deed::Meanwhile(anew),
    ] {
        peer.when(Rule::new(deed).op(op::MULTI).of(session));
    }
    let both = Txn::new().check(path("/owned/a/b"), Expect::Absent);
    let both = both.create(path("/boxes/box"), "", Lifetime::Persistent);
    let no = ends(&*store, both).await.rejected().map(|no| (no.index, no.reason));
    assert_eq!(no, Some((0, RejectReason::Exists)));
    assert_eq!(peer.world().script.played(session), 2);
}

/// The transaction itself creates the node of the session.
pub(crate) async fn what_is_below_a_node_that_is_just_created_is_absent() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    for again in [false, true] {
        let anew = owned("/fresh/a").check(path("/fresh/a/b"), Expect::Absent);
        let anew = anew.check(path("/fresh/c"), Expect::Absent);
        let no = ends(&*store, anew).await.rejected().map(|no| no.reason);
        assert_eq!(no, again.then_some(RejectReason::Exists));
    }
}

/// A directory that was missing is created meanwhile: the nodes below it may still be absent.
pub(crate) async fn what_is_below_a_directory_that_is_created_meanwhile_is_looked_for() {
    let dirs = || vec![make("/meanwhile"), make("/meanwhile/a")];
    let node = || [dirs(), vec![make("/meanwhile/a/b")]].concat();
    for (meanwhile, why) in [(dirs(), None), (node(), Some(RejectReason::Exists))] {
        let peer = peer(1);
        let store = open(&peer, LONG).await;
        done(&*store, create("/other", "")).await;
        let session = store.session().id.get();
        peer.when(Rule::new(Deed::Proceed).op(op::MULTI).of(session));
        peer.when(Rule::new(Deed::Meanwhile(meanwhile)).op(op::MULTI).of(session));
        let absent = Txn::new().check(path("/meanwhile/a/b"), Expect::Absent);
        let absent = absent.set(path("/other"), "", Expect::Any);
        assert_eq!(ends(&*store, absent).await.rejected().map(|no| no.reason), why);
        assert_eq!(peer.world().script.played(session), 1);
    }
}

/// A ticket that the session has deleted is no longer a node, whatever comes in its place.
pub(crate) async fn a_container_in_the_place_of_a_ticket_is_no_node() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    let draw = Txn::new().create_sequential(path("/ticket/t-"), "", Lifetime::Session);
    let created = committed(&*store, draw).await;
    let ticket = &created.results[0].path;
    let check = || Txn::new().check(ticket, Expect::Any).check(ticket, Expect::Any);
    done(&*store, check()).await;
    done(&*store, Txn::new().delete(ticket, Expect::Any)).await;
    done(&*store, create(&format!("{ticket}/below"), "")).await;

    assert_eq!(
        ends(&*store, check()).await.rejected().map(|no| no.reason),
        Some(RejectReason::Missing)
    );
}
