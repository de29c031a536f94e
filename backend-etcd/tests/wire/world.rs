//! The parts of a scene: a cluster, sessions on it, and waiting for conditions.

use std::time::Duration;

use synod_core::error::Error;
use synod_core::path::Path;
use synod_core::store::{
    Backend as _, Event, Expect, Lifetime, Outcome, Query, SessionId, SessionOptions, Status,
    Store, Txn, Watch,
};
use synod_etcd::EtcdBackend;
use tokio::time::{sleep, timeout};

use crate::peer::Peer;

/// The time to live of a session.
pub(crate) const TTL: Duration = Duration::from_secs(10);
/// The limit for conditions that must eventually hold.
const LONG: Duration = Duration::from_secs(120);

pub(crate) async fn session(peer: &Peer) -> Box<dyn Store> {
    let opened = peer.shared.script().met.len();
    open(&peer.backend(u64::try_from(opened).unwrap_or_default())).await.expect("it is opened")
}

pub(crate) async fn open(backend: &EtcdBackend) -> Result<Box<dyn Store>, Error> {
    backend.open(&SessionOptions::new(TTL)).await
}

pub(crate) fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

pub(crate) fn create(at: &str) -> Txn {
    Txn::new().create(path(at), "x", Lifetime::Persistent)
}

pub(crate) fn set(at: &str, data: &'static str) -> Txn {
    Txn::new().set(path(at), data, Expect::Any)
}

pub(crate) async fn done(store: &dyn Store, txn: Txn) {
    match store.commit(txn).await.expect("it is answered") {
        Outcome::Committed(_) => {}
        Outcome::Rejected(no) => panic!("rejected: {no:?}"),
    }
}

pub(crate) async fn exists(store: &dyn Store, at: &str) -> bool {
    let view = store.read(Query::node(path(at))).await;
    view.expect("it is answered").node().is_some()
}

/// The value at a path at the members, independent of any client.
pub(crate) fn kept(peer: &Peer, at: &str) -> Option<Vec<u8>> {
    peer.shared.state().keys.get(&key(&path(at))).map(|kv| kv.value.to_vec())
}

/// Waits for a change of this path.
pub(crate) async fn hears_of(watch: &mut Watch, at: &str) {
    let at = path(at);
    let hearing = async {
        loop {
            match watch.next().await {
                Some(Event::Changed(change)) if change.path == at => return,
                Some(Event::Changed(_)) => {}
                other => panic!("a change of {at} was to be reported, and not {other:?}"),
            }
        }
    };
    timeout(LONG, hearing).await.expect("it is reported in time");
}

pub(crate) async fn next(watch: &mut Watch) -> Option<Event> {
    timeout(LONG, watch.next()).await.expect("something is reported in time")
}

pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(LONG, waiting).await.is_ok(), "{what}: not within {LONG:?}");
}

pub(crate) fn is_live(store: &dyn Store) -> bool {
    matches!(*store.status().borrow(), Status::Live { .. })
}

/// The lease of a session.
pub(crate) fn lease(session: SessionId) -> i64 {
    i64::from_ne_bytes(session.get().to_ne_bytes())
}

/// The key of a node.
pub(crate) fn key(path: &Path) -> Vec<u8> {
    let (dir, name) = path.as_str().rsplit_once('/').expect("absolute");
    format!("{dir}//{name}").into_bytes()
}
