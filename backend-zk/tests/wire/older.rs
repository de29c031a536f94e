//! A read is no older than the events before it: L-KV-3.

use std::time::Duration;

use synod_core::store::{Event, Query};
use tokio::time::{sleep, timeout};

use crate::protocol::{code, op};
use crate::scene::{
    LONG, count, create, done, make, next, open, open_at, path, peer, reconnects, remove, set,
};
use crate::script::{Deed, Rule};

/// An event is newer than all answers: the next connection must not show an earlier state.
pub(crate) async fn what_is_read_is_no_older_than_an_event() {
    let peer = peer(3);
    let store = open_at(&peer, &[1, 2], LONG).await;
    done(&*store, create("/event/a", "old")).await;
    let query = || Query::node(path("/event/a"));
    let _seen = store.read(query().local()).await.expect("the peer answers");
    // On either server: the other one lags from now on.
    let (_view, mut watch) = store.watch(query()).await.expect("the peer answers");
    let own = peer.world().sessions[&store.session().id.get().cast_signed()].server;
    let other = 3 - own;
    let written = peer.change(|world| {
        world.servers[other].lags = true;
        world.write(&[set("/event/a", "new")])
    });
    written.expect("nothing is against it");
    let Event::Changed(_) = next(&mut watch).await else { panic!("it was written") };
    // The first heartbeats on the next connection must not make the server catch up before the
    // read, so they are refused.
    let refused = Rule::new(Deed::Refuse(code::THROTTLED)).op(op::SYNC);
    peer.when(refused.of(store.session().id.get()).times(2));
    peer.stop(own);

    // The read is answered by the other server if it still lags, or only when that server has
    // caught up.
    let read = async {
        loop {
            match store.read(query().local()).await {
                Ok(view) => return view.node().expect("it is there").data.clone(),
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    };
    if let Ok(data) = timeout(Duration::from_secs(2), read).await {
        assert_eq!(data, "new", "older than the event");
    }
}

/// Another client wrote the node, so nothing else has reported that revision.
pub(crate) async fn a_view_is_no_older_than_what_it_shows() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/seen/there", "")).await;
    for (number, local) in [false, true].into_iter().enumerate() {
        let at = format!("/seen/{number}");
        let _at = peer.change(|world| world.write(&[make(&at)])).expect("it has a parent");
        let query = Query::node(path(&at));
        let query = if local { query.local() } else { query };

        let view = store.read(query).await.expect("the peer answers");

        let stat = view.node().and_then(|node| node.stat).expect("it is there");
        assert!(view.revision >= stat.modified, "{view:?}");
    }
}

/// Everything that a session has written or read is in all its later reads, even in empty ones.
pub(crate) async fn a_view_is_no_older_than_what_the_session_has_seen() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/newest/dir/a", "")).await;
    let commit = store.commit(create("/newest/b", "")).await.expect("the peer answers");
    let newest = commit.required().expect("nothing is against it").revision.expect("it has one");
    let dir = || path("/newest/dir");
    let (gone, nothing) = (path("/newest/dir/gone"), path("/newest/nothing"));
    for query in [
        Query::node(&gone),
        Query::nodes(gone.clone(), [nothing.clone()]),
        Query::children(dir()),
        Query::children(dir()).names_only(),
        Query::children(nothing),
        Query::subtree(dir()),
    ] {
        let view = store.read(query.clone()).await.expect("the peer answers");
        assert!(view.revision >= newest, "{query:?}: {view:?}");
    }
    for query in [Query::until_gone(&gone), Query::node(&gone).once(), Query::node(&gone)] {
        let (view, _watch) = store.watch(query.clone()).await.expect("the peer answers");
        assert!(view.revision >= newest, "{query:?}: {view:?}");
    }
}

/// Only the first local read on a new connection follows a `sync`.
pub(crate) async fn a_local_read_follows_no_sync_but_on_a_new_connection() {
    const READS: usize = 9;

    let peer = peer(1);
    let store = open(&peer, LONG).await;
    done(&*store, create("/sync/a", "")).await;
    let local = || store.read(Query::node(path("/sync/a")).local());
    let synced = count(&peer, &*store, &[op::SYNC]);
    for _ in 0..3 {
        while local().await.is_err() {
            sleep(Duration::from_millis(5)).await;
        }
        let before = synced();
        for _ in 0..READS {
            local().await.expect("the peer answers");
        }
        let followed = synced() - before;
        // One may be a heartbeat.
        assert!(followed <= 1, "{followed} of {READS}");
        reconnects(&peer).await;
    }
}

/// The server lags: it catches up only at a `sync`.
pub(crate) async fn a_latest_observation_of_one_event_is_of_now() {
    let peer = peer(3);
    let store = open_at(&peer, &[1], LONG).await;
    for query in [Query::until_gone(path("/now/a")), Query::node(path("/now/a")).once()] {
        done(&*store, create("/now/a", "")).await;
        let written = peer.change(|world| {
            world.servers[1].lags = true;
            world.write(&[remove("/now/a")])
        });
        written.expect("it is there");
        let (view, _watch) = store.watch(query).await.expect("the peer answers");
        assert!(view.node().is_none(), "{view:?}");
        peer.change(|world| world.servers[1].lags = false);
    }
}
