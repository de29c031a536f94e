//! Messages that no client requested, or that are malformed.

use std::time::Duration;

use synod_core::error::{Effect, ErrorKind};
use synod_core::store::{Expect, Query, Txn};
use tokio::time::timeout;

use crate::peer::Peer;
use crate::protocol::{event, op};
use crate::scene::{LONG, PATIENCE, count, create, done, open, path, peer};
use crate::script::{Deed, Rule};
use crate::watches::Line;
use crate::watches::kind;

/// The connections to the only server.
fn lines(peer: &Peer) -> Vec<Line> {
    peer.world().servers[0].conns.keys().copied().collect()
}

/// Sends an event to each client.
fn tell(peer: &Peer, kind: i32, path: &str) {
    peer.change(|world| {
        for conn in world.servers[0].conns.values_mut() {
            conn.tell(event(kind, path, -1));
        }
    });
}

/// A later version of the servers may have more kinds of events.
pub(crate) async fn an_event_of_an_unknown_kind_ends_no_connection() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    let before = lines(&peer);
    for kind in [-1, 0, 5, 7, i32::MAX] {
        tell(&peer, kind, "/odd");
    }
    done(&*store, create("/odd", "")).await;
    assert_eq!(lines(&peer), before);
}

/// The events of a watch that was dropped are still in flight: they must not cause requests.
pub(crate) async fn events_without_a_watcher_cause_no_requests() {
    const MANY: usize = 20_000;

    let peer = peer(1);
    let store = open(&peer, LONG).await;
    let removals = count(&peer, &*store, &[op::REMOVE_WATCHES]);
    for number in 0..MANY {
        tell(&peer, kind::CREATED, &format!("/dropped/{number}"));
    }
    done(&*store, create("/after", "")).await;
    assert_eq!(removals(), 0);
    assert!(!store.status().borrow().is_lost());
}

/// A part of an endless answer does not show that the server is alive.
pub(crate) async fn an_answer_that_dribbles_ends_its_connection() {
    const TTL: Duration = Duration::from_secs(6);

    let peer = peer(1);
    let store = open(&peer, TTL).await;
    done(&*store, create("/slow", "some data that makes the answer long enough")).await;
    let session = store.session().id.get();
    let dribbles = Rule::new(Deed::Dribble(Duration::from_millis(200))).op(op::GET_DATA);
    peer.when(dribbles.of(session));

    let read = timeout(PATIENCE, store.read(Query::node(path("/slow")))).await;

    assert!(read.expect("in time").expect("the next connection answers").node().is_some());
    assert_eq!(peer.world().script.played(session), 1);
}

/// An answer to another request ends the connection without an answer to any request: a read is
/// repeated, and a write has an unknown effect.
pub(crate) async fn what_ends_a_connection_is_no_answer_to_a_request() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/odd", "x")).await;
    let session = store.session().id.get();
    for number in [op::GET_DATA, op::SET_DATA] {
        peer.when(Rule::new(Deed::Misnumber).op(number).of(session));
    }

    let read = store.read(Query::node(path("/odd"))).await;
    let set = store.commit(Txn::new().set(path("/odd"), "y", Expect::Any)).await;

    assert!(read.expect("the next connection answers").node().is_some());
    let error = set.expect_err("its answer has another number");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown));
    assert_eq!(peer.world().script.played(session), 2);
}
