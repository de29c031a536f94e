//! The promises of a client.

use std::error::Error as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{self, sleep, timeout};
use futures_util::future::{join, join3};
use tokio::sync::watch;

use crate::client::{Client, ClientOptions, ClientWatch, ConnectionState, ValueWatch};
use crate::error::{Effect, Error, ErrorKind};
use crate::path::Path;
use crate::random::Random;
use crate::retry::{Backoff, Retry};
use crate::session::Session;
use crate::session::script::{Fault, Script, idle};
use crate::store::{End, Event, Expect, Lifetime, Query, SessionEnd, Status, Txn};

const LIMIT: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_secs(60);

pub(super) fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

pub(super) fn options() -> ClientOptions {
    let backoff = Backoff::default().jitter(0.0);
    ClientOptions::default()
        .timeout(LIMIT)
        .random(Random::seeded(7))
        .retry(Retry::Forever { backoff })
}

async fn opened() -> (Script, Client) {
    let script = Script::default();
    let client = Client::open(script.clone(), options()).await.expect("opens");
    (script, client)
}

/// Loses the current session, and opens the next one after a delay.
async fn lose(script: &Script, number: u64) {
    script.opens([Fault::SlowReply(MOMENT)]);
    script.lose(number);
    sleep(MOMENT / 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_value_is_kept_for_one_client_and_root_across_sessions() {
    #[derive(Default)]
    struct Counter(AtomicU64);
    let ((script, client), (_, other)) = (opened().await, opened().await);
    let count = |client: &Client| client.local::<Counter>().0.fetch_add(1, Ordering::Relaxed);

    assert_eq!((count(&client), count(&client.clone())), (0, 1));
    lose(&script, 1).await;
    client.session().await.expect("opened again");
    assert_eq!(count(&client), 2);
    let below = |root| client.namespace(&path(root)).expect("valid");
    assert_eq!((count(&below("/app")), count(&below("/app"))), (0, 1), "another root");
    assert_eq!(count(&other), 0, "another client");
}

/// Returns every state that is reported until the client is closed.
pub(super) async fn states_until_end(
    mut state: watch::Receiver<ConnectionState>,
) -> Vec<ConnectionState> {
    let mut states = vec![*state.borrow_and_update()];
    while states.last() != Some(&ConnectionState::Closed) && state.changed().await.is_ok() {
        states.push(*state.borrow_and_update());
    }
    states
}

#[tokio::test(start_paused = true)]
async fn states_are_reported_in_order_and_once() {
    use ConnectionState::{Closed, Connected, Lost, Reconnected, Suspended};

    let (script, client) = opened().await;
    let until = clock::now() + LIMIT;

    let events = async {
        for status in [
            Status::Live { until },
            Status::Suspended { until },
            Status::Suspended { until: until + MOMENT },
            Status::Live { until: until + MOMENT },
        ] {
            sleep(MOMENT).await;
            script.set_status(1, status);
        }
        sleep(MOMENT).await;
        lose(&script, 1).await;
        let next = client.session().await.expect("opened again");
        assert!(!next.is_lost());
        sleep(MOMENT).await;
        client.close().await.expect("reachable");
    };
    let (states, ()) = join(states_until_end(client.state()), events).await;

    assert_eq!(states, [Connected, Suspended, Reconnected, Lost, Reconnected, Closed]);
    assert_eq!(*client.state().borrow(), Closed, "a late receiver gets it");
}

#[tokio::test(start_paused = true)]
async fn the_state_ends_after_closed() {
    let (script, client) = opened().await;
    let mut early = client.state();
    lose(&script, 1).await;
    assert!(early.changed().await.is_ok());
    assert!(!client.state().has_changed().expect("it is open"), "what was before is not new");
    client.session().await.expect("opened again");
    let following = async {
        let mut states = Vec::new();
        while early.changed().await.is_ok() {
            states.push(*early.borrow_and_update());
        }
        states
    };

    let (states, closed) = join(timeout(LONG, following), client.close()).await;

    closed.expect("reachable");
    // A clone of the client still exists.
    assert_eq!(states.expect("it ends").last(), Some(&ConnectionState::Closed));
    let mut late = client.state();
    assert_eq!(*late.borrow(), ConnectionState::Closed);
    let changed = timeout(LONG, late.changed()).await.expect("it ends at once");
    assert!(changed.is_err(), "nothing comes after Closed");
}

#[tokio::test(start_paused = true)]
async fn the_next_session_is_opened_when_one_is_lost() {
    let (script, client) = opened().await;
    let first = client.session().await.expect("open");
    lose(&script, 1).await;
    assert_eq!(*client.state().borrow(), ConnectionState::Lost);

    let second = client.session().await.expect("opened again");

    assert!(first.is_lost() && !second.is_lost());
    assert_ne!(first.info().id, second.info().id);
    let old = first.commit(Txn::new().create(path("/a"), "", Lifetime::Session)).await;
    assert_eq!(old.expect_err("lost").kind(), ErrorKind::SessionLost);
    client
        .create(&path("/a"), "", Lifetime::Session)
        .await
        .expect("reachable")
        .required()
        .expect("free");
    assert_eq!(script.nodes(), ["/a"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_next_session_within_its_deadline() {
    let (script, client) = opened().await;
    script.put(&path("/a"), None);
    lose(&script, 1).await;
    assert!(client.get(&path("/a")).await.expect("opened again").is_some());

    script.opens([Fault::Refused, Fault::Silence]);
    script.lose(2);
    let started = clock::now();
    let error = client.get(&path("/a")).await.expect_err("no session");
    assert_eq!(clock::elapsed(started), LIMIT);
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert_eq!(error.source().expect("known").to_string(), "open failed: store unreachable");
}

#[tokio::test(start_paused = true)]
async fn only_what_did_nothing_goes_on_in_the_next_session() {
    let (script, client) = opened().await;
    script.commits([Fault::Refused, Fault::None, Fault::SlowReply(LIMIT)]);

    let prefix = path("/q/t-");
    let create = client.create_sequential(&prefix, "", Lifetime::Session);
    let (created, ()) = join(create, lose(&script, 1)).await;
    let done = created.expect("opened again").required().expect("free");
    let session = client.session().await.expect("open");
    assert_eq!(done.owner(), Some(session.info().id));
    assert_eq!(script.nodes().len(), 1);

    let plain = path("/a");
    let create = client.create(&plain, "", Lifetime::Persistent);
    let (created, ()) = join(create, lose(&script, 2)).await;
    let error = created.expect_err("the effect is unknown");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::SessionLost, Effect::Unknown));
    assert_eq!(script.count("create /a"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_session_is_tried_for_until_the_deadline() {
    let script = Script::default();
    script.opens([Fault::Refused, Fault::Refused]);
    Client::open(script.clone(), options()).await.expect("the third time");
    assert_eq!(script.count("open"), 3);

    for fault in [Fault::Refused, Fault::Silence] {
        let script = Script::default();
        script.opens([fault; 200]);
        let started = clock::now();
        let error = Client::open(script.clone(), options()).await.expect_err("no store");
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert_eq!(clock::elapsed(started), options().connect_timeout);
    }

    let script = Script::default();
    script.opens([Fault::Denied]);
    let error = Client::open(script.clone(), options()).await.expect_err("not let in");
    assert_eq!((error.kind(), script.count("open")), (ErrorKind::Denied, 1));
}

#[tokio::test(start_paused = true)]
async fn options_that_cannot_be_meant_are_refused() {
    let wrong = [
        options().timeout(Duration::ZERO),
        options().connect_timeout(Duration::ZERO),
        options().retry(Retry::until_elapsed(Duration::ZERO)),
        options().session_retry(Retry::until_elapsed(Duration::ZERO)),
        options().refused_timeout(Duration::ZERO),
        options().retry(Retry::Forever { backoff: Backoff::default().factor(f32::NAN) }),
    ];
    for options in wrong {
        let error = Client::open(Script::default(), options).await.expect_err("cannot be meant");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_not_a_storm() {
    let (script, client) = opened().await;
    script.opens(vec![Fault::Refused; 2_000]);
    script.lose(1);

    sleep(LONG * 60).await;

    // A doubling from 50 ms to 5 s, then one every 5 s.
    let attempts = script.count("open");
    assert!((700..740).contains(&attempts), "{attempts} attempts in an hour");
    client.close().await.expect("nothing to close");
    idle().await;
}

#[tokio::test(start_paused = true)]
async fn sessions_that_die_young_are_not_opened_in_a_storm() {
    let script = Script::default();
    let patient = options().timeout(LONG);
    let client = Client::open(script.clone(), patient).await.expect("opens");
    let started = clock::now();
    for number in 1..=50 {
        script.lose(number);
        let session = client.session().await.expect("opened again");
        assert_eq!(session.info().id.get(), number + 1);
    }
    assert!(clock::elapsed(started) > LONG, "{:?}", clock::elapsed(started));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_gives_up_closes_the_client() {
    for fault in [Fault::Refused, Fault::Denied] {
        let script = Script::default();
        let options = options().session_retry(Retry::Never);
        let client = Client::open(script.clone(), options).await.expect("opens");
        script.opens([fault]);
        script.lose(1);

        let error = client.get(&path("/a")).await.expect_err("no session any more");

        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Denied));
        let mut state = client.state();
        state.wait_for(|state| *state == ConnectionState::Closed).await.expect("it is reported");
        client.close().await.expect("nothing to close");
        idle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_later_session_is_tried_again_and_reported() {
    let (script, client) = opened().await;
    let mut state = client.state();
    script.opens([Fault::Denied, Fault::Refused, Fault::Denied, Fault::None]);
    script.lose(1);

    state.wait_for(|state| *state == ConnectionState::Denied).await.expect("it is reported");
    let next = client.session().await.expect("opened when the store accepts it again");

    assert_eq!((next.info().id.get(), *state.borrow()), (2, ConnectionState::Reconnected));
}

#[tokio::test(start_paused = true)]
async fn closing_ends_sessions_tasks_and_pending_calls() {
    let (script, client) = opened().await;
    let held = client.session().await.expect("open");
    client
        .create(&path("/a"), "", Lifetime::Session)
        .await
        .expect("reachable")
        .required()
        .expect("free");
    script.reads([Fault::Silence]);
    script.commits([Fault::Silence]);
    let (a, b) = (path("/a"), path("/b"));

    let (read, write, closed) =
        join3(client.get(&a), client.create(&b, "", Lifetime::Persistent), client.close()).await;

    closed.expect("reachable");
    assert_eq!(read.expect_err("closed").kind(), ErrorKind::SessionLost);
    assert_eq!(write.expect_err("closed").effect(), Effect::Unknown);
    assert_eq!((script.nodes().len(), script.count("close")), (0, 1));
    assert!(held.is_lost());
    idle().await;
    client.clone().close().await.expect("no error");
    let late = timeout(MOMENT, client.get(&a)).await.expect("at once");
    assert_eq!(late.expect_err("closed").kind(), ErrorKind::SessionLost);
}

#[tokio::test(start_paused = true)]
async fn only_an_outage_is_transient_and_only_until_the_client_is_closed() {
    let (_, client) = opened().await;
    let transient = [ErrorKind::Unreachable, ErrorKind::SessionLost];
    let lasting = [ErrorKind::Denied, ErrorKind::Invalid, ErrorKind::Corrupt, ErrorKind::Refused];
    let is_transient = |kind| client.is_transient(&Error::new(kind, "reading"));
    assert!(transient.into_iter().all(is_transient) && !lasting.into_iter().any(is_transient));

    client.close().await.expect("closes");
    assert!(!transient.into_iter().any(is_transient), "no call succeeds any more");
}

#[tokio::test(start_paused = true)]
async fn closing_between_sessions_ends_the_wait() {
    let (script, client) = opened().await;
    script.opens([Fault::Silence]);
    script.lose(1);
    let a = path("/a");

    let (read, closed) = join(client.get(&a), client.close()).await;

    assert_eq!(read.expect_err("closed").kind(), ErrorKind::SessionLost);
    closed.expect("nothing to close");
    idle().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_clone_closes_in_the_background() {
    let (script, client) = opened().await;
    let state = client.state();
    client
        .create(&path("/a"), "", Lifetime::Session)
        .await
        .expect("reachable")
        .required()
        .expect("free");
    let (_view, mut watch) = client.watch(Query::node(path("/a"))).await.expect("reachable");
    drop(client.clone());
    sleep(LONG).await;
    assert_eq!(script.nodes(), ["/a"]);

    drop(client);
    sleep(MOMENT).await;

    assert_eq!((script.nodes().len(), script.count("close")), (0, 1));
    assert_eq!(*state.borrow(), ConnectionState::Closed);
    assert!(matches!(watch.next().await, Some(Event::Ended(End::SessionOver(SessionEnd::Closed)))));
    assert!(watch.next().await.is_none());
    idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_held_stays_open_without_its_client() {
    let (script, client) = opened().await;
    let session = client.session().await.expect("open");
    drop(client);
    sleep(LONG).await;
    assert!(session.read(Query::node(path("/a"))).await.is_ok());
    assert_eq!(script.count("close"), 0);

    drop(session);
    sleep(MOMENT).await;

    assert_eq!(script.count("close"), 1);
    idle().await;
}

#[test]
fn dropping_needs_no_runtime() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("builds");
    let (client, session, watch) = runtime.block_on(async {
        let (_script, client) = opened().await;
        let session = client.session().await.expect("open");
        let (_view, watch) = client.watch(Query::node(path("/a"))).await.expect("reachable");
        (client, session, watch)
    });
    session.remove_incarnation_in_background(path("/a"), crate::store::Revision::new(1));
    drop(runtime);
    session.remove_incarnation_in_background(path("/a"), crate::store::Revision::new(1));
    drop((client, session, watch));
}

#[tokio::test(start_paused = true)]
async fn a_watch_outlives_its_session() {
    let (script, client) = opened().await;
    let (view, mut watch) = client.watch(Query::children(path("/d"))).await.expect("reachable");
    assert_eq!(view.nodes, []);
    script.change(&path("/d/a"));
    assert!(
        matches!(watch.next().await, Some(Event::Changed(change)) if change.path == path("/d/a"))
    );

    script.reads([Fault::Refused]);
    lose(&script, 1).await;
    assert!(matches!(watch.next().await, Some(Event::Resync)));
    script.change(&path("/d/b"));
    assert!(
        matches!(watch.next().await, Some(Event::Changed(change)) if change.path == path("/d/b"))
    );
    assert_eq!(script.watches(), 1);

    client.close().await.expect("reachable");
    assert!(matches!(watch.next().await, Some(Event::Ended(End::SessionOver(SessionEnd::Closed)))));
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_it_cannot_go_on() {
    let (script, client) = opened().await;
    let (_view, mut watch) = client.watch(Query::node(path("/a"))).await.expect("reachable");
    script.reads([Fault::Denied]);

    lose(&script, 1).await;

    assert!(matches!(watch.next().await, Some(Event::Ended(End::Failed(_)))));
    assert!(watch.next().await.is_none());
    let (_view, watch) = client.watch(Query::node(path("/a"))).await.expect("reachable");
    drop(watch);
    assert_eq!(script.watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn values_are_written_and_read_as_json() {
    let (_script, client) = opened().await;
    let at = path("/limit");
    assert_eq!(client.get_value::<u32>(&at).await.expect("reachable"), None);

    let created = client.create_value(&at, &7_u32, Lifetime::Persistent).await.expect("reachable");
    created.required().expect("free");
    let seven = client.get_value::<u32>(&at).await.expect("a number").expect("there");
    let set = client.set_value(&at, "nine", seven.unchanged()).await.expect("reachable");
    set.required().expect("unchanged");
    let second = client.set_value(&at, &8_u32, seven.unchanged()).await.expect("reachable");

    assert_eq!(seven.value, 7);
    assert!(second.rejected().is_some());
    let error = client.get_value::<u32>(&at).await.expect_err("a text");
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&at)));
}

#[tokio::test(start_paused = true)]
async fn plain_verbs_do_what_they_say() {
    let (script, client) = opened().await;
    let (a, dir) = (path("/d/a"), path("/d"));
    let created = client.create(&a, "1", Lifetime::Persistent).await.expect("reachable");
    let version = created.required().expect("free").stat.expect("reported").version;
    let drawn = client.create_sequential(&path("/d/s-"), "", Lifetime::Session).await;
    let drawn = drawn.expect("reachable").required().expect("free");

    assert!(client.exists(&a).await.expect("reachable"));
    assert!(!client.exists(&dir).await.expect("reachable"), "a container is no node");
    let children = client.children(&dir).await.expect("reachable");
    assert_eq!(children.iter().map(|node| &node.path).collect::<Vec<_>>(), [&a, &drawn.path]);
    let set = client.set(&a, "2", Expect::Version(version)).await.expect("reachable");
    set.required().expect("unchanged");
    assert_eq!(client.get(&a).await.expect("reachable").expect("there").data, "2");
    script.hide_from_local_reads();
    assert_eq!(
        client.read(Query::node(a.clone()).local()).await.expect("reachable").into_node(),
        None,
        "it may lag"
    );
    let stale = client.delete(&a, Expect::Version(version)).await.expect("reachable");
    assert!(stale.rejected().is_some());
    client.delete(&a, Expect::Any).await.expect("reachable").required().expect("there");
    assert_eq!(client.get(&a).await.expect("reachable"), None);
    let long = path(&format!("/{}", "n".repeat(230)));
    let error = client.create_sequential(&long, "", Lifetime::Session).await;
    assert_eq!(error.expect_err("too long").kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_a_client_of_its_own_paths() {
    let (script, client) = opened().await;
    let nested =
        client.namespace(&path("/app")).expect("short").namespace(&path("/x")).expect("short");
    script.commits([Fault::ReplyLost]);
    let drawn = nested.create_sequential(&path("/q/t-"), "", Lifetime::Session).await;
    let drawn = drawn.expect("reachable").required().expect("free");

    assert_eq!(drawn.path.parent(), Some(path("/q")));
    let session = nested.session().await.expect("open");
    assert_eq!(drawn.owner(), Some(session.info().id));
    assert_eq!(script.nodes(), [format!("/app/x{}", drawn.path)]);
    let children = nested.children(&path("/q")).await.expect("reachable");
    assert_eq!(children[0].path, drawn.path);

    let (_view, mut watch) = nested.watch(Query::children(path("/q"))).await.expect("reachable");
    lose(&script, 1).await;
    assert!(matches!(watch.next().await, Some(Event::Resync)));
    script.change(&path("/app/x/q/a"));
    assert!(
        matches!(watch.next().await, Some(Event::Changed(change)) if change.path == path("/q/a"))
    );

    let session = nested.session().await.expect("opened again");
    let drawn = session.create_sequential(&path("/q/t-"), "", Lifetime::Session).await;
    session.remove(&drawn.expect("reachable").required().expect("free")).await.expect("reachable");
    assert_eq!(script.nodes().len(), 0);
    drop(session);
    drop(client);
    sleep(LONG).await;
    assert_eq!(*nested.state().borrow(), ConnectionState::Reconnected, "a view keeps the client");
}

#[test]
fn everything_can_be_moved_to_another_task() {
    fn sendable(_: &impl Send) {}
    fn shared<T: Send + Sync + 'static>() {}
    fn moved<T: Send + Unpin + 'static>() {}
    fn compiles(_: impl Fn(Client, Session, Path)) {}
    fn follows(_: impl Fn(ValueWatch<String>)) {}
    shared::<Client>();
    shared::<Session>();
    moved::<ClientWatch>();
    moved::<ValueWatch<String>>();
    follows(|mut value| sendable(&value.changed()));
    compiles(|client, session, at| {
        sendable(&client.get(&at));
        sendable(&client.create(&at, "", Lifetime::Session));
        sendable(&client.create_sequential(&at, "", Lifetime::Session));
        sendable(&client.watch(Query::node(at.clone())));
        sendable(&client.set_value(&at, "", Expect::Any));
        sendable(&client.get_value::<String>(&at));
        sendable(&client.put(&at, ""));
        sendable(&client.put_value(&at, ""));
        sendable(&client.follow_value::<String>(&at));
        sendable(&client.session());
        sendable(&client.close());
        sendable(&session.create_sequential(&at, "", Lifetime::Session));
        sendable(&session.commit(Txn::new()));
        sendable(&session.lost());
        sendable(&Client::open(Script::default(), options()));
    });
}
