//! The number of round trips of calls, counted by the proxy.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, join, join_all, select};
use synod_conformance::harness::Link;
use synod_core::client::{Client, ClientOptions};
use synod_core::store::{
    Backend as _, Event, Expect, Lifetime, Query, SessionId, SessionOptions, Txn, Version,
};
use synod_recipes::barrier::DoubleBarrier;
use synod_recipes::election::{Election, LeaderLatch};
use synod_recipes::lock::{Mutex, Semaphore};
use synod_servers::links::Links;
use synod_servers::verb::Verb;
use synod_zk::{Access, ZkBackend};
use tokio::time::{Instant, timeout};

use super::{PATIENCE, create, done, linked, options, path, server};

/// The requests of a session since the last call, without its heartbeats.
fn take_asked(links: &Links, session: SessionId) -> Vec<Verb> {
    let signs_of_life = |verb: &Verb| matches!(verb, Verb::Ping | Verb::Exists);
    links.take_requests(session).into_iter().filter(|verb| !signs_of_life(verb)).collect()
}

/// The requests of a call until it gets its first answer, and then until it ends.
async fn asks<T>(
    links: &Links,
    session: SessionId,
    first: usize,
    call: impl Future<Output = T>,
) -> (Vec<Verb>, Vec<Verb>) {
    let _before = links.take_requests(session);
    // No answer reaches the client.
    links.set(session, Link::Deaf);
    let mut call = pin!(call);
    let all = pin!(timeout(PATIENCE, links.asks(session, first)));
    match select(&mut call, all).await {
        Either::Left(_) => panic!("it ended without an answer"),
        Either::Right((in_time, _)) => in_time.expect("it asks for so much at once"),
    }
    let at_once = take_asked(links, session);
    links.set(session, Link::Open);
    let _done = call.await;
    (at_once, take_asked(links, session))
}

pub(super) async fn a_call_asks_for_all_it_needs_at_once() {
    let (links, store) = linked().await;
    let (store, id) = (&*store, store.session().id);
    let node = path("/trips/node");
    done(store, create("/trips/node", "")).await;
    let draw = || Txn::new().create_sequential(path("/trips/x-"), "", Lifetime::Session);
    let look = || Query::children(path("/trips")).names_only();
    let observe = async |query: Query| store.watch(query).await.expect("answers");
    let counted = |counted: (Vec<Verb>, Vec<Verb>), at_once: &[Verb], then: &[Verb]| {
        assert_eq!((&counted.0[..], &counted.1[..]), (at_once, then));
    };
    // Reads.
    let read = |query: Query| store.read(query);
    let query = || Query::node(&node);
    counted(asks(&links, id, 2, read(query())).await, &[Verb::Sync, Verb::Get], &[]);
    counted(asks(&links, id, 1, read(query().local())).await, &[Verb::Get], &[]);
    counted(asks(&links, id, 2, read(look())).await, &[Verb::Sync, Verb::List], &[]);
    // The second request depends on the answer to the first.
    let data = read(Query::children(path("/trips")));
    counted(asks(&links, id, 2, data).await, &[Verb::Sync, Verb::MultiRead], &[Verb::MultiRead]);

    // Observing.
    let mut kept = Vec::new();
    let mut keep = async |query: Query| kept.push(observe(query).await);
    let watched = asks(&links, id, 2, keep(query().local())).await;
    counted(watched, &[Verb::Watch, Verb::Get], &[]);
    let watched = asks(&links, id, 3, keep(look())).await;
    counted(watched, &[Verb::Watch, Verb::Sync, Verb::List], &[]);
    // A path that is watched already needs no second watch.
    let watched = asks(&links, id, 1, keep(query().local())).await;
    counted(watched, &[Verb::Get], &[]);

    // Writes of one operation are the plain request.
    counted(
        asks(&links, id, 2, done(store, draw().look(look()))).await,
        &[Verb::Create, Verb::List],
        &[],
    );
    counted(asks(&links, id, 1, done(store, create("/trips/new", ""))).await, &[Verb::Create], &[]);
    let set = Txn::new().set(&node, "x", Expect::Any);
    counted(asks(&links, id, 1, done(store, set)).await, &[Verb::Set], &[]);
    // A follow-up read is sent along, whatever the result of its transaction; a read that is wanted
    // only after a rejection, where a rejection is likely.
    let stale = || Txn::new().set(&node, "y", Expect::Version(Version::new(77)));
    let several = || Query::nodes(&node, [path("/trips/none")]);
    let rejected = async |txn: Txn| {
        let no = store.commit(txn).await.expect("answers");
        assert_eq!(
            no.rejected().and_then(|no| no.look.as_ref()).map(|view| view.nodes.len()),
            Some(1)
        );
    };
    let along = asks(&links, id, 2, rejected(stale().look(several()))).await;
    counted(along, &[Verb::Set, Verb::MultiRead], &[]);
    let late = asks(&links, id, 1, rejected(stale().look_if_rejected(several()))).await;
    counted(late, &[Verb::Set], &[Verb::MultiRead]);
    let again = asks(&links, id, 2, rejected(stale().look_if_rejected(several()))).await;
    counted(again, &[Verb::Set, Verb::MultiRead], &[]);
    let delete = Txn::new().delete(path("/trips/new"), Expect::Any);
    counted(asks(&links, id, 1, done(store, delete)).await, &[Verb::Delete], &[]);
    // Several are one request, too.
    let both = create("/trips/a", "").create(path("/trips/b"), "", Lifetime::Session);
    counted(asks(&links, id, 1, done(store, both)).await, &[Verb::Multi], &[]);
    let absent = Txn::new().check(path("/trips/c"), Expect::Absent).delete(&node, Expect::Any);
    counted(asks(&links, id, 1, done(store, absent)).await, &[Verb::Multi], &[]);
}

pub(super) async fn one_event_takes_one_request() {
    let (links, store) = linked().await;
    let (store, id) = (&*store, store.session().id);
    let other = path("/once/other");
    let once = || async {
        let query = Query::node(&other).once().local();
        store.watch(query).await.expect("answers").1
    };
    for events in [true, false] {
        done(store, create("/once/other", "")).await;
        let _before = links.take_requests(id);
        let mut watch = once().await;
        asks_for(&links, id, &[Verb::Get]).await;
        let delete = || done(store, Txn::new().delete(&other, Expect::Any));
        if events {
            delete().await;
            assert!(matches!(watch.next().await, Some(Event::Changed(_))));
            drop(watch);
            drop(once().await);
            asks_for(&links, id, &[Verb::Delete, Verb::Get]).await;
        } else {
            drop(watch);
            asks_for(&links, id, &[Verb::Unwatch]).await;
            delete().await;
            asks_for(&links, id, &[Verb::Delete]).await;
        }
    }
}

/// A client whose requests are counted. The session is so long that no waiter watches its own
/// ticket.
pub(super) async fn counted(links: &Links) -> (Client, SessionId) {
    let backend = ZkBackend::new(options(links.addresses().to_vec()).access(Access::Open));
    let options = ClientOptions::default().session(SessionOptions::new(Duration::from_secs(60)));
    let client = Client::open(backend.expect("valid"), options).await.expect("a server runs");
    let session = client.session().await.expect("it lives").info().id;
    (client, session)
}

/// Checks that the next requests of a session are these, in any order, and no others.
pub(super) async fn asks_for(links: &Links, session: SessionId, expected: &[Verb]) {
    let mut requests = Vec::new();
    let all = async {
        while requests.len() < expected.len() {
            requests.extend(take_asked(links, session));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let in_time = timeout(PATIENCE, all).await;
    let mut expected = expected.to_vec();
    requests.sort();
    expected.sort();
    assert_eq!(requests, expected, "in time: {}", in_time.is_ok());
}

pub(super) async fn recipes_ask_for_no_more_than_they_need() {
    const DRAWN: [Verb; 2] = [Verb::Create, Verb::List];
    // The predecessor is read and watched in one request.
    const WAITING: [Verb; 3] = [Verb::Create, Verb::List, Verb::ListWatch];

    let links = Links::start(&server().addresses()).expect("there are ports");
    let ((ann, anns), (bob, bobs)) = (counted(&links).await, counted(&links).await);
    let mutex = |client: &Client| Mutex::new(client, path("/counted/lock"));
    let latch = |client: &Client| LeaderLatch::new(client, path("/counted/latch"));
    // The directories exist.
    for node in ["/counted/lock/x", "/counted/latch/x", "/counted/pool/x"] {
        let made = bob.create(&path(node), "", Lifetime::Persistent).await.expect("answers");
        assert!(made.is_committed());
    }
    let _before = (links.take_requests(anns), links.take_requests(bobs));

    let held = mutex(&ann).lock().await.expect("answers");
    asks_for(&links, anns, &DRAWN).await;
    assert!(mutex(&bob).try_lock().await.expect("answers").is_none());
    asks_for(&links, bobs, &[Verb::Sync, Verb::List]).await;
    let handed = async {
        asks_for(&links, bobs, &WAITING).await;
        held.release().await.expect("answers");
        asks_for(&links, anns, &[Verb::Delete]).await;
    };
    let lock = mutex(&bob);
    let (guard, ()) = join(lock.lock(), handed).await;
    asks_for(&links, bobs, &[Verb::List]).await;
    guard.expect("answers").release().await.expect("answers");
    asks_for(&links, bobs, &[Verb::Delete]).await;

    let pool = Semaphore::new(&ann, path("/counted/pool"), 3.try_into().expect("some"));
    let permit = pool.acquire_many(2).await.expect("answers");
    asks_for(&links, anns, &DRAWN).await;
    permit.release().await.expect("answers");
    asks_for(&links, anns, &[Verb::Delete]).await;

    let first = latch(&ann).join().await.expect("answers");
    asks_for(&links, anns, &DRAWN).await;
    let second = latch(&bob).join().await.expect("answers");
    asks_for(&links, bobs, &WAITING).await;
    first.close().await.expect("answers");
    asks_for(&links, anns, &[Verb::Delete]).await;
    let _lead = second.leading().await.expect("answers");
    asks_for(&links, bobs, &[Verb::List]).await;
    second.close().await.expect("answers");
    asks_for(&links, bobs, &[Verb::Delete]).await;
}

/// Two members in several rounds: each keeps its watch from the first round.
pub(super) async fn a_round_of_a_double_barrier_takes_few_requests() {
    let links = Links::start(&server().addresses()).expect("there are ports");
    let ((ann, anns), (bob, bobs)) = (counted(&links).await, counted(&links).await);
    let barrier = |client: &Client| {
        DoubleBarrier::new(client, path("/counted/both"), 2.try_into().expect("some"))
    };
    let (first, last) = (barrier(&ann), barrier(&bob));
    // The requests of both members, sorted. Either may be the last to arrive.
    let requests = || {
        let [one, other] = [anns, bobs].map(|session| format!("{:?}", take_asked(&links, session)));
        if one < other { [one, other] } else { [other, one] }
    };
    for is_first in [true, false] {
        let _before = requests();
        let (one, other) = join(first.enter(), last.enter()).await;
        let (one, other) = (one.expect("answers"), other.expect("answers"));
        if !is_first {
            assert_eq!(requests(), ["[Create, Get]", "[Create, Sync, Get, Multi]"]);
        }
        let (one, other) = join(one.leave(), other.leave()).await;
        one.and(other).expect("answers");
        if !is_first {
            assert_eq!(requests(), ["[Delete]", "[Multi]"]);
        }
    }
}

/// A proclamation wakes no waiter, and does not use up its watch.
pub(super) async fn a_waiting_candidate_sends_few_requests() {
    let links = Links::start(&server().addresses()).expect("there are ports");
    let ((ann, anns), (bob, bobs)) = (counted(&links).await, counted(&links).await);
    let election = |client: &Client| Election::new(client, path("/counted/lead"));
    // The directory exists.
    let stays = bob.create(&path("/counted/lead/x"), "", Lifetime::Persistent).await;
    assert!(stays.expect("answers").is_committed());
    let _before = (links.take_requests(anns), links.take_requests(bobs));

    let leader = election(&ann).campaign("ann").await.expect("answers");
    asks_for(&links, anns, &[Verb::Create, Verb::List]).await;
    let resigned = async {
        asks_for(&links, bobs, &[Verb::Create, Verb::List, Verb::ListWatch]).await;
        for _ in 0..3 {
            leader.proclaim("again").await.expect("answers");
            asks_for(&links, anns, &[Verb::Set]).await;
        }
        leader.resign().await.expect("answers");
        asks_for(&links, anns, &[Verb::Delete]).await;
    };
    let next = election(&bob);
    let (led, ()) = join(next.campaign("bob"), resigned).await;
    asks_for(&links, bobs, &[Verb::List]).await;
    led.expect("answers").resign().await.expect("answers");
    asks_for(&links, bobs, &[Verb::Delete]).await;
    assert_eq!((links.events(anns), links.events(bobs)), (0, 1));
}

/// Each of many clients that lock repeatedly gets one event for each release that it waited
/// for.
pub(super) async fn a_release_notifies_one_client() {
    const CLIENTS: usize = 4;
    const LAPS: usize = 25;

    let links = Links::start(&server().addresses()).expect("there are ports");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(counted(&links).await);
    }
    let lock_often = async |client: &Client| {
        let mutex = Mutex::new(client, path("/events/lock"));
        for _ in 0..LAPS {
            mutex.lock().await.expect("answers").release().await.expect("answers");
        }
    };
    join_all(clients.iter().map(|(client, _)| lock_often(client))).await;

    let events: u64 = clients.iter().map(|(_, session)| links.events(*session)).sum();
    let releases = (CLIENTS * LAPS) as u64;
    assert!((1..=releases).contains(&events), "{events} events for {releases} releases");
}

pub(super) async fn an_idle_session_gives_signs_of_life_only() {
    let links = Links::start(&server().addresses()).expect("there are ports");
    let backend = ZkBackend::new(options(links.addresses().to_vec()).access(Access::Open));
    let ttl = SessionOptions::new(Duration::from_secs(3));
    let store = backend.expect("valid").open(&ttl).await.expect("a server runs");
    let (_view, _watch) = store.watch(Query::subtree(path("/idle"))).await.expect("answers");
    let _before = links.take_requests(store.session().id);

    let began = Instant::now();
    let mut requests = Vec::new();
    // The heartbeats of the backend replace the pings of the protocol, which are only sent when a
    // heartbeat is late.
    let some = async {
        while !requests.ends_with(&[Verb::Sync; 10]) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            requests.extend(links.take_requests(store.session().id));
        }
    };
    timeout(PATIENCE, some).await.expect("it lives, and so often that nothing else has to");

    assert!(requests.iter().all(|verb| matches!(verb, Verb::Ping | Verb::Sync)), "{requests:?}");
    // The backend sends one in a tenth of the time to live; the client would ping once in a
    // seventh.
    let due = began.elapsed().as_millis() / (ttl.ttl / 10).as_millis();
    let beats = requests.iter().filter(|verb| **verb == Verb::Sync).count();
    assert!(beats as u128 <= due + 1, "{beats} and not {due}: {requests:?}");
}

pub(super) async fn a_narrow_link_takes_its_time() {
    const RATE: u32 = 100_000;

    let (links, store) = linked().await;
    let data = bytes::Bytes::from(vec![b'x'; 40_000]);
    links.throttle(store.session().id, Some(RATE));
    let create = Txn::new().create(path("/narrow"), data.clone(), Lifetime::Session);

    let began = Instant::now();
    done(&*store, create).await;
    let created = began.elapsed();
    let twice = || store.read(Query::node(path("/narrow")).local());
    let (read, _again) = join(twice(), twice()).await;
    let both = began.elapsed().saturating_sub(created);

    assert_eq!(read.expect("answers").node().expect("it was made").data, data);
    assert!(created >= Duration::from_millis(400), "{created:?}");
    assert!(both >= Duration::from_millis(800), "{both:?}");
    links.throttle(store.session().id, None);
}

/// No request waits in the kernel until an earlier one is acknowledged.
pub(super) async fn two_requests_of_one_call_take_one_round_trip() {
    const TRIP: Duration = Duration::from_millis(60);
    for _ in 0..4 {
        let (links, store) = linked().await;
        let ticket = path("/trip/x-");
        let draw = || Txn::new().create_sequential(&ticket, "", Lifetime::Session);
        // The first create makes the directory.
        done(&*store, draw()).await;
        links.set(store.session().id, Link::Slow { there: TRIP / 2, back: TRIP / 2 });

        let (mut one, mut read, mut drawn) = (Duration::MAX, Duration::MAX, Duration::MAX);
        for _ in 0..12 {
            let began = Instant::now();
            store.read(Query::node(path("/trip")).local()).await.expect("answers");
            one = one.min(began.elapsed());
            let began = Instant::now();
            store.read(Query::node(path("/trip"))).await.expect("answers");
            read = read.min(began.elapsed());
            let began = Instant::now();
            let look = Query::children(path("/trip")).names_only();
            done(&*store, draw().look(look)).await;
            drawn = drawn.min(began.elapsed());
        }
        // On a slow machine one request is slow, too. Another round trip takes at least `TRIP`
        // more.
        assert!(one >= TRIP, "the link is not slow: one request took {one:?}");
        assert!(read < one + TRIP / 2, "one request took {one:?}, a latest read {read:?}");
        assert!(drawn < one + TRIP / 2, "one request took {one:?}, a ticket and a look {drawn:?}");
    }
}

/// The server of the next connection may lag behind an event of the last one: no
/// server prevents that.
pub(super) async fn the_first_local_read_of_a_connection_catches_up() {
    let (links, store) = linked().await;
    let (store, id) = (&*store, store.session().id);
    done(store, create("/caught-up", "")).await;
    let read = || store.read(Query::node(path("/caught-up")).local());
    let reads = async |first: usize| asks(&links, id, first, read()).await.0;
    let tree = Query::subtree(path("/caught-up/below"));
    let (_view, mut watch) = store.watch(tree).await.expect("answers");
    for _ in 0..2 {
        assert_eq!(reads(1).await, [Verb::Get]);
        links.lose_reply(id, Verb::Set);
        let set = Txn::new().set(path("/caught-up"), "", Expect::Any);
        assert!(store.commit(set).await.is_err(), "the connection broke");
        super::resyncs(&mut watch).await;

        assert_eq!(reads(2).await, [Verb::Sync, Verb::Get]);
        assert_eq!(reads(1).await, [Verb::Get]);
    }
}
