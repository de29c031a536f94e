//! The layers of core over a scripted store.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use synod_core::clock::{self, sleep};
use synod_core::error::{Effect, ErrorKind};
use synod_core::layer::namespace::{Namespaced, NamespacedBackend};
use synod_core::layer::trace::{Traced, TracedBackend};
use synod_core::path::Path;
use synod_core::store::{
    Backend, Expect, Lifetime, Op, Outcome, Query, SessionOptions, Store, Txn, Version, View,
};
use synod_mem::MemBackend;
use synod_testkit::cancel::cancel_at_every_await;
use synod_testkit::fault::{Actor, Choice, Cue, Faults, Faulty, FaultyBackend, Plan, Site, Verb};
use synod_testkit::hesitant::{Hesitant, HesitantBackend};

fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

async fn open(backend: &impl Backend) -> Arc<dyn Store> {
    Arc::from(backend.open(&SessionOptions::default()).await.expect("opened"))
}

async fn commit(store: &dyn Store, txn: Txn) {
    let _done = store.commit(txn).await.expect("answered").required().expect("possible");
}

fn create(at: &str) -> Txn {
    Txn::new().create(path(at), "data", Lifetime::Persistent)
}

async fn subtree(store: &dyn Store, at: &str) -> View {
    store.read(Query::subtree(path(at))).await.expect("answered")
}

fn names(view: &View) -> Vec<&str> {
    view.nodes.iter().map(|node| node.path.as_str()).collect()
}

/// Waits until all messages in flight have arrived.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn the_root_of_a_namespace_is_no_node_even_where_it_is_one() {
    let outer = open(&MemBackend::new()).await;
    let inside = Namespaced::new(outer.clone(), path("/app"));
    commit(&*outer, create("/apple")).await;
    commit(&*outer, create("/app")).await;
    let (view, mut watch) = inside.watch(Query::subtree(Path::root())).await.expect("answered");
    assert_eq!(names(&view), [""; 0]);

    commit(&*outer, Txn::new().set(path("/app"), "more", Expect::Any)).await;
    commit(&inside, create("/a/b")).await;
    settle().await;

    assert_eq!(inside.read(Query::node(Path::root())).await.expect("answered").node(), None);
    let told: Vec<_> = std::iter::from_fn(|| watch.try_next()).collect();
    assert_eq!(told.len(), 1, "only of /a/b: {told:?}");
    let children = inside.read(Query::children(Path::root())).await.expect("answered");
    assert_eq!(names(&children), ["/a"]);
    assert_eq!(names(&subtree(&inside, "/").await), ["/a", "/a/b"]);
    assert_eq!(names(&subtree(&*outer, "/").await), ["/app", "/app/a", "/app/a/b", "/apple"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_reply_is_lost_is_found_by_its_name_with_and_without_a_namespace() {
    let outer = open(&MemBackend::new()).await;
    let plan = Plan::scripted([]);
    let faulty: Arc<dyn Store> = Arc::new(Faulty::new(outer, plan.clone(), Actor::new(1)));
    let inside: Arc<dyn Store> = Arc::new(Namespaced::new(faulty.clone(), path("/app")));
    for store in [&faulty, &inside] {
        plan.cue(Cue::new(Site::ReplyLost).of(Verb::Create));
        let drawn = Txn::new().create_sequential(path("/q/7f3a-"), "", Lifetime::Session);

        let error = store.commit(drawn).await.expect_err("planned");
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown));
        assert_eq!(error.path(), Some(&path("/q/7f3a-")));

        let mine = Query::children(path("/q")).starting_with("7f3a-");
        let found = store.read(mine).await.expect("answered");
        let node = found.node().expect("it happened");
        commit(&**store, Txn::new().delete(node.path.clone(), Expect::Any)).await;
    }
    assert_eq!(names(&subtree(&*faulty, "/").await), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_late_write_comes_while_the_session_lives_and_never_after() {
    let backend = MemBackend::new();
    let late = || Plan::scripted([Cue::new(Site::AppliedLate).lasting(Duration::from_secs(2))]);
    for (closes, written) in [(false, true), (true, false)] {
        let backend = FaultyBackend::new(backend.clone(), late(), Actor::new(1));
        let store = open(&backend).await;
        let at = if closes { "/closed" } else { "/open" };
        assert!(store.commit(create(at)).await.is_err_and(|error| error.has_unknown_effect()));
        if closes {
            store.close().await.expect("nothing planned");
        }
        sleep(Duration::from_secs(3)).await;

        let other = open(&backend).await;
        assert_eq!(subtree(&*other, at).await.node().is_some(), written, "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_call_outlives_the_session_no_more_than_any_other() {
    let backend = MemBackend::new();
    let plan = Plan::scripted([Cue::new(Site::ReplyHeld).of(Verb::Commit)]);
    let store = open(&FaultyBackend::new(backend.clone(), plan, Actor::new(1))).await;
    let start = clock::now();

    let (error, ()) = futures_util::future::join(store.commit(create("/a")), async {
        sleep(Duration::from_secs(1)).await;
        backend.expire(store.session().id);
    })
    .await;

    let error = error.expect_err("held");
    assert!(error.has_unknown_effect());
    assert!(clock::elapsed(start) <= store.session().ttl, "after {:?}", clock::elapsed(start));
    assert_eq!(backend.census().nodes, 1, "it happened all the same");
}

#[tokio::test(start_paused = true)]
async fn a_sweep_drops_a_call_before_and_after_it_happened() {
    let outer = open(&MemBackend::new()).await;
    let store = Hesitant::new(outer.clone());
    let mut made = Vec::new();

    let drops = cancel_at_every_await(|| {
        let at = format!("/n{}", made.len());
        made.push(at.clone());
        let store = &store;
        async move { store.commit(create(&at)).await.is_ok() }
    })
    .await;

    assert_eq!(drops, 2);
    assert_eq!(names(&subtree(&*outer, "/").await), ["/n1", "/n2"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_storm_answers_is_true() {
    let mut unknown = 0;
    for seed in 0..50 {
        let outer = open(&MemBackend::new()).await;
        let fates =
            [Site::Denied, Site::Unsent, Site::RequestLost, Site::ReplyLost, Site::ReplyHeld];
        let faults = fates.into_iter().fold(Faults::none(), |faults, site| faults.with(site, 100));
        let faults = faults.with(Site::AppliedLate, 100).with(Site::RequestSlow, 300);
        let plan = Plan::new(faults, Choice::seeded(seed));
        let store = Faulty::new(outer.clone(), plan, Actor::new(1));
        let mut answers = Vec::new();
        for n in 0..40 {
            answers.push(store.commit(create(&format!("/n{n:02}"))).await.map(Outcome::ok));
        }
        sleep(Duration::from_secs(60)).await;

        let there = subtree(&*outer, "/").await;
        for (n, answer) in answers.into_iter().enumerate() {
            let is_there = names(&there).contains(&format!("/n{n:02}").as_str());
            match answer {
                Ok(done) => assert!(done.is_some() && is_there, "/n{n:02} of {seed}"),
                Err(error) if error.has_unknown_effect() => unknown += 1,
                Err(error) => assert!(!is_there, "/n{n:02} of {seed}: {error}"),
            }
        }
    }
    assert!(unknown > 300, "only {unknown} calls were ambiguous");
}

/// Every layer on top of every other one, without a fault.
async fn stacked(backend: MemBackend, root: &str) -> Arc<dyn Store> {
    let plan = Plan::scripted([]);
    let faulty = FaultyBackend::new(HesitantBackend::new(backend), plan.clone(), Actor::new(1));
    let inner = NamespacedBackend::new(TracedBackend::new(faulty), path(root));
    let store = Namespaced::new(open(&inner).await, path("/in"));
    Arc::new(Traced::new(Arc::new(Hesitant::new(Arc::new(store)))))
}

/// All answers of a store to a program, as text.
async fn played(store: Arc<dyn Store>, program: &[Txn]) -> String {
    let mut said = String::new();
    let (_view, mut below) = store.watch(Query::subtree(Path::root())).await.expect("answered");
    let names = Query::children(path("/q")).names_only();
    let (_view, mut children) = store.watch(names).await.expect("answered");
    for txn in program {
        let answer = store.commit(txn.clone().look(Query::subtree(Path::root()))).await;
        writeln!(said, "{answer:?}").expect("a string takes it");
        let view = store.read(Query::children(path("/q")).newest(2)).await;
        writeln!(said, "{view:?}").expect("a string takes it");
    }
    settle().await;
    for watch in [&mut below, &mut children] {
        while let Some(event) = watch.try_next() {
            writeln!(said, "{event:?}").expect("a string takes it");
        }
    }
    // Only the session id may differ.
    said.replace(&format!("{:?}", store.session().id), "own")
}

/// Runs the same program in a separate store and in a part of another store. The numbers of their
/// revisions agree, because both stores have the same number of earlier commits.
async fn played_twice(root: &str, whole_stack: bool, program: &[Txn]) -> (String, String) {
    let alone = open(&MemBackend::new()).await;
    commit(&*alone, create("/z")).await;
    commit(&*alone, Txn::new().delete(path("/z"), Expect::Any)).await;

    let shared = MemBackend::new();
    let outer = open(&shared).await;
    let neighbours = [format!("{root}b/n"), format!("{root}%/n")];
    for neighbour in &neighbours {
        commit(&*outer, create(neighbour)).await;
    }
    let inside = if whole_stack {
        stacked(shared, root).await
    } else {
        Arc::new(Namespaced::new(outer.clone(), path(root)))
    };

    let said = (played(alone, program).await, played(inside, program).await);
    for neighbour in &neighbours {
        assert_eq!(subtree(&*outer, neighbour).await.nodes[0].data, "data", "{neighbour}");
    }
    said
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_through_all_layers_is_freed_below() {
    let backend = MemBackend::new();
    let store = stacked(backend.clone(), "/a").await;
    let (_view, watch) = store.watch(Query::subtree(Path::root())).await.expect("answered");
    assert_eq!(backend.census().watches, 1);

    drop(watch);
    settle().await;
    assert_eq!(backend.census().watches, 0);

    store.close().await.expect("closed");
    assert_eq!(backend.census().sessions, 0);
}

fn any_op() -> impl Strategy<Value = Op> {
    let path =
        prop::sample::select(vec!["/a", "/ab", "/a/a", "/a/ab", "/a/a/b", "/q", "/q/x", "/"])
            .prop_map(path);
    let expect = prop_oneof![
        3 => Just(Expect::Any),
        1 => Just(Expect::Absent),
        1 => (0..3_u64).prop_map(|version| Expect::Version(Version::new(version))),
    ];
    let lifetime = prop_oneof![
        3 => Just(Lifetime::Persistent),
        1 => Just(Lifetime::Session),
        1 => Just(Lifetime::Container),
    ];
    (path, expect, lifetime, 0..6).prop_map(|(path, expect, lifetime, which)| match which {
        0 => Op::Check { path, expect },
        1 => Op::Set { path, data: "new".into(), expect },
        2 => Op::Delete { path, expect },
        3 => {
            let path = Path::new("/q/t-").expect("valid");
            Op::Create { path, data: "".into(), lifetime: Lifetime::Session, sequential: true }
        }
        _ => {
            let data = if lifetime == Lifetime::Container { "" } else { "made" };
            Op::Create { path, data: data.into(), lifetime, sequential: false }
        }
    })
}

fn any_program() -> impl Strategy<Value = Vec<Txn>> {
    let txn = prop::collection::vec(any_op(), 1..4)
        .prop_map(|ops| ops.into_iter().fold(Txn::new(), Txn::op));
    prop::collection::vec(txn, 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_namespace_is_a_store(
        program in any_program(),
        root in prop::sample::select(vec!["/a", "/q", "/a/ab", "/q/t-"]),
        whole_stack in any::<bool>(),
    ) {
        let (alone, inside) = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime")
            .block_on(played_twice(root, whole_stack, &program));
        prop_assert_eq!(alone, inside);
    }
}
