//! The effects that the answer to a call reports.

use futures_util::future::{join_all, join3};
use synod_core::store::{Expect, Lifetime, Query, Txn};

use tokio::time::timeout;

use crate::actor::{only, text_of};
use crate::harness::Link;
use crate::world::World;

cases![
    "L-OUT-1 C-WRITE-2" catches [RejectedAppliesLater] => what_was_rejected_never_happens,
    "L-OUT-2" needs [Truth] catches [AppliesTwice] => what_was_answered_happened_once,
    "L-OUT-7" catches [ErrorWithoutPath] => an_error_is_one_line_that_names_its_path,
    "L-OUT-7" needs [Links] catches [LaterErrorWithoutPath] => an_error_of_a_server_that_is_gone_names_its_path,
    "L-OUT-8 L-X-4" catches [OneCallAtATime] => many_calls_at_once_are_all_answered,
];

async fn what_was_rejected_never_happens(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let [node, other] = ["n", "m"].map(|name| world.at(name));
    ann.create(&node, "right").await;
    let txn = Txn::new().create(&other, "wrong", Lifetime::Persistent);
    bob.rejected(Txn::new().create(&node, "wrong", Lifetime::Persistent)).await;
    bob.rejected(txn.check(world.at("missing"), Expect::Any)).await;

    for _ in 0..20 {
        world.think().await;
        bob.set(&node, "right").await;
        assert_eq!(ann.text(&node).await.as_deref(), Some("right"));
        assert!(!ann.exists(&other).await);
    }
    tokio::time::sleep(ann.ttl() * 2).await;
    assert_eq!(ann.names(&world.dir).await, ["n"]);
}

async fn what_was_answered_happened_once(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let mut done = Vec::new();
    for round in 0..10 {
        let actor = if round % 2 == 0 { &ann } else { &bob };
        let node = world.at(&format!("n{round}"));
        done.push((node.clone(), actor.create(&node, "").await.created));
        done.push((node.clone(), actor.set(&node, "x").await.modified));
    }

    let truth = world.harness.truth().await;
    for (path, revision) in &done {
        let mut entries = truth.iter().filter(|change| change.path == *path);
        let found = entries.clone().filter(|change| change.revision == Some(*revision)).count();
        assert_eq!(found, 1, "{path} was written at {revision}, once");
        assert_eq!(entries.by_ref().count(), 2, "{path} was written twice");
    }
}

async fn an_error_is_one_line_that_names_its_path(world: World) {
    let ann = world.ann().await;
    let node = world.at("n");
    let large = vec![0; ann.store.session().limits.data + 1];
    let errors = [
        ann.attempt(Txn::new().create(&node, large, Lifetime::Persistent)).await.err(),
        ann.attempt(Txn::new().set(&node, "", Expect::Absent)).await.err(),
        ann.ask(Query::node(&node).starting_with("x")).await.err(),
    ];
    for error in errors {
        let error = error.expect("it cannot be done");
        let shown = text_of(&error);
        assert_eq!(error.path(), Some(&node), "{shown}");
        assert!(shown.contains(node.as_str()) && !shown.contains('\n'), "{shown}");
    }
}

async fn an_error_of_a_server_that_is_gone_names_its_path(world: World) {
    let ann = world.ann().await;
    let [node, other] = ["n", "d/m"].map(|name| world.at(name));
    world.link(ann.id(), Link::Cut).await;

    // Both while the session may still recover, and when it is lost.
    for _ in 0..2 {
        let two = Txn::new().create(&node, "", Lifetime::Persistent);
        let two = two.check(&other, Expect::Absent);
        let limit = ann.ttl() + world.profile.patience;
        let (read, observed, committed) = join3(
            timeout(limit, ann.store.read(Query::node(&node))),
            timeout(limit, ann.store.watch(Query::children(&node))),
            timeout(limit, ann.store.commit(two)),
        )
        .await;

        let errors = [
            read.expect("a read ends").err(),
            observed.expect("an observation ends").err(),
            committed.expect("a commit ends").err(),
        ];
        for error in errors {
            let error = error.expect("nothing comes through");
            // The error of a transaction names its first operation.
            assert_eq!(error.path(), Some(&node), "{}", text_of(&error));
        }
        ann.lost().await;
    }
}

async fn many_calls_at_once_are_all_answered(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let calls = (0..200).map(|number| {
        let (ann, bob, world) = (&ann, &bob, &world);
        async move {
            let node = world.at(&format!("n{}", number % 20));
            let actor = if number % 2 == 0 { ann } else { bob };
            let txn = Txn::new().create(&node, "", Lifetime::Persistent);
            let made = actor.attempt(txn).await.expect("the store answers").is_committed();
            assert!(actor.exists(&node).await, "a create was answered: it exists");
            usize::from(made)
        }
    });

    let made: usize = join_all(calls).await.into_iter().sum();

    assert_eq!(made, 20);
    assert_eq!(ann.names(&world.dir).await.len(), 20);
    let view = bob.read(Query::node(world.at("n0"))).await;
    only(view.nodes);
}
