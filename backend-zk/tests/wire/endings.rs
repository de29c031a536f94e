//! The end of a session at its servers, and its report to the client: C-SES-5 and the laws of
//! `close`.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join;
use synod_core::error::{Effect, ErrorKind};
use synod_core::store::{Backend as _, Query, SessionId, SessionOptions, Status, Store};
use synod_zk::{Heartbeat, ZkBackend};
use tokio::time::timeout;

use crate::peer::Peer;
use crate::protocol::{code, op};
use crate::scene::{LONG, PATIENCE, open, path, peer, recovers};
use crate::script::{Deed, Rule};

/// Longer than any scene: no request of this kind is treated in another way.
const ALWAYS: usize = usize::MAX;

const SHORT: Duration = Duration::from_secs(1);

fn id(store: &dyn Store) -> SessionId {
    store.session().id
}

async fn is_lost(store: &dyn Store) {
    let mut status = store.status();
    let lost = timeout(PATIENCE, status.wait_for(Status::is_lost)).await;
    lost.expect("it is given up in time").expect("that is reported");
}

async fn ends_at_its_servers(peer: &Peer, session: SessionId) {
    let ended = peer.until(|world| world.ended.contains_key(&session.get().cast_signed()));
    timeout(PATIENCE, ended).await.expect("the servers end the session");
}

/// The connection works, so the servers would keep the session alive for ever: only its heartbeats
/// fail. Its nodes must not stay because its owner keeps the lost session.
pub(crate) async fn a_session_that_its_client_gave_up_ends_at_its_servers() {
    let peer = peer(1);
    let store = open(&peer, SHORT).await;
    let refused = Rule::new(Deed::Refuse(code::THROTTLED)).op(op::SYNC).times(ALWAYS);
    peer.when(refused.of(id(&*store).get()));

    is_lost(&*store).await;
    ends_at_its_servers(&peer, id(&*store)).await;
}

/// The servers ended the session at a time that its client does not know, after it was certain: its
/// nodes may have existed for longer than the client assumes.
pub(crate) async fn a_session_that_ended_long_ago_is_not_closed_by_its_client() {
    let peer = peer(1);
    let store = open(&peer, SHORT).await;
    peer.stop(0);
    is_lost(&*store).await;
    peer.expire(id(&*store));
    peer.resume(0);

    let closed = timeout(PATIENCE, store.close()).await.expect("it ends");
    let error = closed.expect_err("no server answered a close");
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
}

/// A call is waiting when the client gives the session up, and fails as the session is over. That
/// is the decision of the client, not of a server.
pub(crate) async fn a_session_that_its_client_gave_up_is_not_closed_by_a_call() {
    let peer = peer(1);
    let store = open(&peer, SHORT).await;
    peer.stop(0);

    let (read, ()) = join(store.read(Query::node(path("/a"))), is_lost(&*store)).await;

    assert_eq!(read.expect_err("it is over").kind(), ErrorKind::SessionLost);
    let closed = timeout(PATIENCE, store.close()).await.expect("it ends");
    let error = closed.expect_err("no server answered a close");
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
}

/// The session was opened on a runtime that has ended: nothing keeps it alive, and no server
/// received a close.
pub(crate) async fn a_session_whose_runtime_has_ended_is_not_closed() {
    let peer = peer(1);
    let backend = peer.backend();
    let store = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let opening = async { backend.open(&SessionOptions::new(LONG)).await };
        runtime.expect("the system lets it start").block_on(opening).expect("the peer runs")
    });
    let store = store.join().expect("no panic");

    let read = timeout(PATIENCE, store.read(Query::node(path("/a")))).await.expect("in time");
    assert_eq!(read.expect_err("nothing is sent").kind(), ErrorKind::SessionLost);
    assert!(store.status().borrow().is_lost());
    let closed = timeout(PATIENCE, store.close()).await.expect("in time");
    assert_eq!(closed.expect_err("nothing is sent").effect(), Effect::Unknown);
}

/// The session is refused while it was certain when the first call began, so its servers ended it
/// in between, which is the purpose of both calls.
pub(crate) async fn a_close_that_was_dropped_remembers_how_long_the_session_was_certain() {
    let peer = peer(1);
    let store = open(&peer, LONG).await;
    peer.stop(0);
    assert!(store.close().now_or_never().is_none(), "no server answers yet");
    peer.expire(id(&*store));
    peer.resume(0);

    let closed = timeout(PATIENCE, store.close()).await.expect("it ends");
    closed.expect("the servers ended the session while it was certain");
}

/// A write without permission is refused, but its answer needs a quorum like any other.
pub(crate) async fn a_session_whose_heartbeats_are_writes_needs_no_right_to_the_root() {
    /// Long enough for any machine, and shorter than this number of heartbeats: there are ten to a
    /// time to live.
    const TTL: Duration = Duration::from_secs(6);

    let peer = peer(1);
    let backend = ZkBackend::new(peer.options().heartbeat(Heartbeat::Write)).expect("valid");
    let store = backend.open(&SessionOptions::new(TTL)).await.expect("the peer runs");
    let refused = Rule::new(Deed::Refuse(code::NO_AUTH)).op(op::MULTI).times(ALWAYS);
    peer.when(refused.of(id(&*store).get()));

    let enough = peer.until(|world| world.script.played(id(&*store).get()) > 12);
    timeout(PATIENCE, enough).await.expect("each heartbeat is a write");
    recovers(&*store).await;
    assert!(!store.status().borrow().is_lost(), "each heartbeat was answered");
}
