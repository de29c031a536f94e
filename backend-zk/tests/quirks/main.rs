//! What ZooKeeper's servers and their client do of their own, and what becomes of it here.

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use libtest_mimic::{Arguments, Trial};
use synod_conformance::harness::Link;
use synod_conformance::server::links::{Links, Verb};
use synod_conformance::server::required;
use synod_conformance::server::zookeeper::{Ensemble, TICK};
use synod_core::error::{Effect, ErrorKind};
use synod_core::path::Path;
use synod_core::store::{
    Backend as _, Event, Expect, Gap, Kind, Lifetime, Query, SessionOptions, Status, Store, Txn,
    Watch, Why,
};
use synod_zk::{Access, ZkBackend, ZkOptions};
use tokio::time::{Instant, sleep, timeout};

static SERVER: LazyLock<Result<Ensemble, String>> = LazyLock::new(|| Ensemble::start(1));

const PATIENCE: Duration = Duration::from_secs(20);
/// Long: a machine that is busy with other things shall end no session.
const TTL: Duration = Duration::from_secs(20);

mod judged;
#[cfg(feature = "tls")]
mod secure;

use judged::transactions_are_judged_as_the_floor_judges;

type Quirk = (&'static str, fn() -> Pin<Box<dyn Future<Output = ()>>>);

macro_rules! quirks {
    ($($name:ident,)*) => {
        const QUIRKS: &[Quirk] = &[$((stringify!($name), || Box::pin($name())),)*];
    };
}

quirks![
    watches_of_all_kinds_live_on_one_path,
    a_create_among_others_tells_a_true_stat_or_none,
    a_create_whose_reply_is_lost_is_found_again,
    a_set_whose_reply_is_lost_has_an_unknown_effect,
    a_watch_goes_on_after_a_reconnect,
    two_requests_of_one_call_take_one_round_trip,
    empty_containers_do_not_keep_a_node_from_being_deleted,
    of_many_who_replace_an_empty_container_one_wins,
    who_is_late_to_remove_a_container_removes_no_node,
    the_name_of_a_sequential_child_tells_of_every_birth,
    containers_come_and_go_untold,
    a_node_without_data_that_others_made_is_a_node,
    what_helpers_make_too_large_is_refused,
    only_its_creator_touches_a_node,
    a_server_without_extended_types_keeps_no_ttl_nodes,
    transactions_are_judged_as_the_floor_judges,
    a_session_outlives_its_server,
    a_session_outlives_the_leader,
];

#[cfg(not(feature = "tls"))]
const SECURE: &[Quirk] = &[];
#[cfg(feature = "tls")]
const SECURE: &[Quirk] = &[("only_a_server_that_is_vouched_for_is_talked_to", || {
    Box::pin(secure::only_a_server_that_is_vouched_for_is_talked_to())
})];

fn main() -> ExitCode {
    let missing = SERVER.as_ref().err();
    if let (true, Some(why)) = (required(), missing) {
        panic!("{why}");
    }
    let trials = QUIRKS.iter().chain(SECURE).map(|(name, quirk)| {
        let trial = Trial::test(*name, move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(quirk());
            Ok(())
        });
        match missing {
            Some(why) => trial.with_ignored_flag(true).with_kind(format!("cannot run: {why}")),
            None => trial,
        }
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn server() -> &'static Ensemble {
    SERVER.as_ref().expect("the list does not run without it")
}

fn options(hosts: impl IntoIterator<Item = std::net::SocketAddr>) -> ZkOptions {
    ZkOptions::new(hosts.into_iter().map(|host| host.to_string())).tick(TICK)
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

/// A session with a link that can be troubled.
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

async fn refused(store: &dyn Store, txn: Txn) -> Why {
    let outcome = store.commit(txn).await.expect("the server answers");
    outcome.rejected().expect("something stands against it").why
}

async fn there(store: &dyn Store, at: &str) -> bool {
    store.read(Query::node(path(at))).await.expect("the server answers").node().is_some()
}

async fn names(store: &dyn Store, at: &str) -> Vec<String> {
    let view = store.read(Query::children(path(at)).names_only()).await.expect("answers");
    view.nodes.iter().map(|node| node.path.name().to_owned()).collect()
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
    let node = path("/kinds");
    let (_view, mut of_node) = store.observe(Query::node(&node)).await.expect("answers");
    let (_view, mut of_names) =
        store.observe(Query::children(&node).names_only()).await.expect("answers");
    let (_view, of_data) = store.observe(Query::children(&node)).await.expect("answers");
    let (_view, of_tree) = store.observe(Query::subtree(&node)).await.expect("answers");
    drop(of_data);

    done(&*store, create("/kinds", "")).await;
    hears(&mut of_node, "/kinds", Kind::Created).await;
    drop(of_tree);
    done(&*store, create("/kinds/a", "")).await;
    hears(&mut of_names, "/kinds/a", Kind::Created).await;
    done(&*store, Txn::new().set(&node, "x", Expect::Any)).await;
    hears(&mut of_node, "/kinds", Kind::Updated).await;
}

/// <https://issues.apache.org/jira/browse/ZOOKEEPER-4026>
async fn a_create_among_others_tells_a_true_stat_or_none() {
    let store = session().await;
    let commit =
        done(&*store, create("/among/a", "").create(path("/among/b"), "", Lifetime::Session)).await;
    let version = server().version().expect("it runs");
    for done in commit.done {
        let view = store.read(Query::node(&done.path)).await.expect("answers");
        let stat = view.node().expect("it was made").stat;
        assert!(
            done.stat == stat || done.stat.is_none() && version.starts_with("3.8."),
            "{done:?}"
        );
    }
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

/// The crate forgets persistent watches when it reconnects.
async fn a_watch_goes_on_after_a_reconnect() {
    let (links, store) = linked().await;
    done(&*store, create("/again", "")).await;
    let (_view, mut watch) = store.observe(Query::subtree(path("/again"))).await.expect("answers");

    for _ in 0..3 {
        links.lose_reply(store.session().id, Verb::Set);
        let _lost = store.commit(Txn::new().set(path("/again"), "", Expect::Any)).await.is_err();
        loop {
            let event = timeout(PATIENCE, watch.next()).await.expect("in time");
            if matches!(event, Some(Event::Resync)) {
                break;
            }
        }
    }

    let other = session().await;
    done(&*other, create("/again/x", "")).await;
    hears(&mut watch, "/again/x", Kind::Created).await;
}

/// The crate writes them one by one, and does not ask the kernel to send at once.
async fn two_requests_of_one_call_take_one_round_trip() {
    const TRIP: Duration = Duration::from_millis(60);
    for _ in 0..4 {
        let (links, store) = linked().await;
        let ticket = path("/trip/x-");
        let draw = || Txn::new().create_sequential(&ticket, "", Lifetime::Session);
        // The first one makes the directory.
        done(&*store, draw()).await;
        links.set(store.session().id, Link::Slow { there: TRIP / 2, back: TRIP / 2 });

        let (mut read, mut drawn) = (Duration::MAX, Duration::MAX);
        for _ in 0..6 {
            let began = Instant::now();
            store.read(Query::node(path("/trip"))).await.expect("answers");
            read = read.min(began.elapsed());
            let began = Instant::now();
            let look = Query::children(path("/trip")).names_only();
            done(&*store, draw().look(look)).await;
            drawn = drawn.min(began.elapsed());
        }
        assert!(read < TRIP * 3 / 2, "a latest read took {read:?}");
        assert!(drawn < TRIP * 3 / 2, "a ticket and a look took {drawn:?}");
    }
}

async fn empty_containers_do_not_keep_a_node_from_being_deleted() {
    let store = session().await;
    for round in 0..5 {
        let top = format!("/hollow{round}");
        done(&*store, create(&top, "")).await;
        done(&*store, create(&format!("{top}/a/b/c"), "")).await;
        let delete = |at: &str| Txn::new().delete(path(at), Expect::Any);
        assert_eq!(refused(&*store, delete(&top)).await, Why::HasChildren);
        done(&*store, delete(&format!("{top}/a/b/c"))).await;

        done(&*store, delete(&top)).await;

        assert!(!there(&*store, &top).await);
    }
}

/// Who finds an empty container in his way removes it; he must not remove what another has put there
/// meanwhile.
async fn of_many_who_replace_an_empty_container_one_wins() {
    let stores = [session().await, session().await, session().await];
    for round in 0..20 {
        let place = format!("/replace/{round}");
        let lifetime = if round % 2 == 0 { Lifetime::Session } else { Lifetime::Persistent };
        done(&*stores[0], create(&format!("{place}/x"), "")).await;
        done(&*stores[0], Txn::new().delete(path(&format!("{place}/x")), Expect::Any)).await;

        let creates = stores.iter().map(|store| {
            let txn = Txn::new().create(path(&place), store.session().id.to_string(), lifetime);
            store.commit(txn)
        });
        let outcomes = futures_util::future::join_all(creates).await;

        let won: Vec<_> = outcomes
            .into_iter()
            .filter_map(|outcome| outcome.expect("the server answers").committed())
            .collect();
        assert_eq!(won.len(), 1, "round {round}");
        let view = stores[0].read(Query::node(path(&place))).await.expect("answers");
        assert_eq!(view.node().expect("it was made").stat, won[0].done[0].stat);
    }
}

/// One create finds an empty container, and takes its time to replace it; meanwhile another finds the
/// place free.
async fn who_is_late_to_remove_a_container_removes_no_node() {
    let slow = Link::Slow { there: Duration::from_millis(60), back: Duration::from_millis(60) };
    // One that leaves empty containers alone.
    let patient = Ensemble::start_with(1, &["-Dznode.container.checkIntervalMs=600000"], &[]);
    let patient = patient.expect("the other one started, too");
    let rounds = (0..10).map(async |round| {
        let place = path(&format!("/late{round}/place"));
        let ((links, late), quick) = (linked_with(&patient).await, session_with(&patient).await);
        done(&*quick, create(&format!("{place}/x"), "")).await;
        done(&*quick, Txn::new().delete(path(&format!("{place}/x")), Expect::Any)).await;
        links.set(late.session().id, slow);

        let replacing = late.commit(create(place.as_str(), "late"));
        let overtaking = async {
            // The last one leaves all the time in the world.
            sleep(Duration::from_millis(if round == 9 { 4_000 } else { 40 * round })).await;
            // A container has this version, and what replaced one has another.
            let first = Expect::Version(synod_core::store::Version::new(0));
            let gone = quick.commit(Txn::new().delete(&place, first)).await;
            let _either_way = gone.expect("the server answers");
            quick.commit(create(place.as_str(), "quick")).await
        };
        let (late, overtaken) = futures_util::future::join(replacing, overtaking).await;

        let made = |outcome: Result<synod_core::store::Outcome, _>| {
            outcome
                .unwrap_or_else(|error: synod_core::error::Error| panic!("{error}"))
                .committed()
                .is_some()
        };
        let (late, overtaken) = (made(late), made(overtaken));
        assert!(late != overtaken, "round {round}: {late} and {overtaken}");
        let view = quick.read(Query::node(&place)).await.expect("answers");
        let winner = if late { "late" } else { "quick" };
        assert_eq!(view.node().expect("it was made").data, winner);
        late
    });
    let late = futures_util::future::join_all(rounds).await;
    // Else the rounds are at the wrong times.
    assert!(late.contains(&true) && late.contains(&false), "{late:?}");
}

/// This is what keeps him from it.
async fn the_name_of_a_sequential_child_tells_of_every_birth() {
    let address = server().addresses()[0].to_string();
    let client = zookeeper_client::Client::connect(&address).await.expect("a server runs");
    let open = zookeeper_client::Acls::anyone_all();
    let plain = zookeeper_client::CreateMode::Persistent.with_acls(open);
    let sequential = zookeeper_client::CreateMode::PersistentSequential.with_acls(open);
    for node in ["/births", "/births/a", "/births/b"] {
        client.create(node, b"", &plain).await.expect("it is new");
    }
    let births = async || {
        let (_data, stat) = client.get_data("/births").await.expect("it is there");
        i32::midpoint(stat.cversion, stat.num_children)
    };
    let still = async |births: i32| {
        let mut writer = client.new_multi_writer();
        writer.add_create("/births/p", b"", &sequential).expect("valid");
        writer.add_delete(&format!("/births/p{births:010}"), None).expect("valid");
        writer.commit().await.is_ok()
    };

    assert_eq!(births().await, 2);
    client.delete("/births/a", None).await.expect("it is there");
    assert_eq!(births().await, 2);
    assert!(still(2).await, "a death is no birth");
    assert!(!still(2).await, "the question was one");
    assert_eq!(births().await, 3);
    client.create("/births/a", b"", &plain).await.expect("it is gone");
    assert!(!still(3).await, "what is made again is born");
    assert!(still(4).await);
}

async fn containers_come_and_go_untold() {
    let store = session().await;
    let (_view, mut watch) = store.observe(Query::subtree(path("/untold"))).await.expect("answers");

    done(&*store, create("/untold/a/b/c", "")).await;
    done(&*store, Txn::new().delete(path("/untold/a/b/c"), Expect::Any)).await;
    // Until the server has collected them all.
    let end = Instant::now() + PATIENCE;
    while !names(&*store, "/untold").await.is_empty() {
        assert!(Instant::now() < end, "empty containers are not collected");
        sleep(Duration::from_millis(50)).await;
    }
    done(&*store, create("/untold", "last")).await;

    let mut told = Vec::new();
    loop {
        match timeout(PATIENCE, watch.next()).await.expect("in time") {
            Some(Event::Changed(change)) => told.push((change.path.to_string(), change.kind)),
            // What was gone before it could be read may have been a node or a container.
            Some(Event::Resync) => {}
            other => panic!("{other:?}"),
        }
        if told.last().is_some_and(|(path, _)| path == "/untold") {
            break;
        }
    }
    let (last, rest) = told.split_last().expect("at least that");
    assert_eq!(*last, ("/untold".to_owned(), Kind::Created));
    assert!(rest.iter().all(|(path, _)| path == "/untold/a/b/c"), "{told:?}");
}

async fn a_node_without_data_that_others_made_is_a_node() {
    let server = server().addresses()[0].to_string();
    let foreign = zookeeper_client::Client::connect(&server).await.expect("a server runs");
    let open = zookeeper_client::Acls::anyone_all();
    let container = zookeeper_client::CreateMode::Container.with_acls(open);
    foreign.create("/foreign", b"", &container).await.expect("it is new");

    let store = session().await;

    assert!(there(&*store, "/foreign").await);
    assert_eq!(refused(&*store, create("/foreign", "")).await, Why::Exists);
    done(&*store, Txn::new().set(path("/foreign"), "x", Expect::Any)).await;
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

async fn only_its_creator_touches_a_node() {
    let addresses = server().addresses();
    let known = |user: &str, password: &str| {
        options(addresses.clone()).credentials(user, password.to_owned())
    };
    let ann = open(known("ann", "canary-7f3a")).await;
    let again = open(known("ann", "canary-7f3a")).await;
    let eve = open(known("ann", "guessed")).await;
    let nobody = session().await;
    done(&*ann, create("/mine/a", "secret")).await;

    assert!(there(&*again, "/mine/a").await);
    done(&*again, Txn::new().set(path("/mine/a"), "x", Expect::Any)).await;
    for stranger in [&eve, &nobody] {
        let read = stranger.read(Query::node(path("/mine/a"))).await.expect_err("not his");
        assert_eq!(read.kind(), ErrorKind::Denied);
        for txn in [
            Txn::new().set(path("/mine/a"), "x", Expect::Any),
            Txn::new().delete(path("/mine/a"), Expect::Any),
            create("/mine/b", ""),
        ] {
            let error = stranger.commit(txn).await.expect_err("not his");
            assert_eq!(
                (error.kind(), error.effect()),
                (ErrorKind::Denied, Effect::None),
                "{error}"
            );
        }
    }
    let backend = ZkBackend::new(known("ann", "canary-7f3a")).expect("valid");
    assert!(!format!("{backend:?} {ann:?}").contains("canary"));
}

async fn a_server_without_extended_types_keeps_no_ttl_nodes() {
    let plain = Ensemble::start_with(1, &["-Dzookeeper.extendedTypesEnabled=false"], &[]);
    let plain = plain.expect("the other one started, too");
    let store = open(options(plain.addresses()).access(Access::Open)).await;

    assert_eq!(store.session().limits.gaps, [Gap::TtlNodes]);
    let ttl = Lifetime::Ttl(Duration::from_secs(60));
    let error =
        store.commit(Txn::new().create(path("/ttl"), "", ttl)).await.expect_err("it cannot");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
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
        // A read waits for the next connection; one that was under way is lost with the last.
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
