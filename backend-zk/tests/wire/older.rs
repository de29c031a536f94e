//! A read is no older than the events before it: L-KV-3.

use std::time::Duration;

use synod_core::store::{Event, Query};
use tokio::time::{sleep, timeout};

use crate::scene::{LONG, create, done, make, next, open, open_at, path, peer, set};

/// An event is newer than all answers: the next connection must not show an earlier state.
pub(crate) async fn what_is_read_is_no_older_than_an_event() {
    let peer = peer(3);
    let store = open_at(&peer, &[1, 2], LONG).await;
    done(&*store, create("/event/a", "old")).await;
    let query = || Query::node(path("/event/a"));
    // On either server: the other one lags from now on.
    let (_view, mut watch) = store.observe(query()).await.expect("the peer answers");
    let own = peer.world().sessions[&store.session().id.get().cast_signed()].server;
    let other = 3 - own;
    let written = peer.change(|world| {
        world.servers[other].lags = true;
        world.write(&[set("/event/a", "new")])
    });
    written.expect("nothing is against it");
    let Event::Changed(_) = next(&mut watch).await else { panic!("it was written") };
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
