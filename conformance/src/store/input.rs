//! Invalid requests, which are refused before anything is sent.

use std::time::Duration;

use bytes::Bytes;
use synod_core::error::ErrorKind;
use synod_core::path::Path;
use synod_core::store::{Expect, Feature, Lifetime, Op, Query, Scope, Sequence, Status, Txn};

use crate::actor::{Actor, text_of};
use crate::world::World;

cases![
    "L-KV-11 C-WRITE-7 B-PATH" catches [ValidateSkipped] => a_transaction_that_no_store_could_do_is_refused,
    "C-WRITE-7 B-PATH" catches [ValidateSkipped] => a_lifetime_that_no_store_could_keep_is_refused,
    "C-WRITE-7 B-PATH" catches [QueryNotValidated] => a_query_that_no_store_could_answer_is_refused,
    "L-KV-18 C-WRITE-7" catches [SeveralObservedAsOne] => several_nodes_are_read_up_to_a_limit_and_not_observed,
    "C-WRITE-7" catches [LookNotValidated] => a_look_that_no_store_could_answer_is_refused,
    "B-SIZE" catches [SizeUnchecked] => what_is_too_large_is_refused_and_the_session_lives_on,
    "B-SIZE L-KV-14" catches [LimitsOffByOne] => what_just_fits_is_taken,
    "L-X-10" catches [TtlIgnored] => what_the_store_cannot_do_it_refuses,
];

/// Checks that a transaction is refused with `kind`, and nothing is sent.
async fn refuses(actor: &Actor, txn: Txn, kind: ErrorKind) {
    let ops: Vec<_> = txn.ops.iter().take(3).map(|op| (op.path().clone(), op.is_write())).collect();
    match actor.attempt(txn).await {
        Ok(outcome) => panic!("{ops:?} should be {kind}, and was answered: {outcome:?}"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{}", text_of(&error));
            assert!(!error.has_unknown_effect(), "nothing was sent: {error}");
        }
    }
}

async fn a_transaction_that_no_store_could_do_is_refused(world: World) {
    let ann = world.ann().await;
    let [a, b, c] = ["a", "d/b", "d/c"].map(|name| world.at(name));
    ann.create(&a, "kept").await;
    let create = |path: &Path| Txn::new().create(path, "", Lifetime::Persistent);
    let draw = |path: &Path| Txn::new().create_sequential(path, "", Lifetime::Session);
    let refused = [
        Txn::new(),
        create(&b).create(&b, "", Lifetime::Persistent),
        create(&b).delete(&b, Expect::Any),
        Txn::new().set(&a, "1", Expect::Any).set(&a, "2", Expect::Any),
        Txn::new().delete(&a, Expect::Any).create(&a, "", Lifetime::Persistent),
        create(&b).check(&b, Expect::Any),
        Txn::new().set(&a, "x", Expect::Any).check(&a, Expect::Any),
        draw(&b).create_sequential(&c, "", Lifetime::Persistent),
        Txn::new().set(&a, "x", Expect::Absent),
        Txn::new().delete(&a, Expect::Absent),
        create(&b).create(Path::root(), "", Lifetime::Persistent),
        create(&b).set(Path::root(), "", Expect::Any),
        create(&b).delete(Path::root(), Expect::Any),
        create(&b).create(&c, "data", Lifetime::Container),
        create(&b).create_sequential(&c, "", Lifetime::Container),
    ];
    for txn in refused {
        refuses(&ann, txn, ErrorKind::Invalid).await;
    }

    assert_eq!(ann.names(&world.dir).await, ["a"], "nothing was written");
    assert_eq!(ann.text(&a).await.as_deref(), Some("kept"));
    let check_first = Txn::new().check(&a, Expect::Any).set(&a, "x", Expect::Any);
    let _fine = ann.commit(check_first).await;
    let two_lines =
        draw(&world.at("l/t-")).create_sequential(world.at("m/t-"), "", Lifetime::Session);
    let _fine = ann.commit(two_lines).await;
}

async fn a_lifetime_that_no_store_could_keep_is_refused(world: World) {
    let ann = world.ann().await;
    let node = world.at("n");
    for lifetime in [Duration::ZERO, Duration::MAX, Duration::from_secs(3_600 * 24 * 365 * 100)] {
        let txn = Txn::new().create(&node, "", Lifetime::Ttl(lifetime));
        refuses(&ann, txn, ErrorKind::Invalid).await;
    }
    assert_eq!(ann.names(&world.dir).await, Vec::<String>::new());
}

/// Queries with a prefix or a window and a scope that has no children.
fn impossible(path: &Path) -> Vec<Query> {
    let sequence = Sequence::new(1);
    let all = [Query::node(path), Query::subtree(path)].map(|query| {
        let prefix = query.clone().starting_with("x");
        let windows = [query.clone().oldest(1), query.clone().newest(1)];
        [vec![prefix], windows.to_vec(), vec![query.newest_before(1, sequence).names_only()]]
            .concat()
    });
    let many = [Query::subtree(path), Query::children(path)].map(Query::once);
    let mut several = [Query::children(path), Query::subtree(path), Query::node(path).once()];
    for query in &mut several {
        query.more.push(path.clone());
    }
    [all.concat(), many.to_vec(), several.to_vec()].concat()
}

async fn a_query_that_no_store_could_answer_is_refused(world: World) {
    let ann = world.ann().await;
    for query in impossible(&world.dir) {
        assert!(query.once || !query.more.is_empty() || query.scope != Scope::Children);
        let error = ann.ask(query.clone()).await.expect_err("it has no answer");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{query:?}: {error}");
        let observing = world.in_time("watch", ann.store.watch(query.clone())).await;
        let error = observing.expect_err("it has no answer");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{query:?}: {error}");
    }
    ann.create(&world.at("n"), "").await;
}

async fn several_nodes_are_read_up_to_a_limit_and_not_observed(world: World) {
    let ann = world.ann().await;
    let several = |count: usize| {
        let mut paths = (0..count).map(|number| world.at(&format!("n{number}")));
        Query::nodes(paths.next().expect("at least one"), paths)
    };
    ann.create(&world.at("n0"), "").await;
    let draw = || Txn::new().create_sequential(world.at("t-"), "", Lifetime::Session);

    let most = Query::MAX_NODES;
    assert_eq!(ann.read(several(most)).await.nodes.len(), 1);
    let error = ann.ask(several(most + 1)).await.expect_err("too many");
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    refuses(&ann, draw().look(several(most + 1)), ErrorKind::TooLarge).await;
    let looked = draw().look(several(most));
    assert_eq!(ann.commit(looked).await.look.expect("it was asked for").nodes.len(), 1);

    let observing = world.in_time("watch", ann.store.watch(several(2))).await;
    let error = observing.expect_err("several nodes are not observed");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

async fn a_look_that_no_store_could_answer_is_refused(world: World) {
    let ann = world.ann().await;
    for query in impossible(&world.dir) {
        let txn = Txn::new().create(world.at("n"), "", Lifetime::Persistent).look(query);
        refuses(&ann, txn, ErrorKind::Invalid).await;
    }
    assert_eq!(ann.names(&world.dir).await, Vec::<String>::new());
}

/// A transaction of `count` creates, each with `bytes` bytes.
fn many(world: &World, count: usize, bytes: usize) -> Txn {
    let data = Bytes::from(vec![b'x'; bytes]);
    (0..count).fold(Txn::new(), |txn, number| {
        let path = world.at(&format!("m{number}"));
        let lifetime = Lifetime::Persistent;
        txn.op(Op::Create { path, data: data.clone(), lifetime, sequential: false })
    })
}

async fn what_is_too_large_is_refused_and_the_session_lives_on(world: World) {
    let ann = world.ann().await;
    let limits = ann.store.session().limits.clone();
    ann.create(&world.at("n"), "kept").await;
    let large = Bytes::from(vec![0; limits.data + 1]);
    let huge = Bytes::from(vec![0; 8 * limits.data]);

    refuses(&ann, Txn::new().set(world.at("n"), large, Expect::Any), ErrorKind::TooLarge).await;
    let huge = Txn::new().create(world.at("h"), huge, Lifetime::Persistent);
    refuses(&ann, huge, ErrorKind::TooLarge).await;
    refuses(&ann, many(&world, limits.operations + 1, 0), ErrorKind::TooLarge).await;
    let share = limits.data.min(limits.request / 3);
    refuses(&ann, many(&world, limits.request / share + 1, share), ErrorKind::TooLarge).await;

    assert!(matches!(ann.status(), Status::Live { .. }), "{:?}", ann.status());
    assert_eq!(ann.names(&world.dir).await, ["n"], "nothing was written");
    assert_eq!(ann.text(&world.at("n")).await.as_deref(), Some("kept"));
}

async fn what_just_fits_is_taken(world: World) {
    let ann = world.ann().await;
    let limits = ann.store.session().limits.clone();

    let _done = ann.commit(many(&world, limits.operations, 0)).await;
    assert_eq!(ann.names(&world.dir).await.len(), limits.operations);

    // In its own directory, each create needs more conditions, which some stores limit.
    let apart = (0..limits.operations).fold(Txn::new(), |txn, number| {
        txn.create(world.at(&format!("apart{number}/m")), "", Lifetime::Persistent)
    });
    let done = ann.commit(apart).await;
    assert_eq!(done.results.len(), limits.operations);
    for number in [0, limits.operations - 1] {
        assert!(ann.exists(&world.at(&format!("apart{number}/m"))).await);
    }

    let inside = |number: usize| world.at(&format!("full/m{number}"));
    let full = Txn::new().create(world.at("full"), "", Lifetime::Persistent);
    let children = 1..limits.operations;
    let full = children
        .clone()
        .fold(full, |txn, number| txn.create(inside(number), "", Lifetime::Persistent));
    let _done = ann.commit(full).await;
    assert_eq!(ann.names(&world.at("full")).await.len(), limits.operations - 1);
    let empty = children.fold(Txn::new(), |txn, number| txn.delete(inside(number), Expect::Any));
    let _done = ann.commit(empty.delete(world.at("full"), Expect::Any)).await;
    assert!(!ann.exists(&world.at("full")).await);

    let largest = Bytes::from(vec![7; limits.data]);
    ann.create(&world.at("large"), largest.clone()).await;
    let node = ann.get(&world.at("large")).await.expect("it was just created");
    assert!(node.data == largest);
}

async fn what_the_store_cannot_do_it_refuses(world: World) {
    let ann = world.ann().await;
    let node = world.at("n");
    let cannot = ann.store.session().limits.missing_features.contains(&Feature::TtlNodes);
    let life = Duration::from_secs(3_600);
    let txn = Txn::new().create(&node, "", Lifetime::Ttl(life));
    if cannot {
        refuses(&ann, txn, ErrorKind::Unsupported).await;
        assert!(!ann.exists(&node).await);
    } else {
        let _done = ann.commit(txn).await;
        assert!(ann.exists(&node).await);
    }
}
