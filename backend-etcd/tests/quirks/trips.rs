//! The number of requests to the servers.

use std::time::Duration;

use futures_util::future::{join, join_all};
use synod_conformance::harness::Link;
use synod_core::client::{Client, ClientOptions};
use synod_core::store::{
    Event, Expect, Kind, Lifetime, Query, RejectReason, SessionOptions, Store, Txn, Watch,
};
use synod_etcd::EtcdBackend;
use synod_recipes::election::LeaderLatch;
use synod_recipes::lock::{Mutex, Semaphore};

use crate::world::{World, create, eventually, path, through};

const TTL: Duration = Duration::from_secs(10);

/// The number of requests of some work.
async fn requests(world: &World, work: impl Future<Output = ()>) -> u64 {
    let before = world.cluster.requests();
    work.await;
    world.cluster.requests() - before
}

/// A session whose first heartbeat is over. The next one follows after ten seconds.
async fn settled(world: &World) -> Box<dyn Store> {
    let store = world.session(TTL * 60).await;
    await_heartbeat(&*store).await;
    store
}

async fn await_heartbeat(store: &dyn Store) {
    let opened = store.status().borrow().until();
    // The answered heartbeat makes the session certain for longer.
    eventually("a heartbeat is answered", async || store.status().borrow().until() > opened).await;
}

async fn commit(store: &dyn Store, txn: Txn) {
    let _either_way = store.commit(txn).await.expect("answered");
}

pub(crate) async fn every_call_is_one_request() {
    let world = World::alone();
    let ann = settled(&world).await;
    create(&*ann, "/d/deep/er", Lifetime::Persistent).await;
    let (_view, _watch) = ann.watch(Query::node(path("/first"))).await.expect("answered");

    let ticket = Txn::new().create_sequential(path("/q/t-"), "x", Lifetime::Session);
    let family = Txn::new()
        .create(path("/p"), "", Lifetime::Persistent)
        .create(path("/p/c"), "", Lifetime::Persistent)
        .check(path("/d/deep/er"), Expect::Any);
    let created = |lifetime| Txn::new().create(path("/once"), "x", lifetime);
    let txns = [
        created(Lifetime::Persistent),
        Txn::new().set(path("/once"), "y", Expect::Any),
        // Too large for the plain call.
        Txn::new().set(path("/once"), vec![0; 100_000], Expect::Any),
        Txn::new().delete(path("/once"), Expect::Any),
        created(Lifetime::Session).look(Query::node(path("/once"))),
        Txn::new().create_sequential(path("/q/s-"), "x", Lifetime::Session),
        ticket.look(Query::children(path("/q")).newest(2).names_only()),
        family.look(Query::children(path("/d"))),
        Txn::new().create(path("/p"), "", Lifetime::Persistent),
        // Rejected, with the existing node.
        Txn::new().create(path("/p"), "", Lifetime::Persistent).look(Query::node(path("/p"))),
        Txn::new()
            .check(path("/p"), Expect::Absent)
            .look_if_rejected(Query::nodes(path("/p"), [path("/p/c")])),
        Txn::new().set(path("/p"), "y", Expect::Any).look(Query::subtree(path("/"))),
        Txn::new().delete(path("/p"), Expect::Any),
        Txn::new().delete(path("/p/c"), Expect::Any).delete(path("/p"), Expect::Any),
    ];
    for txn in txns {
        let shown = format!("{txn:?}");
        assert_eq!(requests(&world, commit(&*ann, txn)).await, 1, "{shown}");
    }
    let queries = [
        Query::node(path("/d")),
        Query::children(path("/d")),
        Query::children(path("/d")).names_only().local(),
        Query::children(path("/d")).newest(1),
        Query::subtree(path("/d")),
    ];
    for query in queries {
        let reading = async {
            let _view = ann.read(query.clone()).await.expect("answered");
        };
        assert_eq!(requests(&world, reading).await, 1, "{query:?}");
        let observing = async {
            let (_view, _watch) = ann.watch(query.clone()).await.expect("answered");
        };
        // Sometimes a read overtakes its watch, and is repeated.
        assert!(requests(&world, observing).await <= 2, "{query:?}");
    }
}

pub(crate) async fn a_refusal_for_what_seldom_matters_is_asked_once_more() {
    let world = World::alone();
    let ann = settled(&world).await;
    create(&*ann, "/e", Lifetime::Session).await;
    create(&*ann, "/d/n", Lifetime::Persistent).await;
    let ticket = |text| Txn::new().create_sequential(path(text), "", Lifetime::Session);
    create(&*ann, "/q/t-", Lifetime::Session).await;
    let node = ann.read(Query::node(path("/d/n"))).await.expect("answered").into_node();
    let version = Expect::Version(node.and_then(|node| node.stat).expect("there").version);
    let refusals = [
        (
            Txn::new().create(path("/e/n"), "", Lifetime::Persistent),
            RejectReason::BelowEphemeral,
            2,
        ),
        (ticket("/e/t-"), RejectReason::BelowEphemeral, 2),
        (ticket("/q/t-"), RejectReason::Exists, 2),
        (Txn::new().create(path("/d"), "", Lifetime::Persistent), RejectReason::Exists, 2),
        (Txn::new().delete(path("/d"), version), RejectReason::HasChildren, 2),
        (Txn::new().delete(path("/d"), Expect::Any), RejectReason::HasChildren, 1),
        (Txn::new().delete(path("/d/m"), Expect::Any), RejectReason::Missing, 1),
        (Txn::new().create(path("/d/n"), "", Lifetime::Persistent), RejectReason::Exists, 1),
    ];
    for (txn, why, times) in refusals {
        let shown = format!("{txn:?}");
        let asked = requests(&world, async {
            let outcome = ann.commit(txn).await.expect("answered");
            assert_eq!(outcome.rejected().map(|no| no.reason), Some(why), "{shown}");
        });
        assert_eq!(asked.await, times, "{shown}");
    }
}

pub(crate) async fn what_is_observed_is_asked_for_at_once() {
    let world = World::alone();
    let (pipe, ann) = through(&world, TTL * 60).await;
    await_heartbeat(&*ann).await;
    // This opens the stream, which stays open.
    let (_view, _first) = ann.watch(Query::node(path("/first"))).await.expect("answered");
    let (requests, watches) = (world.cluster.requests(), world.cluster.watches());

    // Requests still arrive, but answers do not: from now on a request cannot depend on one.
    pipe.set(Link::Deaf);
    let observing = ann.watch(Query::children(path("/d")));
    let asked = async {
        eventually("both are asked for", async || {
            (world.cluster.requests(), world.cluster.watches()) == (requests + 1, watches + 1)
        })
        .await;
        pipe.set(Link::Open);
    };

    let (observed, ()) = join(observing, asked).await;
    let (_view, _watch) = observed.expect("answered");
}

/// The number of requests and stream messages that all clients send a server, between two moments.
struct Sent<'a> {
    world: &'a World,
    before: u64,
}

impl<'a> Sent<'a> {
    /// Counts from when this many were sent, one for each session. An exact number, because a first
    /// heartbeat may be under way.
    async fn after(before: u64, world: &'a World) -> Self {
        let sent = async || world.cluster.asked().expect("it has the number") == before;
        eventually("the sessions are open", sent).await;
        Self { world, before }
    }

    /// Asserts how many were sent since the last check.
    async fn is(&mut self, count: u64, what: &str) {
        // A heartbeat that is under way may count for less than nothing.
        let asked = || self.world.cluster.asked().expect("it has the number");
        let sent = || asked().saturating_sub(self.before);
        eventually(what, async || sent() >= count).await;
        eventually(what, async || sent() == count).await;
        self.before += count;
    }
}

pub(crate) async fn recipes_ask_for_no_more_than_they_need() {
    let world = World::alone();
    // The session is so long that no waiter watches its own ticket.
    let options = || ClientOptions::default().session(SessionOptions::new(TTL * 60));
    let client = async || {
        let backend = EtcdBackend::new(world.options()).expect("valid");
        Client::open(backend, options()).await.expect("a server runs")
    };
    let (ann, bob) = (client().await, client().await);
    let mutex = |client: &Client| Mutex::new(client, path("/counted/lock"));
    let latch = |client: &Client| LeaderLatch::new(client, path("/counted/latch"));
    let mut sent = Sent::after(2, &world).await;

    let held = mutex(&ann).lock().await.expect("answered");
    sent.is(1, "a free lock").await;
    assert!(mutex(&bob).try_lock().await.expect("answered").is_none());
    sent.is(1, "a try at a lock that is held").await;
    let lock = mutex(&bob);
    let handed = async {
        sent.is(3, "the ticket, the watch of the predecessor, and a read of it").await;
        // A line that changes while it is listed is listed once more.
        eventually("the predecessor is watched", async || world.cluster.watches() == 1).await;
        held.release().await.expect("answered");
    };
    let (guard, ()) = join(lock.lock(), handed).await;
    sent.is(2, "the release, and a look at the line").await;
    guard.expect("answered").release().await.expect("answered");
    sent.is(1, "a release").await;

    let pool = Semaphore::new(&ann, path("/counted/pool"), 3.try_into().expect("some"));
    let permits = pool.acquire_many(2).await.expect("answered");
    sent.is(1, "free permits").await;
    permits.release().await.expect("answered");
    sent.is(1, "their release").await;

    let first = latch(&ann).join().await.expect("answered");
    sent.is(1, "the lead, which is free").await;
    let second = latch(&bob).join().await.expect("answered");
    sent.is(3, "a place after the leader").await;
    // The watch of the lock is still open for a while.
    eventually("the predecessor is watched", async || world.cluster.watches() == 2).await;
    first.close().await.expect("answered");
    let _lead = second.leading().await.expect("answered");
    sent.is(2, "the leader's leaving, and a look at the line").await;
    second.close().await.expect("answered");
    sent.is(1, "the deletion of its ticket").await;
}

pub(crate) async fn a_client_that_waits_for_a_node_again_sends_one_request() {
    let world = World::alone();
    let ann = world.session(TTL * 60).await;
    let create = || Txn::new().create(path("/n"), "", Lifetime::Session);
    commit(&*ann, create()).await;
    let mut sent = Sent::after(2, &world).await;
    let wait = async || ann.watch(Query::until_gone(path("/n"))).await.expect("answered").1;
    let leave = async |mut watch: Watch| {
        commit(&*ann, Txn::new().delete(path("/n"), Expect::Any)).await;
        let told = watch.next().await;
        assert!(matches!(&told, Some(Event::Changed(it)) if it.kind == Kind::Deleted), "{told:?}");
        drop(watch);
        commit(&*ann, create()).await;
    };

    let events = world.cluster.events();
    leave(wait().await).await;
    sent.is(4, "the watch, and a look; the deletion, and what is made anew").await;
    leave(wait().await).await;
    sent.is(3, "a look: it is watched still").await;
    assert_eq!(world.cluster.events() - events, 2, "no watch reports that it is there again");

    drop(wait().await);
    sent.is(2, "a read; and a waiter that leaves before the deletion leaves no watch").await;
    eventually("it is not watched", async || world.cluster.watches() == 0).await;
}

pub(crate) async fn a_long_term_holder_watches_its_own_ticket() {
    let world = World::alone();
    let client = async |ttl: Duration| {
        let options = ClientOptions::default().session(SessionOptions::new(ttl));
        let backend = EtcdBackend::new(world.options()).expect("valid");
        Client::open(backend, options).await.expect("a server runs")
    };
    let (ann, bob) = (client(Duration::from_secs(3)).await, client(TTL * 60).await);
    let held = Mutex::new(&ann, path("/held/lock")).lock().await.expect("answered");
    let mut sent = Sent::after(3, &world).await;
    let taken = async {
        sent.is(2, "the watch of its own ticket, and a read of it").await;
        eventually("it is watched", async || world.cluster.watches() == 1).await;
        let gone = bob.delete(held.path(), Expect::Any).await.expect("answered");
        assert!(gone.is_committed(), "it is there");
    };
    let (_lost, ()) = join(held.lost(), taken).await;
    assert!(!held.is_held());
}

pub(crate) async fn a_node_with_a_time_to_live_needs_more() {
    let world = World::alone();
    let ann = settled(&world).await;
    let made = commit(&*ann, Txn::new().create(path("/n"), "", Lifetime::Ttl(TTL)));
    assert_eq!(requests(&world, made).await, 2, "a lease, and the node");
    // And the lease is renewed. That looks like a heartbeat, without the read that each of them
    // has.
    let set = commit(&*ann, Txn::new().set(path("/n"), "", Expect::Any));
    assert_eq!(requests(&world, set).await + 1, 1);
    let again = commit(&*ann, Txn::new().create(path("/n"), "", Lifetime::Ttl(TTL)));
    assert_eq!(requests(&world, again).await, 3, "a lease, the attempt, and the lease given back");
}

/// Each of many clients that lock repeatedly gets one event for each release that it waited
/// for, and sometimes one that no longer concerns it.
pub(crate) async fn a_release_notifies_few_clients() {
    const CLIENTS: usize = 4;
    const LAPS: usize = 50;

    let world = World::alone();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let backend = EtcdBackend::new(world.options()).expect("valid");
        let options = ClientOptions::default().session(SessionOptions::new(TTL * 60));
        clients.push(Client::open(backend, options).await.expect("a server runs"));
    }
    let events = world.cluster.events();
    let lock_often = async |client: &Client| {
        let mutex = Mutex::new(client, path("/told/lock"));
        for _ in 0..LAPS {
            mutex.lock().await.expect("answered").release().await.expect("answered");
        }
    };
    join_all(clients.iter().map(lock_often)).await;

    let (told, releases) = (world.cluster.events() - events, (CLIENTS * LAPS) as u64);
    assert!((1..=2 * releases).contains(&told), "{told} events for {releases} releases");
}
