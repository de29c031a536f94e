use proptest::prelude::*;

use super::*;
use crate::layer::fake::{Fake, FakeBackend, path};
use crate::store::{Expect, Lifetime, RejectReason, Revision, SessionEnd};

fn app(fake: &Arc<Fake>) -> Namespaced {
    Namespaced::new(fake.clone(), path("/app"))
}

fn view(paths: &[&str]) -> View {
    View::new(Revision::new(7), paths.iter().map(|text| Node::new(path(text))).collect())
}

fn paths(view: &View) -> Vec<&str> {
    view.nodes.iter().map(|node| node.path.as_str()).collect()
}

/// Runs a check on its own runtime, so that a mutant can be switched on around it.
fn run(check: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(check);
}

async fn check_strangers() {
    let fake = Fake::new();
    fake.set_next_view(Ok(view(&["/app", "/app/a", "/apple/b", "/app/zookeeper", "/"])));

    let seen = app(&fake).read(Query::subtree(Path::root())).await.expect("answered");

    assert_eq!(paths(&seen), ["/a"]);
    assert_eq!(seen.revision, Revision::new(7));
}

async fn check_look() {
    let fake = Fake::new();
    let answered = OpResult::new(path("/app/q/t-0007"));
    let commit = Commit::new(None, vec![answered], Some(view(&["/app/q/t-0007"])));
    fake.set_next_outcome(Ok(Outcome::Committed(commit)));

    let txn = Txn::new()
        .create_sequential(path("/q/t-"), "", Lifetime::Session)
        .look(Query::children(path("/q")));
    let commit = app(&fake).commit(txn).await.expect("answered").ok().expect("done");

    assert_eq!(fake.calls().paths(), [&path("/app/q"), &path("/app/q/t-")]);
    assert_eq!(commit.results[0].path, path("/q/t-0007"));
    assert_eq!(paths(&commit.look.expect("requested")), ["/q/t-0007"]);
}

async fn check_events() {
    let fake = Fake::new();
    let store = app(&fake);
    let (_view, mut watch) = store.watch(Query::subtree(Path::root())).await.expect("answered");
    let node = Node::new(path("/app/a"));
    let feed = fake.feed();
    feed.send(Change::new(path("/app"), Kind::Updated));
    feed.send(Change::new(path("/app"), Kind::Children));
    feed.send(Change::new(path("/apple"), Kind::Created));
    feed.send(Change::new(path("/app/a"), Kind::Created).with_node(node));
    let error = Error::new(ErrorKind::Backend, "watch").at(&path("/app/b")).caused_by("compacted");
    feed.end(End::Failed(Arc::new(error)));

    let events: Vec<Event> = std::iter::from_fn(|| watch.try_next()).collect();

    let [Event::Changed(children), Event::Changed(created), Event::Ended(End::Failed(error))] =
        &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(*children, Change::new(Path::root(), Kind::Children));
    assert_eq!(created.path, path("/a"));
    assert_eq!(created.node.as_ref().map(|node| &node.path), Some(&path("/a")));
    assert_eq!(error.path(), Some(&path("/b")));
    assert!(std::error::Error::source(&**error).is_some(), "the cause is kept");
}

#[test]
fn what_comes_from_outside_is_left_out_and_the_root_is_no_node() {
    run(check_strangers());
}

#[test]
fn a_commit_and_its_look_are_moved_once_and_come_back_stripped() {
    run(check_look());
}

#[test]
fn events_come_back_stripped() {
    run(check_events());
}

#[tokio::test]
async fn rejections_and_errors_come_back_stripped() {
    let fake = Fake::new();
    let rejected = Rejected::new(0, path("/app/a"), RejectReason::Missing);
    fake.set_next_outcome(Ok(Outcome::Rejected(rejected)));
    fake.set_next_outcome(Err(Error::new(ErrorKind::Denied, "commit").at(&path("/app/a"))));
    fake.set_next_view(Err(Error::new(ErrorKind::Denied, "read").at(&path("/apple"))));
    let store = app(&fake);
    let txn = Txn::new().delete(path("/a"), Expect::Any);

    let outcome = store.commit(txn.clone()).await.expect("answered");
    assert_eq!(outcome.rejected().map(|rejected| &rejected.path), Some(&path("/a")));
    let error = store.commit(txn).await.expect_err("scripted");
    assert_eq!((error.kind(), error.path()), (ErrorKind::Denied, Some(&path("/a"))));
    let error = store.read(Query::node(path("/a"))).await.expect_err("scripted");
    assert_eq!(error.path(), None);
}

#[tokio::test]
async fn an_answer_about_another_place_keeps_its_place_in_the_order() {
    let fake = Fake::new();
    let done = ["/app/a", "/elsewhere"].map(|text| OpResult::new(path(text)));
    fake.set_next_outcome(Ok(Outcome::Committed(Commit::new(None, done.to_vec(), None))));
    let txn = Txn::new().delete(path("/a"), Expect::Any).delete(path("/b"), Expect::Any);

    let commit = app(&fake).commit(txn).await.expect("answered").ok().expect("done");

    assert_eq!(
        commit.results.iter().map(|done| done.path.as_str()).collect::<Vec<_>>(),
        ["/a", "/b"]
    );
}

#[tokio::test]
async fn what_cannot_be_moved_is_invalid_and_nothing_is_sent() {
    let fake = Fake::new();
    let store = app(&fake);
    let longest = path(&format!("/{}", "n".repeat(255)).repeat(8));
    let root = Path::root();
    let txns = [
        Txn::new().set(root.clone(), "", Expect::Any),
        Txn::new().check(root.clone(), Expect::Any),
        Txn::new().create(root, "", Lifetime::Persistent),
        Txn::new().delete(longest.clone(), Expect::Any),
        Txn::new().delete(path("/a"), Expect::Any).look(Query::node(longest.clone())),
    ];

    for txn in txns {
        let error = store.commit(txn).await.expect_err("cannot be moved");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    for query in [Query::node(longest.clone()), Query::node(path("/a")).oldest(1)] {
        let error = store.read(query.clone()).await.expect_err("invalid query");
        assert_eq!((error.kind(), error.path()), (ErrorKind::Invalid, Some(&query.path)));
        let error = store.watch(query).await.expect_err("invalid query");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert_eq!(fake.calls(), Fake::new().calls());
}

#[tokio::test]
async fn the_rest_is_that_of_the_store_below() {
    let fake = Fake::new();
    let store = app(&fake);
    let (session, below) = (store.session(), fake.session());
    assert_eq!((session.id, session.ttl, &session.limits), (below.id, below.ttl, &below.limits));
    assert_eq!(session.path_in_store(&path("/a")).expect("short"), path("/app/a"));
    assert_eq!(below.path_in_store(&path("/a")).expect("short"), path("/a"));

    store.close().await.expect("closed");

    assert!(matches!(*store.status().borrow(), Status::Lost { reason: SessionEnd::Closed }));
    assert_eq!(fake.calls().closes, 1);

    let backend = NamespacedBackend::new(FakeBackend, path("/app"));
    let opened = backend.open(&SessionOptions::default()).await.expect("opened");
    assert!(format!("{opened:?}").starts_with("Namespaced"));
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_is_caught() {
    use crate::mutant::{self, Mutant};

    let caught =
        |mutant, check: fn()| mutant::with(mutant, || std::panic::catch_unwind(check).is_err());
    assert!(caught(Mutant::NamespaceStripsByText, || run(check_strangers())));
    assert!(caught(Mutant::NamespaceAddsTwice, || run(check_look())));
    assert!(caught(Mutant::NamespaceForgetsEvents, || run(check_events())));
}

fn any_path() -> impl Strategy<Value = Path> {
    // Names that are prefixes of each other, for which text and segments disagree.
    let name = prop::sample::select(vec!["a", "ab", "app", "apple", "b.", "é"]);
    prop::collection::vec(name, 0..5).prop_map(|names| path(&format!("/{}", names.join("/"))))
}

proptest! {
    #[test]
    fn taking_off_is_the_inverse_of_putting_on(root in any_path(), inner in any_path()) {
        let root = Root(root);
        let moved = root.add(&inner, "read").expect("short");
        prop_assert_eq!(root.strip(&moved), Some(inner));
        prop_assert!(moved == root.0 || moved.is_below(&root.0));
    }

    #[test]
    fn no_call_escapes(roots in prop::collection::vec(any_path(), 1..4), at in any_path()) {
        let fake = Fake::new();
        let mut store: Arc<dyn Store> = fake.clone();
        for root in &roots {
            store = Arc::new(Namespaced::new(store, root.clone()));
        }
        let outermost = &roots[0];
        run(async {
            let _view = store.read(Query::node(at.clone())).await.expect("answered");
            let _watch = store.watch(Query::children(at.clone())).await.expect("answered");
            let txn = Txn::new().set(at.clone(), "", Expect::Any).look(Query::subtree(at.clone()));
            match store.commit(txn).await {
                Ok(Outcome::Committed(commit)) => assert_eq!(commit.results[0].path, at),
                Ok(Outcome::Rejected(_)) => unreachable!("a fake rejects nothing"),
                Err(_) => assert!(at.is_root()),
            }
        });
        // A namespace of a namespace is the namespace of both paths, the outer one first.
        let whole = roots.iter().rev().fold(at.clone(), |path, root| {
            path.within(root).expect("short")
        });
        for path in fake.calls().paths() {
            prop_assert!(path == outermost || path.is_below(outermost));
            prop_assert_eq!(path, &whole);
        }
    }
}
