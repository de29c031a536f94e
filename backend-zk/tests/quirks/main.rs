//! Behaviour of ZooKeeper's servers, and how the backend handles it.

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use libtest_mimic::{Arguments, Failed, Trial};
use synod_conformance::harness::Link;
use synod_core::client::{Client, ClientOptions};
use synod_core::error::{Effect, ErrorKind};
use synod_core::path::Path;
use synod_core::store::{
    Backend as _, Event, Expect, Feature, Kind, Lifetime, Query, RejectReason, SessionOptions,
    Status, Store, Txn, Watch,
};
use synod_servers::links::Links;
use synod_servers::required;
use synod_servers::verb::Verb;
use synod_servers::zookeeper::{Ensemble, TICK};
use synod_testkit::limit::limited;
use synod_zk::{Access, ZkBackend, ZkOptions};
use tokio::time::{Instant, sleep, timeout};

/// One server, or as many as requested.
static SERVER: LazyLock<Result<Ensemble, String>> = LazyLock::new(|| {
    let size = std::env::var("SYNOD_SERVERS").ok().and_then(|size| size.parse().ok());
    Ensemble::start(size.unwrap_or(1))
});

/// The time limit of a quirk, for slow machines. A hanging quirk ends together with the process
/// that it waits for.
const LIMIT: Duration = Duration::from_secs(10 * 60);
const PATIENCE: Duration = Duration::from_secs(20);
/// Long, so that no session ends on a busy machine.
const TTL: Duration = Duration::from_secs(20);

mod access;
mod advice;
mod done;
mod empty_containers;
mod judged;
mod large;
mod many;
mod moments;
#[cfg(feature = "sasl")]
mod sasl;
#[cfg(feature = "tls")]
mod secure;
mod sole_contender;
mod standby;
mod threads;
mod trips;
mod wide;

use access::{
    a_client_has_the_permissions_of_all_its_identities, a_list_is_set_though_the_answer_is_lost,
    a_lock_needs_three_permissions_in_its_directory, new_nodes_have_the_list_of_the_nearest_path,
    only_its_creator_touches_a_node, the_list_of_a_node_is_read_and_replaced,
    the_lists_of_a_tree_are_replaced,
};
use advice::{
    a_missing_majority_is_reported, a_server_that_only_lets_read_is_named_as_such,
    a_server_with_a_full_disk_acknowledges_nothing, a_wrong_password_is_reported,
    an_unreachable_server_is_reported_with_the_reason,
};
use done::{a_commit_whose_look_is_refused_is_done, a_counter_that_is_at_its_end_gives_no_ticket};
use empty_containers::{
    a_check_for_absence_causes_no_event, a_late_removal_of_a_container_removes_no_node,
    a_node_that_replaces_a_container_is_reported_as_created_once,
    a_node_without_data_that_others_made_is_a_node,
    an_empty_container_gives_way_to_all_of_a_transaction,
    containers_are_created_and_removed_without_events,
    empty_containers_do_not_keep_a_node_from_being_deleted,
    of_many_creates_over_an_empty_container_one_wins,
    the_name_of_a_sequential_child_counts_every_creation,
    what_replaces_a_container_is_not_collected_for_it,
};
use judged::{empty_containers_change_no_judgement, transactions_are_judged_as_the_floor_judges};
use large::a_tree_that_fits_into_no_request_is_of_one_moment;
use sole_contender::{
    a_directory_that_was_made_again_is_looked_at, a_session_that_is_alone_locks_with_one_request,
    a_session_that_is_alone_sends_no_listing, a_session_that_may_not_be_alone_sends_a_listing,
    a_session_that_takes_turns_sends_a_listing,
    a_watch_for_good_and_one_for_the_lock_live_on_one_path,
    locks_exclude_while_their_directories_are_made_again,
};

use many::ten_thousand_nodes_and_watches_outlive_their_server;
use moments::{
    a_view_is_of_one_moment_while_all_of_it_is_written,
    a_view_of_more_than_one_request_is_of_one_moment_too,
};
use standby::a_follower_that_stands_still_or_is_cut_off_ends_no_session;
use trips::{
    a_call_asks_for_all_it_needs_at_once, a_narrow_link_takes_its_time,
    a_release_notifies_one_client, a_round_of_a_double_barrier_takes_few_requests,
    a_waiting_candidate_sends_few_requests, an_idle_session_gives_signs_of_life_only,
    one_event_takes_one_request, recipes_ask_for_no_more_than_they_need,
    the_first_local_read_of_a_connection_catches_up, two_requests_of_one_call_take_one_round_trip,
};
use wide::{
    a_parent_that_the_transaction_makes_itself_is_made_once,
    all_empty_containers_give_way_to_one_transaction,
    all_parents_that_a_transaction_misses_are_made_at_once,
    what_is_absent_with_all_above_it_is_seen_to_be_at_once,
};

type Quirk = (&'static str, fn() -> Pin<Box<dyn Future<Output = ()>>>);

macro_rules! quirks {
    ($($name:ident,)*) => {
        const QUIRKS: &[Quirk] = &[$((stringify!($name), || Box::pin($name())),)*];
    };
}

quirks![
    watches_of_all_kinds_live_on_one_path,
    watches_beyond_the_limit_still_deliver_events,
    a_create_among_others_returns_a_true_stat_or_none,
    a_create_whose_reply_is_lost_is_found_again,
    creates_whose_caller_is_gone_are_taken_back,
    a_set_whose_reply_is_lost_has_an_unknown_effect,
    a_watch_goes_on_after_a_reconnect,
    two_requests_of_one_call_take_one_round_trip,
    a_call_asks_for_all_it_needs_at_once,
    the_first_local_read_of_a_connection_catches_up,
    one_event_takes_one_request,
    recipes_ask_for_no_more_than_they_need,
    a_round_of_a_double_barrier_takes_few_requests,
    a_waiting_candidate_sends_few_requests,
    a_release_notifies_one_client,
    an_idle_session_gives_signs_of_life_only,
    a_narrow_link_takes_its_time,
    a_session_that_is_alone_sends_no_listing,
    a_session_that_is_alone_locks_with_one_request,
    a_session_that_may_not_be_alone_sends_a_listing,
    a_session_that_takes_turns_sends_a_listing,
    a_directory_that_was_made_again_is_looked_at,
    a_watch_for_good_and_one_for_the_lock_live_on_one_path,
    locks_exclude_while_their_directories_are_made_again,
    empty_containers_do_not_keep_a_node_from_being_deleted,
    an_empty_container_gives_way_to_all_of_a_transaction,
    of_many_creates_over_an_empty_container_one_wins,
    all_parents_that_a_transaction_misses_are_made_at_once,
    a_parent_that_the_transaction_makes_itself_is_made_once,
    what_is_absent_with_all_above_it_is_seen_to_be_at_once,
    all_empty_containers_give_way_to_one_transaction,
    a_late_removal_of_a_container_removes_no_node,
    the_name_of_a_sequential_child_counts_every_creation,
    what_replaces_a_container_is_not_collected_for_it,
    a_node_that_replaces_a_container_is_reported_as_created_once,
    containers_are_created_and_removed_without_events,
    a_node_without_data_that_others_made_is_a_node,
    a_check_for_absence_causes_no_event,
    a_commit_whose_look_is_refused_is_done,
    a_counter_that_is_at_its_end_gives_no_ticket,
    what_helpers_make_too_large_is_refused,
    only_its_creator_touches_a_node,
    new_nodes_have_the_list_of_the_nearest_path,
    a_lock_needs_three_permissions_in_its_directory,
    the_list_of_a_node_is_read_and_replaced,
    the_lists_of_a_tree_are_replaced,
    a_list_is_set_though_the_answer_is_lost,
    a_client_has_the_permissions_of_all_its_identities,
    a_server_without_extended_types_keeps_no_ttl_nodes,
    a_view_is_of_one_moment_while_all_of_it_is_written,
    a_view_of_more_than_one_request_is_of_one_moment_too,
    a_tree_that_fits_into_no_request_is_of_one_moment,
    transactions_are_judged_as_the_floor_judges,
    empty_containers_change_no_judgement,
    an_unreachable_server_is_reported_with_the_reason,
    a_wrong_password_is_reported,
    a_missing_majority_is_reported,
    a_server_that_only_lets_read_is_named_as_such,
    a_server_with_a_full_disk_acknowledges_nothing,
    a_session_outlives_its_server,
    ten_thousand_nodes_and_watches_outlive_their_server,
    a_session_outlives_the_leader,
    a_follower_that_stands_still_or_is_cut_off_ends_no_session,
];

#[cfg(not(feature = "tls"))]
const SECURE: &[Quirk] = &[];
#[cfg(feature = "tls")]
const SECURE: &[Quirk] = &[
    ("only_a_server_that_is_vouched_for_is_talked_to", || {
        Box::pin(secure::only_a_server_that_is_vouched_for_is_talked_to())
    }),
    ("a_certificate_is_an_identity", || Box::pin(secure::a_certificate_is_an_identity())),
    ("a_session_outlives_its_certificates", || {
        Box::pin(secure::a_session_outlives_its_certificates())
    }),
];

#[cfg(not(feature = "sasl"))]
const SASL: &[Quirk] = &[];
#[cfg(feature = "sasl")]
const SASL: &[Quirk] = &[("a_client_that_logs_in_by_sasl_has_that_identity", || {
    Box::pin(sasl::a_client_that_logs_in_by_sasl_has_that_identity())
})];

fn main() -> ExitCode {
    let missing = SERVER.as_ref().err();
    if let (true, Some(why)) = (required(), missing) {
        panic!("{why}");
    }
    let trials = QUIRKS.iter().chain(SECURE).chain(SASL).map(|(name, quirk)| {
        let trial = Trial::test(*name, move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            limited(LIMIT, move || runtime.block_on(quirk())).map_err(Failed::from)
        });
        (trial, missing)
    });
    let on_threads = threads::QUIRKS.iter().map(|quirk| {
        let name = format!("threads::{}", quirk.0);
        (Trial::test(name, move || limited(LIMIT, move || threads::run(*quirk))?), missing)
    });
    let trials = trials.chain(on_threads).map(|(trial, missing)| match missing {
        Some(why) => trial.with_ignored_flag(true).with_kind(format!("cannot run: {why}")),
        None => trial,
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn server() -> &'static Ensemble {
    SERVER.as_ref().expect("the list does not run without it")
}

fn options(hosts: impl IntoIterator<Item = std::net::SocketAddr>) -> ZkOptions {
    ZkOptions::new(hosts.into_iter().map(|host| host.to_string())).tick(TICK)
}

/// A server that does not collect empty containers.
fn patient() -> Ensemble {
    let patient = Ensemble::start_with(1, &["-Dznode.container.checkIntervalMs=600000"], &[]);
    patient.expect("the other one started, too")
}

async fn open(options: ZkOptions) -> Box<dyn Store> {
    let backend = ZkBackend::new(options).expect("valid");
    backend.open(&SessionOptions::new(TTL)).await.expect("a server runs")
}

async fn session() -> Box<dyn Store> {
    session_with(server()).await
}

async fn session_with(server: &Ensemble) -> Box<dyn Store> {
    open(options(server.addresses()).access(Access::Open)).await
}

/// A session with a link that can be disturbed.
async fn linked() -> (Links, Box<dyn Store>) {
    linked_with(server()).await
}

async fn linked_with(server: &Ensemble) -> (Links, Box<dyn Store>) {
    let links = Links::start(&server.addresses()).expect("there are ports");
    let store = open(options(links.addresses().to_vec()).access(Access::Open)).await;
    (links, store)
}

fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

fn create(at: &str, data: &'static str) -> Txn {
    Txn::new().create(path(at), data, Lifetime::Persistent)
}

async fn done(store: &dyn Store, txn: Txn) -> synod_core::store::Commit {
    let outcome = store.commit(txn).await.expect("the server answers");
    outcome.required().expect("nothing stands against it")
}

async fn refused(store: &dyn Store, txn: Txn) -> RejectReason {
    let outcome = store.commit(txn).await.expect("the server answers");
    outcome.rejected().expect("something stands against it").reason
}

async fn there(store: &dyn Store, at: &str) -> bool {
    store.read(Query::node(path(at))).await.expect("the server answers").node().is_some()
}

async fn names(store: &dyn Store, at: &str) -> Vec<String> {
    let view = store.read(Query::children(path(at)).names_only()).await.expect("answers");
    view.nodes.iter().map(|node| node.path.name().to_owned()).collect()
}

async fn resyncs(watch: &mut Watch) {
    loop {
        let event = timeout(PATIENCE, watch.next()).await.expect("in time");
        if matches!(event.expect("it goes on"), Event::Resync) {
            return;
        }
    }
}

async fn hears(watch: &mut Watch, at: &str, kind: Kind) {
    loop {
        let event = timeout(PATIENCE, watch.next()).await.expect("in time");
        match event.expect("it goes on") {
            Event::Changed(change) if change.path.as_str() == at && change.kind == kind => return,
            Event::Changed(_) | Event::Resync => {}
            Event::Ended(end) => panic!("{end:?}"),
        }
    }
}

/// <https://issues.apache.org/jira/browse/ZOOKEEPER-4466>
async fn watches_of_all_kinds_live_on_one_path() {
    let store = session().await;
    hear_of_all_kinds(&*store, "/kinds").await;
}

/// A server takes a million bytes in one message. On the next connection, watches for one event are
/// set again by several.
async fn watches_beyond_the_limit_still_deliver_events() {
    const MANY: usize = 1_600;
    const BUNCH: usize = 40;

    let (links, store) = linked().await;
    let name = |number: usize| format!("/beyond/{}{number:04}", "x".repeat(200));
    for bunch in 0..MANY / BUNCH {
        let all = (0..BUNCH).map(|number| path(&name(bunch * BUNCH + number)));
        let txn = all.fold(Txn::new(), |txn, node| txn.create(node, "", Lifetime::Persistent));
        done(&*store, txn).await;
    }
    let observed = (0..MANY).map(|number| {
        let query = Query::node(path(&name(number)));
        store.watch(if number % 2 == 0 { query.once() } else { query })
    });
    let watches = futures_util::future::join_all(observed).await;
    assert_eq!(server().watches(&[store.session().id]), MANY);

    links.lose_reply(store.session().id, Verb::Set);
    let _lost = store.commit(Txn::new().set(path(&name(0)), "", Expect::Any)).await.is_err();
    let other = session().await;
    // Of the first message and of the last.
    for number in [2, MANY - 2] {
        done(&*other, Txn::new().delete(path(&name(number)), Expect::Any)).await;
    }
    let mut watches: Vec<Watch> =
        watches.into_iter().map(|watched| watched.expect("answers").1).collect();
    for number in [2, MANY - 2] {
        let event = timeout(PATIENCE, watches[number].next()).await.expect("in time");
        assert!(matches!(event, Some(Event::Changed(_) | Event::Resync)), "{number}: {event:?}");
    }
    resyncs(&mut watches[MANY - 1]).await;
    done(&*other, Txn::new().delete(path(&name(MANY - 1)), Expect::Any)).await;
    hears(&mut watches[MANY - 1], &name(MANY - 1), Kind::Deleted).await;

    drop(watches);
    let end = Instant::now() + PATIENCE;
    while server().watches(&[store.session().id]) > 0 {
        assert!(Instant::now() < end, "watches are left");
        sleep(TICK).await;
    }
}

async fn hear_of_all_kinds(store: &dyn Store, top: &str) {
    let (node, below) = (path(top), format!("{top}/a"));
    let (_view, mut of_node) = store.watch(Query::node(&node)).await.expect("answers");
    let (_view, mut of_names) =
        store.watch(Query::children(&node).names_only()).await.expect("answers");
    let (_view, of_data) = store.watch(Query::children(&node)).await.expect("answers");
    let (_view, of_tree) = store.watch(Query::subtree(&node)).await.expect("answers");
    drop(of_data);

    done(store, create(top, "")).await;
    hears(&mut of_node, top, Kind::Created).await;
    drop(of_tree);
    done(store, Txn::new().create(path(&below), "", Lifetime::Persistent)).await;
    hears(&mut of_names, &below, Kind::Created).await;
    done(store, Txn::new().set(&node, "x", Expect::Any)).await;
    hears(&mut of_node, top, Kind::Updated).await;
}

/// <https://issues.apache.org/jira/browse/ZOOKEEPER-4026>
async fn a_create_among_others_returns_a_true_stat_or_none() {
    let store = session().await;
    let commit =
        done(&*store, create("/among/a", "").create(path("/among/b"), "", Lifetime::Session)).await;
    let version = server().version().expect("it runs");
    for done in commit.results {
        let view = store.read(Query::node(&done.path)).await.expect("answers");
        let stat = view.node().expect("it was made").stat;
        assert!(
            done.stat == stat || done.stat.is_none() && version.starts_with("3.8."),
            "{done:?}"
        );
    }
}

/// The nodes of several creates are identified by their revision, which the stat of one ephemeral
/// node has.
async fn creates_whose_caller_is_gone_are_taken_back() {
    let links = Links::start(&server().addresses()).expect("there are ports");
    let backend = ZkBackend::new(options(links.addresses().to_vec()).access(Access::Open));
    let client = ClientOptions::default().session(SessionOptions::new(TTL));
    let client = Client::open(backend.expect("valid"), client).await.expect("a server runs");
    let session = client.session().await.expect("it lives").info().id;
    let txn = || create("/gone/kept", "").create(path("/gone/own"), "", Lifetime::Session);
    // The directory exists.
    let first = Txn::new().create(path("/gone/first"), "", Lifetime::Persistent);
    let _done = client.commit(first).await.expect("answers").required().expect("it is new");

    let _before = links.take_requests(session);
    links.set(session, Link::Deaf);
    {
        let commit = std::pin::pin!(client.commit(txn()));
        let sent = std::pin::pin!(timeout(PATIENCE, links.asks(session, 1)));
        match futures_util::future::select(commit, sent).await {
            futures_util::future::Either::Left(_) => panic!("it ended without an answer"),
            futures_util::future::Either::Right((sent, _)) => sent.expect("in time"),
        }
    }
    let other = session_with(server()).await;
    let end = Instant::now() + PATIENCE;
    while !there(&*other, "/gone/own").await {
        assert!(Instant::now() < end, "it was not made");
        sleep(TICK / 10).await;
    }
    links.set(session, Link::Open);

    while there(&*other, "/gone/own").await || there(&*other, "/gone/kept").await {
        assert!(Instant::now() < end, "it is left");
        sleep(TICK / 10).await;
    }
    assert!(there(&*other, "/gone/first").await);
    client.close().await.expect("answers");
}

async fn a_create_whose_reply_is_lost_is_found_again() {
    let (links, store) = linked().await;
    let draw = || Txn::new().create_sequential(path("/lost/id-"), "", Lifetime::Session);
    done(&*store, Txn::new().create_sequential(path("/lost/other-"), "", Lifetime::Session)).await;

    links.lose_reply(store.session().id, Verb::Create);
    let error = store.commit(draw()).await.expect_err("the reply is lost");

    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown));
    let view = store.read(Query::children(path("/lost")).starting_with("id-")).await;
    let found = view.expect("the session goes on").nodes;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].stat.and_then(|stat| stat.owner), Some(store.session().id));
}

async fn a_set_whose_reply_is_lost_has_an_unknown_effect() {
    let (links, store) = linked().await;
    done(&*store, create("/lost-set", "old")).await;

    links.lose_reply(store.session().id, Verb::Set);
    let set = Txn::new().set(path("/lost-set"), "new", Expect::Any);
    let error = store.commit(set).await.expect_err("the reply is lost");

    assert_eq!(error.effect(), Effect::Unknown);
    let view = store.read(Query::node(path("/lost-set"))).await.expect("the session goes on");
    assert_eq!(view.node().expect("it exists").data, "new");
}

/// No server keeps a watch for the next connection.
async fn a_watch_goes_on_after_a_reconnect() {
    let (links, store) = linked().await;
    done(&*store, create("/again", "")).await;
    let (_view, mut watch) = store.watch(Query::subtree(path("/again"))).await.expect("answers");

    for _ in 0..3 {
        links.lose_reply(store.session().id, Verb::Set);
        let _lost = store.commit(Txn::new().set(path("/again"), "", Expect::Any)).await.is_err();
        resyncs(&mut watch).await;
    }

    let other = session().await;
    done(&*other, create("/again/x", "")).await;
    hears(&mut watch, "/again/x", Kind::Created).await;
}

async fn what_helpers_make_too_large_is_refused() {
    let store = session().await;
    let limits = store.session().limits.clone();
    let deep = format!("/large/{}", ["x"; 900].join("/"));
    let full = Bytes::from(vec![0; limits.request - 8_000]);
    let txn = Txn::new().create(path("/large-data"), "", Lifetime::Persistent);
    let txn = txn.create(
        path("/large-full"),
        full.slice(..limits.data.min(full.len())),
        Lifetime::Persistent,
    );
    let txn = txn.create(path(&deep), "", Lifetime::Persistent);

    let error = store.commit(txn).await.expect_err("its containers alone are too large");

    assert_eq!((error.kind(), error.effect()), (ErrorKind::TooLarge, Effect::None), "{error}");
    assert!(matches!(*store.status().borrow(), Status::Live { .. }));
    assert!(!there(&*store, "/large-data").await);
}

async fn a_server_without_extended_types_keeps_no_ttl_nodes() {
    let plain = Ensemble::start_with(1, &["-Dzookeeper.extendedTypesEnabled=false"], &[]);
    let plain = plain.expect("the other one started, too");
    let store = open(options(plain.addresses()).access(Access::Open)).await;

    assert_eq!(store.session().limits.missing_features, [Feature::TtlNodes]);
    let ttl = Lifetime::Ttl(Duration::from_secs(60));
    let error =
        store.commit(Txn::new().create(path("/ttl"), "", ttl)).await.expect_err("it cannot");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    advice::says(&error, "zookeeper.extendedTypesEnabled=true");
}

async fn is_live(store: &dyn Store) {
    let mut status = store.status();
    let live = status.wait_for(|status| !matches!(status, Status::Suspended { .. }));
    let status = *timeout(PATIENCE, live).await.expect("in time").expect("it is held");
    assert!(matches!(status, Status::Live { .. }), "{status:?}");
}

async fn a_session_outlives_its_server() {
    let mut own = Ensemble::start(1).expect("the other one started, too");
    let store = ZkBackend::new(options(own.addresses()).access(Access::Open)).expect("valid");
    let store = store.open(&SessionOptions::new(Duration::from_secs(20))).await.expect("it runs");
    done(&*store, Txn::new().create(path("/e"), "", Lifetime::Session)).await;

    own.kill(0).expect("it runs");
    let mut status = store.status();
    let suspended = status.wait_for(|status| matches!(status, Status::Suspended { .. }));
    timeout(PATIENCE, suspended).await.expect("in time").expect("it is held");
    own.restart(0).expect("it starts again");

    is_live(&*store).await;
    assert!(there(&*store, "/e").await);
}

async fn a_session_outlives_the_leader() {
    let mut three = Ensemble::start(3).expect("the other one started, too");
    let backend = ZkBackend::new(options(three.addresses()).access(Access::Open)).expect("valid");
    let open = async || {
        let session = backend.open(&SessionOptions::new(Duration::from_secs(20))).await;
        Arc::<dyn Store>::from(session.expect("they run"))
    };
    let stores = [open().await, open().await, open().await];
    for store in &stores {
        let own = path(&format!("/e/{}", store.session().id));
        done(&**store, Txn::new().create(own, "", Lifetime::Session)).await;
    }

    let leader = three.leader().expect("they agreed");
    three.kill(leader).expect("it runs");

    for store in &stores {
        // A read waits for the next connection; a read in flight is lost with the previous one.
        let read = async {
            loop {
                match store.read(Query::children(path("/e")).names_only()).await {
                    Ok(view) => return view,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}"),
                }
                sleep(TICK).await;
            }
        };
        let view = timeout(PATIENCE, read).await.expect("in time");
        assert_eq!(view.nodes.len(), 3);
    }
    assert!(three.leader().is_some_and(|next| next != leader));
}
