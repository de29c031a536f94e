//! How much is asked of the servers, where it is easily more than needed.

use synod_core::store::{Expect, Lifetime, Query, Store, Txn};

use crate::effects::ticket;
use crate::peer::Peer;
use crate::protocol::op;
use crate::scene::{LONG, count, create, done, open, path, peer, reconnects, recovers};

/// Draws a ticket with a look, and deletes it. Returns how many listings that took.
async fn draws(peer: &Peer, store: &dyn Store, dir: &str) -> usize {
    let listings = || peer.world().script.played(store.session().id.get());
    let before = listings();
    let drawn = store.commit(ticket(dir)).await.expect("it answers").required().expect("so");
    assert_eq!(drawn.look.expect("it was asked for").nodes.len(), 1);
    done(store, Txn::new().delete(&drawn.done[0].path, Expect::Any)).await;
    listings() - before
}

/// A session that alone draws tickets in a directory needs no listing after a few; on a new connection it needs one again, as
/// another client may have been there meanwhile.
pub(crate) async fn a_sole_contender_lists_nothing() {
    let peer = peer(1);
    // Between two tickets the directory is empty.
    peer.change(|world| world.collects = false);
    let store = open(&peer, LONG).await;
    done(&*store, create("/sole/old", "")).await;
    done(&*store, Txn::new().delete(path("/sole/old"), Expect::Any)).await;
    count(&peer, &*store, &[op::GET_CHILDREN, op::GET_CHILDREN_2]);
    for connection in 0..3 {
        assert_eq!(draws(&peer, &*store, "/sole").await, 1, "the first on connection {connection}");
        let mut listings = 0;
        for _ in 0..100 {
            listings += draws(&peer, &*store, "/sole").await;
        }
        assert!(listings < 30, "{listings} of 100 on connection {connection}");
        reconnects(&peer).await;
        recovers(&*store).await;
    }
}

/// One event of a node that a session owns needs no watch that lasts.
pub(crate) async fn one_event_needs_no_lasting_watch() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    count(&peer, &*store, &[op::ADD_WATCH]);
    done(&*store, Txn::new().create(path("/one/a"), "", Lifetime::Session)).await;
    for query in [Query::until_gone(path("/one/a")), Query::node(path("/one/a")).once()] {
        let (view, _watch) = store.observe(query).await.expect("the peer answers");
        assert!(view.node().is_some());
    }
    assert_eq!(peer.world().script.played(store.session().id.get()), 0);
}

/// Only where a container was does a create need a second write, and a guard.
pub(crate) async fn a_create_is_one_plain_request() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/plain/first", "")).await;
    count(&peer, &*store, &[op::MULTI]);
    done(&*store, create("/plain/a", "")).await;
    done(&*store, Txn::new().create(path("/plain/b"), "", Lifetime::Session)).await;
    assert_eq!(peer.world().script.played(store.session().id.get()), 0);
}
