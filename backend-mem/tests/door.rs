//! The client of core over a store that loses, delays and holds calls.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::future::join_all;
use synod_core::client::{Client, ClientOptions};
use synod_core::clock::{self, sleep, timeout};
use synod_core::error::{Effect, ErrorKind};
use synod_core::path::Path;
use synod_core::random::Random;
use synod_core::retry::Retry;
use synod_core::store::{Backend, Expect, Kind, Lifetime, Query, SessionOptions, Status, Txn};
use synod_core::task::spawn;
use synod_mem::{MemBackend, Weather};
use synod_recipes::lock::UnfairLock;
use synod_testkit::cancel::cancel_at_every_await;
use synod_testkit::fault::{Actor, Choice, Cue, Faults, FaultyBackend, Fired, Plan, Site, Verb};
use synod_testkit::hesitant::HesitantBackend;

const LONG: Duration = Duration::from_secs(120);

fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

fn options(seed: u64) -> ClientOptions {
    ClientOptions::default().random(Random::seeded(seed))
}

/// Asserts that no node, session or watch is left in the store, and no task in the runtime.
async fn empty(backend: &MemBackend, what: &str) {
    let census = backend.census();
    assert_eq!((census.nodes, census.sessions, census.watches), (0, 0, 0), "{what}");
    tokio::task::yield_now().await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks, 0, "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_drawn_once_whatever_is_lost() {
    for site in [Site::ReplyLost, Site::RequestLost, Site::Unsent, Site::ReplySlow] {
        let backend = MemBackend::new();
        let plan = Plan::scripted([Cue::new(site).of(Verb::Create)]);
        let faulty = FaultyBackend::new(backend.clone(), plan.clone(), Actor::new(1));
        let client = Client::open(faulty, options(7)).await.expect("opens");

        let drawn = client.create_sequential(&path("/q/t-"), "mine", Lifetime::Session).await;

        let done = drawn.expect("reachable in the end").required().expect("free");
        let session = client.session().await.expect("open");
        assert_eq!(done.owner(), Some(session.info().id), "{site:?}");
        let line = client.children(&path("/q")).await.expect("reachable");
        assert_eq!(line.len(), 1, "{site:?}");
        assert_eq!((&line[0].path, line[0].sequence), (&done.path, done.sequence), "{site:?}");
        assert_eq!(plan.pending(), 0);
        client.close().await.expect("reachable");
        drop((client, session));
        empty(&backend, "closed").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_await_leaves_no_node() {
    let backend = MemBackend::new();
    let hesitant = HesitantBackend::new(backend.clone());
    let client = Client::open(hesitant, options(7)).await.expect("opens");
    for lifetime in [Lifetime::Session, Lifetime::Persistent] {
        let (prefix, plain) = (path("/q/t-"), path("/a"));
        let drops = cancel_at_every_await(async || {
            let drawn = client.create_sequential(&prefix, "", lifetime).await;
            let done = drawn.expect("reachable").required().expect("free");
            client.session().await.expect("open").remove(&done).await.expect("reachable");
        });
        assert!(drops.await > 2, "the store never pauses");
        let made = Cell::new(false);
        let drops = cancel_at_every_await(async || {
            let outcome = client.create(&plain, "", lifetime).await.expect("reachable");
            made.set(outcome.is_committed());
        });
        assert!(drops.await >= 2, "the store never pauses");
        sleep(LONG).await;
        // Only a node whose create was answered stays, and only as the last one, after earlier ones
        // are removed.
        assert_eq!(client.exists(&plain).await.expect("reachable"), made.get());
        assert_eq!(backend.census().nodes, usize::from(made.get()));
        let _gone = client.delete(&plain, Expect::Any).await.expect("reachable").ok();
    }
    client.close().await.expect("reachable");
    drop(client);
    empty(&backend, "closed").await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_after_any_weather() {
    let mut fired = 0;
    for seed in 0..100 {
        fired += weather(seed).await.len();
    }
    assert!(fired > 1_000, "fair weather: {fired}");
}

#[test]
fn a_seed_repeats_the_run() {
    let run = |seed| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().expect("builds");
        runtime.block_on(async {
            let started = clock::now();
            let fired = weather(seed).await;
            (format!("{fired:?}"), clock::elapsed(started))
        })
    };
    for seed in 0..25 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// Four workers on one client, with faults chosen by that seed.
async fn weather(seed: u64) -> Vec<Fired> {
    let backend = MemBackend::new();
    let faults = Faults::none()
        .with(Site::Unsent, 100)
        .with(Site::RequestLost, 100)
        .with(Site::ReplyLost, 100)
        .with(Site::AppliedLate, 100)
        .with(Site::RequestHeld, 20)
        .with(Site::ReplyHeld, 20)
        .with(Site::RequestSlow, 200)
        .with(Site::ReplySlow, 200)
        .swarm(seed);
    let plan = Plan::new(faults, Choice::seeded(seed));
    let exposed = FaultyBackend::new(backend.clone(), plan.clone(), Actor::new(1));
    let random = Random::seeded(seed);
    let client = Client::open(exposed, options(seed)).await.expect("opens in the end");

    join_all((0..4).map(|worker| work(client.clone(), random.fork(worker)))).await;
    // Nodes that were given up are removed while the client lives; closing does not wait for long.
    sleep(LONG * 10).await;
    // Closing may fail for either side; what is left then expires.
    let _closed = client.close().await.is_ok();
    drop(client);
    sleep(LONG * 10).await;

    empty(&backend, &format!("seed {seed}")).await;
    plan.fired()
}

/// Creates tickets, some of them for less than a moment, and releases them.
async fn work(client: Client, random: Random) {
    let prefix = path("/q/t-");
    for _ in 0..5 {
        let lifetime = if random.below(2) == 0 { Lifetime::Session } else { Lifetime::Persistent };
        let patience = Duration::from_millis(random.below(3_000));
        let Ok(session) = client.session().await else { return };
        let draw = session.create_sequential(&prefix, "", lifetime);
        let Ok(Ok(drawn)) = timeout(patience, draw).await else { continue };
        let done = drawn.required().expect("free");
        assert!(!session.is_lost());
        let id = done.path.name().split('-').nth(1).expect("prefix, id, rest");
        let mine = Query::children(path("/q")).starting_with(format!("t-{id}"));
        if let Ok(view) = session.read(mine).await {
            assert_eq!(view.nodes.len(), 1, "one create, one node");
        }
        if random.below(2) == 0 {
            session.remove_in_background(&done);
        } else {
            let _removed = session.remove(&done).await.is_ok();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_the_store_ends_is_followed_by_another() {
    let backend = MemBackend::new();
    let client = Client::open(backend.clone(), options(7)).await.expect("opens");
    let first = client.session().await.expect("open");
    let a = path("/a");
    client.create(&a, "", Lifetime::Session).await.expect("reachable").required().expect("free");
    let (_view, mut watch) = client.watch(Query::node(a.clone())).await.expect("reachable");

    backend.expire(first.info().id);
    first.lost().await;

    assert!(client.get(&a).await.expect("opened again").is_none());
    let told = timeout(LONG, watch.next()).await.expect("reported");
    assert!(told.is_some());
    let late = first.commit(Txn::new().create(a, "", Lifetime::Persistent)).await;
    assert_eq!(late.expect_err("lost").kind(), ErrorKind::SessionLost);
    drop(watch);
    client.close().await.expect("reachable");
    drop((first, client));
    empty(&backend, "closed").await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_bounds_what_is_sent() {
    let plan = Plan::new(Faults::none().with(Site::Unsent, 1_000), Choice::seeded(1));
    let backend = FaultyBackend::new(MemBackend::new(), plan.clone(), Actor::new(1));
    let twice = Retry::times(NonZeroU32::new(2).expect("not zero"));

    let error = Client::open(backend, options(7).session_retry(twice)).await.expect_err("no way");

    assert_eq!((error.kind(), plan.fired().len()), (ErrorKind::Unreachable, 3));
}

#[tokio::test(start_paused = true)]
async fn a_session_given_up_by_its_own_clock_is_closed_once_the_store_has_ended_it() {
    let backend = MemBackend::new();
    let store = backend.open(&SessionOptions::default()).await.expect("opens");
    let id = store.session().id;
    let txn = Txn::new().create(path("/mine"), "", Lifetime::Session);
    store.commit(txn).await.expect("reachable").ok().expect("free");
    backend.set_weather(id, Weather::CUT);
    let mut status = store.status();
    status.wait_for(Status::is_lost).await.expect("it is reported");

    let early = store.close().await.expect_err("its node is there");
    assert_eq!((early.kind(), early.effect()), (ErrorKind::Unreachable, Effect::Unknown));
    assert_eq!(backend.census().nodes, 1);

    sleep(LONG).await;
    // Time advances in a store in memory only while a session uses it.
    let other = backend.open(&SessionOptions::default()).await.expect("opens");
    store.close().await.expect("it is over");
    assert_eq!(backend.census().nodes, 0);
    other.close().await.expect("reachable");
}

/// A waiter for an unfair lock has its own waiting time, and reads before it tries.
#[tokio::test(start_paused = true)]
async fn few_of_many_waiters_try_an_unfair_lock_when_it_is_free() {
    const WAITERS: usize = 20;
    let backend = MemBackend::new();
    let clients = join_all((0..=WAITERS).map(|number| {
        let seed = u64::try_from(number).expect("few");
        Client::open(backend.clone(), options(seed))
    }));
    let mut clients = clients.await.into_iter().map(|client| client.expect("opens"));
    let holder = clients.next().expect("there is one");
    let held = UnfairLock::new(&holder, path("/lock")).lock().await.expect("free");
    // All are notified at the same moment, and none is answered before the others have sent their
    // requests.
    let slow = Some(Duration::from_micros(100));
    let waiters: Vec<_> = clients
        .map(|client| {
            let backend = backend.clone();
            spawn(async move {
                let session = client.session().await.expect("open").info().id;
                backend.set_weather(session, Weather { there: slow, back: slow });
                let guard =
                    UnfairLock::new(&client, path("/lock")).lock().await.expect("reachable");
                sleep(LONG).await;
                drop(guard);
            })
        })
        .collect();
    sleep(LONG).await;
    backend.keep_log();

    held.release().await.expect("reachable");
    sleep(Duration::from_secs(1)).await;

    let tickets = backend.log().into_iter().filter(|change| change.kind == Kind::Created).count();
    assert!((1..=WAITERS / 2).contains(&tickets), "{tickets} of {WAITERS} tried");
    drop(waiters);
}
