//! The number of requests, in cases where an implementation could easily send more than needed.

use std::time::Duration;

use synod_core::store::{
    Backend as _, Expect, Lifetime, Query, SessionOptions, Store, Txn, Version,
};
use synod_zk::ZkBackend;
use tokio::time::{sleep, timeout};

use crate::effects::ticket;
use crate::protocol::op;
use crate::scene::{
    LONG, committed, count, create, delete, done, open, owned, path, peer, reconnects, recovers,
};
use crate::script::{Deed, Rule};

/// Creates a ticket with a follow-up read, and deletes it. Returns the number of listings.
async fn lists_of_a_ticket(listings: &impl Fn() -> usize, store: &dyn Store, dir: &str) -> usize {
    let before = listings();
    let created = committed(store, ticket(dir)).await;
    assert_eq!(created.look.expect("it was requests for").nodes.len(), 1);
    done(store, Txn::new().delete(&created.results[0].path, Expect::Any)).await;
    listings() - before
}

/// A session that is the only contender needs no listing in a directory after a few tickets; on a
/// new connection it needs one again, because another client may have created a ticket in between.
pub(crate) async fn a_sole_contender_lists_nothing() {
    let peer = peer(1);
    // Between two tickets the directory is empty.
    peer.change(|world| world.collects = false);
    let store = open(&peer, LONG).await;
    done(&*store, create("/sole/old", "")).await;
    done(&*store, Txn::new().delete(path("/sole/old"), Expect::Any)).await;
    let listed = count(&peer, &*store, &[op::GET_CHILDREN, op::GET_CHILDREN_2]);
    for connection in 0..3 {
        assert_eq!(
            lists_of_a_ticket(&listed, &*store, "/sole").await,
            1,
            "the first on connection {connection}"
        );
        let mut listings = 0;
        for _ in 0..100 {
            listings += lists_of_a_ticket(&listed, &*store, "/sole").await;
        }
        assert!(listings < 30, "{listings} of 100 on connection {connection}");
        reconnects(&peer).await;
        recovers(&*store).await;
    }
}

/// The listing cache only omits listings: without it, each ticket is listed, with the same view.
pub(crate) async fn every_ticket_is_listed_without_the_listing_cache() {
    let peer = peer(1);
    peer.change(|world| world.collects = false);
    let backend = ZkBackend::new(peer.options().listing_cache(false)).expect("valid");
    let store = backend.open(&SessionOptions::new(LONG)).await.expect("the peer runs");
    done(&*store, create("/sole/old", "")).await;
    done(&*store, Txn::new().delete(path("/sole/old"), Expect::Any)).await;
    let listed = count(&peer, &*store, &[op::GET_CHILDREN, op::GET_CHILDREN_2]);
    for ticket in 0..10 {
        assert_eq!(lists_of_a_ticket(&listed, &*store, "/sole").await, 1, "{ticket}");
    }
}

/// Waiting for one event of an ephemeral node needs no persistent watch.
pub(crate) async fn one_event_needs_no_lasting_watch() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    let requests = count(&peer, &*store, &[op::ADD_WATCH]);
    done(&*store, Txn::new().create(path("/one/a"), "", Lifetime::Session)).await;
    for query in [Query::until_gone(path("/one/a")), Query::node(path("/one/a")).once()] {
        let (view, _watch) = store.watch(query).await.expect("the peer answers");
        assert!(view.node().is_some());
    }
    assert_eq!(requests(), 0);
}

/// A create needs a second write and a guard only if a container was at the path.
pub(crate) async fn a_create_is_one_plain_request() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/plain/first", "")).await;
    let requests = count(&peer, &*store, &[op::MULTI]);
    done(&*store, create("/plain/a", "")).await;
    done(&*store, owned("/plain/b")).await;
    assert_eq!(requests(), 0);
}

/// The missing directories are all found by one request, and the absence of the highest proves that
/// of all below it.
pub(crate) async fn absence_deep_below_nothing_takes_two_requests() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/deep/a", "")).await;
    let writes = count(&peer, &*store, &[op::MULTI]);
    let absent = |at: &str| Txn::new().check(path(at), Expect::Absent);
    done(&*store, absent("/deep/1/2/3/4/5/6/7")).await;
    assert_eq!(writes(), 2);
    // Directories that the transaction itself creates do not count as missing.
    let beside = create("/deep/1/2/b", "").check(path("/deep/1/2/3/4/5/6/7"), Expect::Absent);
    done(&*store, beside).await;
    assert_eq!(writes(), 4);
}

/// The path of a check that a container would pass is read before, unless it is a ticket of the
/// session.
pub(crate) async fn a_check_reads_only_where_a_container_would_pass() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/check/a", "")).await;
    done(&*store, Txn::new().set(path("/check/a"), "", Expect::Any)).await;
    let created = committed(&*store, ticket("/check")).await;
    let own = created.results[0].path.as_str();
    let _newer = store.commit(ticket("/check")).await.expect("it answers");
    let reads = count(&peer, &*store, &[op::GET_DATA]);
    let version = |number| Expect::Version(Version::new(number));
    for (at, expect, count) in [
        (own, version(0), 0),
        (own, Expect::Any, 0),
        ("/check/a", version(1), 0),
        ("/check/a", Expect::Any, 1),
    ] {
        let before = reads();
        let guarded = Txn::new().check(path(at), expect);
        done(&*store, guarded.set(path("/check/a"), "", Expect::Any)).await;
        assert_eq!(reads() - before, count, "{at} {expect:?}");
        done(&*store, delete("/check/a")).await;
        done(&*store, create("/check/a", "")).await;
        done(&*store, Txn::new().set(path("/check/a"), "", Expect::Any)).await;
    }
}

/// The revision of a transaction is requested only if no answer of a write contains it.
pub(crate) async fn a_revision_is_asked_for_only_where_nothing_has_it() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/stat/a", "")).await;
    let requests = count(&peer, &*store, &[op::EXISTS]);
    let with_a_set = owned("/stat/2").set(path("/stat/a"), "", Expect::Any);
    let with_a_delete = owned("/stat/3").delete(path("/stat/a"), Expect::Any);
    // The last transaction also reads the missing directories.
    let below = owned("/fresh/dir/a");
    for (txn, count) in [(owned("/stat/1"), 0), (with_a_set, 0), (with_a_delete, 1), (below, 2)] {
        let before = requests();
        let commit = committed(&*store, txn).await;
        assert!(commit.revision.is_some());
        assert_eq!(requests() - before, count, "{commit:?}");
    }
}

/// The watches for one event are set again with few messages, each of which fits into a
/// request.
pub(crate) async fn watches_for_one_event_are_set_again_at_once() {
    // A server takes no message with more than a million bytes, and the client sends far less.
    for (levels, messages) in [(1, 1), (8, 2)] {
        are_set_again(&format!("/{}", "w".repeat(250)).repeat(levels), messages).await;
    }
}

async fn are_set_again(dir: &str, messages: usize) {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    let mut watches = Vec::new();
    for number in 0..40 {
        let at = path(&format!("{dir}/{number}"));
        done(&*store, Txn::new().create(&at, "", Lifetime::Session)).await;
        watches.push(store.watch(Query::until_gone(&at)).await.expect("the peer answers"));
        watches.push(store.watch(Query::node(at).once()).await.expect("the peer answers"));
    }
    let requests = count(&peer, &*store, &[op::SET_WATCHES]);
    reconnects(&peer).await;
    recovers(&*store).await;
    assert_eq!(requests(), messages);
}

/// Only a read of the latest state needs a `sync`; a transaction does not.
pub(crate) async fn a_transaction_needs_no_sync() {
    const TIMES: usize = 50;

    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/sync/a", "")).await;
    let requests = count(&peer, &*store, &[op::SYNC]);
    for _ in 0..TIMES {
        // Another ticket is in the directory, so it is listed.
        assert!(committed(&*store, ticket("/sync")).await.look.is_some());
        let several = Txn::new().set(path("/sync/a"), "", Expect::Any);
        done(&*store, several.create_sequential(path("/sync/b-"), "", Lifetime::Session)).await;
    }
    let synced = requests();
    // Heartbeats, on a slow machine.
    assert!(synced < TIMES / 2, "{synced} of {TIMES}");
}

/// A server whose connections end before it has answered anything gets fewer requests over time.
pub(crate) async fn a_server_that_ends_each_connection_is_not_asked_all_the_time() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    let session = store.session().id.get();
    done(&*store, create("/ends/a", "")).await;
    // It accepts the session, and no request.
    peer.when(Rule::new(Deed::Mute).of(session).times(usize::MAX));
    let mut connections = 0;
    let tries = async {
        loop {
            peer.change(|world| world.servers[0].close_all());
            peer.until(|world| world.servers[0].conns.values().any(|conn| conn.session != 0)).await;
            connections += 1;
            sleep(Duration::from_millis(20)).await;
        }
    };
    let _over = timeout(Duration::from_secs(2), tries).await.is_err();
    assert!((1..40).contains(&connections), "{connections} connections");
    peer.change(|world| {
        world.script.calm();
        world.servers[0].close_all();
    });
    recovers(&*store).await;
}
