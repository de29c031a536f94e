//! Functions that the directed scenes share.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use synod_core::client::{Client, ClientOptions};
use synod_core::path::Path;
use synod_core::store::{
    Backend as _, Commit, Event, Expect, Lifetime, Outcome, Query, SessionOptions, Store, Txn,
    Watch,
};
use synod_zk::{Access, ZkBackend, ZkOptions};
use tokio::time::timeout;

use crate::peer::Peer;
use crate::protocol::Request;
use crate::script::{Deed, Rule};
use crate::tree::open_acl;

/// The limit for conditions that must eventually hold.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A time to live that is long enough for any machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Every panic of this process, even if it was caught.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records every panic from now on.
pub(crate) fn note_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(place);
        before(panic);
    }));
}

/// The panics in the code of the backend or of the client above it.
pub(crate) fn panics() -> Vec<String> {
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    let ours = |place: &&String| place.contains("backend-zk/src") || place.contains("core/src");
    panics.iter().filter(ours).cloned().collect()
}

pub(crate) fn peer(servers: usize) -> Peer {
    Peer::start(servers).expect("there are ports")
}

pub(crate) async fn open(peer: &Peer, ttl: Duration) -> Box<dyn Store> {
    peer.backend().open(&SessionOptions::new(ttl)).await.expect("the peer runs")
}

/// A session that connects only to these servers.
pub(crate) async fn open_at(peer: &Peer, servers: &[usize], ttl: Duration) -> Box<dyn Store> {
    let hosts = servers.iter().map(|server| peer.addresses()[*server].to_string());
    let tick = peer.world().tick;
    let options = ZkOptions::new(hosts).access(Access::Open).tick(tick);
    let backend = ZkBackend::new(options).expect("valid");
    backend.open(&SessionOptions::new(ttl)).await.expect("the peer runs")
}

pub(crate) async fn client(peer: &Peer, ttl: Duration) -> Client {
    let options = ClientOptions::default().session(SessionOptions::new(ttl));
    Client::open(peer.backend(), options).await.expect("the peer runs")
}

pub(crate) fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

pub(crate) fn create(at: &str, data: &'static str) -> Txn {
    Txn::new().create(path(at), data, Lifetime::Persistent)
}

/// Deletes a node of any version.
pub(crate) fn delete(at: &str) -> Txn {
    Txn::new().delete(path(at), Expect::Any)
}

/// Creates a node that the session owns.
pub(crate) fn owned(at: &str) -> Txn {
    Txn::new().create(path(at), "", Lifetime::Session)
}

pub(crate) async fn committed(store: &dyn Store, txn: Txn) -> Commit {
    ends(store, txn).await.required().expect("nothing is against it")
}

pub(crate) async fn done(store: &dyn Store, txn: Txn) {
    let _done = committed(store, txn).await;
}

/// Any end of a transaction.
pub(crate) async fn ends(store: &dyn Store, txn: Txn) -> Outcome {
    timeout(PATIENCE, store.commit(txn)).await.expect("in time").expect("the peer answers")
}

/// Advances the time by this much in one step.
pub(crate) async fn passes(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Reads until the session answers again.
pub(crate) async fn recovers(store: &dyn Store) {
    let read = async {
        while store.read(Query::node(path("/any"))).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, read).await.expect("the session is of use again");
}

/// Closes the connections of the only server, and waits until a client connects again.
pub(crate) async fn reconnects(peer: &Peer) {
    peer.change(|world| world.servers[0].close_all());
    let again = peer.until(|world| !world.servers[0].conns.is_empty());
    timeout(PATIENCE, again).await.expect("it connects again");
}

/// Counts the requests of these kinds of a session from now on. Nothing is changed by it.
pub(crate) fn count(peer: &Peer, store: &dyn Store, kinds: &[i32]) -> impl Fn() -> usize {
    let session = store.session().id.get();
    for kind in kinds {
        let rule = Rule::new(Deed::Late(Duration::ZERO)).op(*kind).of(session);
        peer.when(rule.times(usize::MAX));
    }
    move || peer.world().script.played(session)
}

/// The next event, in time.
pub(crate) async fn next(watch: &mut Watch) -> Event {
    timeout(PATIENCE, watch.next()).await.expect("an event in time").expect("it goes on")
}

/// A write by another client.
pub(crate) fn set(at: &str, data: &str) -> Request {
    Request::SetData { path: at.to_owned(), data: data.as_bytes().to_vec(), version: -1 }
}

pub(crate) fn make(at: &str) -> Request {
    let (path, data, acl) = (at.to_owned(), b"made".to_vec(), open_acl());
    Request::Create { op: crate::protocol::op::CREATE_2, path, data, acl, flags: 0, ttl: 0 }
}

pub(crate) fn remove(at: &str) -> Request {
    Request::Delete { path: at.to_owned(), version: -1 }
}
