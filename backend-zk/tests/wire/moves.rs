//! The server that a session moves to, and what its client takes along: L-SES-2, L-WAT-6.

use std::time::Duration;

use futures_util::future::join_all;
use synod_core::store::{Backend as _, Query, SessionOptions, Status};
use synod_zk::{Access, ZkBackend};
use tokio::time::timeout;

use crate::peer::Peer;
use crate::protocol::{code, op};
use crate::scene::{
    LONG, PATIENCE, create, delete, done, next, open, owned, path, peer, reconnects, recovers, set,
};
use crate::script::{Deed, Rule};

const TTL: Duration = Duration::from_secs(10);

/// With the tick of servers in use, a session is certain for less than four fifths of its
/// time to live.
const TICK: Duration = Duration::from_secs(2);

/// The server of the session loses its leader, and does not notice: it accepts connections, but
/// takes no session over. So do some of the others.
async fn falls_silent(servers: usize, silent: usize) {
    let peer = peer(servers);
    let backend = ZkBackend::new(peer.options().tick(TICK)).expect("valid");
    let store = backend.open(&SessionOptions::new(TTL)).await.expect("the peer runs");
    let id = store.session().id.get().cast_signed();
    let parted = peer.change(|world| {
        let first = world.sessions[&id].server;
        world.lead((first + servers - 1) % servers);
        let parted: Vec<usize> = (first..first + silent).map(|server| server % servers).collect();
        for server in &parted {
            world.part(*server);
        }
        parted
    });

    let is_over = |world: &mut crate::world::World| match world.sessions.get(&id) {
        Some(session) => !parted.contains(&session.server),
        None => true,
    };
    timeout(PATIENCE, peer.until(is_over)).await.expect("it moves, or it ends");
    assert!(peer.world().sessions.contains_key(&id), "it ended while healthy servers were there");
    recovers(&*store).await;
    assert!(!store.status().borrow().is_lost());
}

/// The server that was just left is probably still silent.
pub(crate) async fn a_server_that_fell_silent_is_the_last_to_be_tried() {
    join_all((0..8).map(|_| falls_silent(3, 1))).await;
}

/// A server that accepts the connection but stays silent leaves enough time for the servers that
/// were not tried.
pub(crate) async fn two_silent_servers_of_five_end_no_session() {
    join_all((0..24).map(|_| falls_silent(5, 2))).await;
}

/// A server that knows no earlier session gives another one: the nodes of the first one may be
/// gone.
pub(crate) async fn a_session_that_is_replaced_by_another_is_over() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    peer.change(|world| world.servers[0].replaces_sessions = true);
    reconnects(&peer).await;

    let mut status = store.status();
    let lost = timeout(PATIENCE, status.wait_for(Status::is_lost)).await;
    lost.expect("in time").expect("it is reported");
    assert!(store.read(Query::node(path("/a"))).await.is_err());
}

/// Servers under load may reject requests.
pub(crate) async fn watches_that_a_server_refuses_at_first_are_set_all_the_same() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, owned("/refused")).await;
    let waits = store.watch(Query::until_gone(path("/refused"))).await;
    let (_view, mut watch) = waits.expect("the peer answers");
    let session = store.session().id.get();
    peer.when(Rule::new(Deed::Refuse(code::THROTTLED)).op(op::SET_WATCHES).of(session));

    reconnects(&peer).await;
    let refused = peer.until(|world| world.script.played(session) > 0);
    timeout(PATIENCE, refused).await.expect("they are set again");
    recovers(&*store).await;
    done(&*store, delete("/refused")).await;

    next(&mut watch).await;
}

/// An identity belongs to a connection, not to a session.
pub(crate) async fn a_client_logs_in_on_each_connection() {
    let peer = peer(1);
    let options = peer.options().credentials("ann", "secret").access(Access::Creator);
    let backend = ZkBackend::new(options).expect("valid");
    let store = backend.open(&SessionOptions::new(LONG)).await.expect("the peer runs");
    done(&*store, create("/private/a", "x")).await;

    reconnects(&peer).await;

    let read = timeout(PATIENCE, store.read(Query::node(path("/private/a")))).await;
    assert!(read.expect("in time").expect("it is its own node").node().is_some());
}

/// The connection ends between two events of one transaction. The first one has the number of the
/// transaction, and the second one is still to come.
pub(crate) async fn the_rest_of_a_transaction_is_reported_on_the_next_connection() {
    let peer = peer(1);
    peer.change(|world| world.servers[0].numbers_events = true);
    let store = open(&peer, LONG).await;
    let mut watches = Vec::new();
    for at in ["/both/a", "/both/b"] {
        done(&*store, create(at, "")).await;
        let observed = store.watch(Query::node(path(at)).once()).await;
        watches.push(observed.expect("the peer answers").1);
    }

    cut_between_events(&peer);

    for watch in &mut watches {
        next(watch).await;
    }
}

fn cut_between_events(peer: &Peer) {
    peer.change(|world| {
        for conn in world.servers[0].conns.values_mut() {
            conn.held = Some(Vec::new());
        }
        let _at = world.write(&[set("/both/a", "x"), set("/both/b", "x")]).expect("they are there");
        for conn in world.servers[0].conns.values_mut() {
            let held = conn.held.take().unwrap_or_default();
            assert_eq!(held.len(), 2, "one for each node");
            conn.tell(held[0].clone());
        }
        world.servers[0].close_all();
    });
}
