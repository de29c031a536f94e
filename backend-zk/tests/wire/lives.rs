//! No session is certain after its servers ended it: L-SES-1, L-SES-2, L-SES-15.

use std::time::Duration;

use futures_util::future::join_all;
use synod_core::store::{Backend as _, SessionId, SessionOptions, Status, Store};
use synod_zk::{Access, ZkBackend, ZkOptions};
use tokio::time::{Instant, sleep, timeout};

use crate::peer::Peer;
use crate::protocol::op;
use crate::scene::{LONG, PATIENCE, open, passes, peer, recovers};
use crate::script::{Deed, Rule};

/// Waits until the servers have ended the session, and checks that it is not certain from then on.
pub(crate) async fn is_never_late(peer: &Peer, store: &dyn Store) {
    let (id, status) = (store.session().id, store.status());
    let mut looks = 0;
    let ends = async {
        while looks < 200 {
            // The servers' state is read first: a session that is certain after that is certain too
            // late.
            let over = ended(peer, id);
            let certain = status.borrow().is_certain();
            assert!(!(over && certain), "certain, and the servers have ended it");
            looks += u32::from(over);
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, ends).await.expect("the servers end it");
}

/// The servers would grant much more.
pub(crate) async fn a_session_is_requested_for_24_days_at_most() {
    const DAY: Duration = Duration::from_secs(86_400);
    let peer = Peer::start_with(1, DAY * 5).expect("there are ports");
    let store = open(&peer, DAY * 99).await;
    assert_eq!(store.session().ttl, DAY * 24);
}

fn ended(peer: &Peer, session: SessionId) -> bool {
    peer.world().ended.contains_key(&session.get().cast_signed())
}

/// Waits for this number of answered heartbeats.
pub(crate) async fn beats(peer: &Peer, count: usize) {
    let mut before = None;
    let some = peer.until(|world| {
        let now = world.signs;
        now >= *before.get_or_insert(now) + count
    });
    timeout(PATIENCE, some).await.expect("it gives signs of life");
}

/// The next connection grants less time than the first did.
pub(crate) async fn a_session_is_no_longer_than_its_last_connection_grants() {
    let peer = peer(1);
    let store = open(&peer, Duration::from_secs(3)).await;
    recovers(&*store).await;
    peer.change(|world| {
        world.servers[0].longest = Duration::from_millis(600);
        world.servers[0].close_all();
    });
    recovers(&*store).await;
    beats(&peer, 1).await;
    // From now on nothing passes the link: the last granted time runs out.
    peer.link(store.session().id, synod_conformance::harness::Link::Cut);
    is_never_late(&peer, &*store).await;
}

/// The session continues after any end of its connection.
pub(crate) async fn a_session_outlives_whatever_ends_its_connection() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    let deeds = [
        Deed::CloseBefore,
        Deed::CloseAfter,
        Deed::Twice,
        Deed::Misnumber,
        Deed::Garble,
        Deed::Halve,
    ];
    for deed in deeds {
        for number in [op::EXISTS, op::GET_DATA, op::SYNC, op::PING] {
            peer.when(Rule::new(deed.clone()).op(number).of(store.session().id.get()));
        }
        recovers(&*store).await;
        recovers(&*store).await;
    }
    assert!(!store.status().borrow().is_lost());
    store.close().await.expect("it is closed");
    assert!(ended(&peer, store.session().id));
}

/// The session is ended while it is disconnected: its client is notified at the next connection.
pub(crate) async fn a_session_that_ended_meanwhile_is_lost() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    peer.stop(0);
    peer.expire(store.session().id);
    peer.resume(0);
    let mut status = store.status();
    let lost = status.wait_for(Status::is_lost);
    timeout(PATIENCE, lost).await.expect("in time").expect("it is reported");
    assert!(store.read(synod_core::store::Query::node(crate::scene::path("/a"))).await.is_err());
    store.close().await.expect("nothing is left of it");
}

/// Servers that do not answer take most of a session's time before one does. A session that is
/// opened after that must stay alive.
pub(crate) async fn a_session_that_took_long_to_open_is_not_lost_at_once() {
    const TTL: Duration = Duration::from_secs(6);

    let peer = peer(3);
    peer.change(|world| [1, 2].map(|server| world.part(server)));
    let hosts = peer.addresses().iter().map(ToString::to_string);
    let options = ZkOptions::new(hosts).access(Access::Open);
    let opened = join_all((0..24).map(async |_| {
        let began = Instant::now();
        let backend = ZkBackend::new(options.clone()).expect("valid");
        // If no heartbeat can be answered within the remaining time, no session is opened.
        let opened = backend.open(&SessionOptions::new(TTL)).await;
        let took = began.elapsed();
        if let Ok(store) = opened {
            let mut status = store.status();
            let lost = status.wait_for(|status| status.until().is_none());
            assert!(timeout(TTL, lost).await.is_err(), "lost, after {took:?} to open it");
        }
        took
    }));
    // The servers are called in any order.
    let late = opened.await.into_iter().filter(|took| *took > TTL / 2).count();
    assert!((1..24).contains(&late), "{late}");
}

/// A session whose server answers no heartbeat is suspended at the fourth one, not earlier.
pub(crate) async fn a_silent_server_is_in_doubt_after_three_heartbeats() {
    // No pause between heartbeats is longer than eight seconds, and no connection is given up in
    // that time.
    const PAUSE: Duration = Duration::from_millis(8_050);

    let peer = Peer::start_with(1, Duration::from_secs(1)).expect("there are ports");
    let store = open(&peer, Duration::from_secs(500)).await;
    let (session, mut status) = (store.session().id.get(), store.status());
    peer.when(Rule::new(Deed::Mute).op(op::SYNC).of(session).times(usize::MAX));
    for beat in 1..=3 {
        passes(PAUSE).await;
        let sent = peer.until(|world| world.script.played(session) == beat);
        timeout(PATIENCE, sent).await.expect("it is sent");
        // The status becomes suspended before the heartbeat is sent.
        let live = matches!(*status.borrow(), Status::Live { .. });
        assert_eq!(live, beat < 3, "at heartbeat {beat}");
    }
    let suspended = status.wait_for(|status| matches!(status, Status::Suspended { .. }));
    let _status = timeout(PATIENCE, suspended).await.expect("in time");
}
