//! One node: create, set, delete, and versions.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use synod_core::store::{Expect, Lifetime, RejectReason, Txn};

use crate::actor::only;
use crate::world::World;

cases![
    "L-KV-14 C-TREE-1" catches [TextOnly] => bytes_come_out_as_they_went_in,
    "L-KV-14 C-TREE-6" catches [EmptyIsAbsent] => a_node_with_no_bytes_is_not_absent,
    "L-KV-7" catches [CreateOverwrites] => a_create_of_what_exists_changes_nothing,
    "L-KV-7" catches [CreateOverwrites] => of_many_concurrent_creates_one_succeeds,
    "L-KV-5" catches [CasIgnoresVersion] => a_set_with_another_version_changes_nothing,
    "L-KV-5" catches [DeleteIgnoresVersion] => a_delete_with_another_version_removes_nothing,
    "L-KV-5" catches [CheckIgnoresVersion] => a_check_of_another_version_stops_the_transaction,
    "L-KV-5" catches [CasNeverMatches] => a_write_with_the_version_it_read_happens,
    "L-KV-5 C-WRITE-2" catches [SetCreates] => a_set_of_what_is_missing_is_rejected,
    "L-KV-5 C-WRITE-2" catches [DeleteOfMissingSucceeds] => a_delete_of_what_is_missing_is_rejected,
    "L-KV-6 L-OUT-2" catches [VersionStays AppliesTwice] => each_write_of_an_incarnation_has_a_version_of_its_own,
    "L-KV-6" catches [WriteMovesCreated] => a_write_leaves_the_incarnation,
    "L-KV-6 L-WAT-11" catches [TwoNodesShareCreated] => a_node_that_is_made_again_is_another,
    "L-KV-6" catches [RevisionFalls] => revisions_rise_with_every_write,
];

async fn bytes_come_out_as_they_went_in(world: World) {
    // A busy machine needs time for many bytes, and no session may end meanwhile.
    let long = world.profile.patience;
    let (ann, bob) = (world.session(long).await, world.session(long).await);
    for length in [1, 2, 255, 256, 257, 65_536, ann.store.session().limits.data] {
        let path = world.at(&format!("n{length}"));
        let data: Vec<u8> = (0..=u8::MAX).rev().cycle().take(length).collect();

        ann.create(&path, data.clone()).await;

        let node = bob.get(&path).await.expect("it was just created");
        assert!(node.data == data, "{length} bytes came out as {} other ones", node.data.len());
        assert_eq!(node.path, path);
        assert!(node.stat.is_some(), "a node that is read with its data has a stat");
    }
}

async fn a_node_with_no_bytes_is_not_absent(world: World) {
    let ann = world.ann().await;
    let path = world.at("empty");

    ann.create(&path, "").await;
    assert_eq!(ann.text(&path).await.as_deref(), Some(""));

    ann.set(&path, "x").await;
    ann.set(&path, "").await;
    assert_eq!(ann.text(&path).await.as_deref(), Some(""));
    assert_eq!(ann.names(&world.dir).await, ["empty"]);
}

async fn a_create_of_what_exists_changes_nothing(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let path = world.at("n");
    let stat = ann.create(&path, "ann").await;

    for lifetime in [Lifetime::Persistent, Lifetime::Session, Lifetime::Container] {
        let data = if lifetime == Lifetime::Container { "" } else { "bob" };
        let no = bob.rejected(Txn::new().create(&path, data, lifetime)).await;
        assert_eq!(
            (no.index, &no.path, no.reason),
            (0, &path, RejectReason::Exists),
            "{lifetime:?}"
        );
    }

    let node = bob.get(&path).await.expect("it still exists");
    assert_eq!((node.data.as_ref(), node.stat), (b"ann".as_ref(), Some(stat)));
}

async fn of_many_concurrent_creates_one_succeeds(world: World) {
    let actors = join_all((0..5).map(|_| world.ann())).await;
    for round in 0..10 {
        let path = world.at(&format!("n{round}"));
        let tries = actors.iter().map(|actor| async {
            world.think().await;
            let txn = Txn::new().create(&path, actor.id().to_string(), Lifetime::Persistent);
            let outcome = actor.attempt(txn).await.expect("the store answers");
            outcome.ok().map(|_| actor.id().to_string())
        });

        let winners: Vec<_> = join_all(tries).await.into_iter().flatten().collect();

        let winner = only(winners);
        assert_eq!(actors[0].text(&path).await, Some(winner), "it holds what its creator wrote");
    }
}

async fn a_set_with_another_version_changes_nothing(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let path = world.at("n");
    let old = ann.create(&path, "old").await;
    let new = ann.set(&path, "new").await;

    let txn = Txn::new().set(&path, "late", Expect::Version(old.version));
    let no = bob.rejected(txn).await;

    assert_eq!((no.index, &no.path, no.reason), (0, &path, RejectReason::OtherVersion));
    let node = bob.get(&path).await.expect("it still exists");
    assert_eq!((node.data.as_ref(), node.stat), (b"new".as_ref(), Some(new)));
}

async fn a_delete_with_another_version_removes_nothing(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let path = world.at("n");
    let old = ann.create(&path, "old").await;
    ann.set(&path, "new").await;

    let no = bob.rejected(Txn::new().delete(&path, Expect::Version(old.version))).await;

    assert_eq!((no.index, &no.path, no.reason), (0, &path, RejectReason::OtherVersion));
    assert_eq!(bob.text(&path).await.as_deref(), Some("new"));
}

async fn a_check_of_another_version_stops_the_transaction(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let (path, other) = (world.at("n"), world.at("other"));
    let old = ann.create(&path, "old").await;
    let new = ann.set(&path, "new").await;
    let guarded = |version| {
        let txn = Txn::new().check(&path, Expect::Version(version));
        txn.create(&other, "", Lifetime::Persistent)
    };

    let no = bob.rejected(guarded(old.version)).await;
    assert_eq!((no.index, &no.path, no.reason), (0, &path, RejectReason::OtherVersion));
    assert!(!bob.exists(&other).await);

    let _done = bob.commit(guarded(new.version)).await;
    assert!(bob.exists(&other).await);
    assert_eq!(
        bob.get(&path).await.and_then(|node| node.stat),
        Some(new),
        "a check changes nothing"
    );
}

async fn a_write_with_the_version_it_read_happens(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let path = world.at("n");
    ann.create(&path, "0").await;

    for round in 1..=5 {
        let stat = bob.get(&path).await.and_then(|node| node.stat).expect("it exists");
        let txn = Txn::new().set(&path, round.to_string(), Expect::Version(stat.version));
        let _done = bob.commit(txn).await;
    }

    let node = ann.get(&path).await.expect("it exists");
    assert_eq!(node.data.as_ref(), b"5");
    let version = node.stat.expect("a node has a stat").version;
    let _done = ann.commit(Txn::new().delete(&path, Expect::Version(version))).await;
    assert!(!bob.exists(&path).await);
}

async fn a_set_of_what_is_missing_is_rejected(world: World) {
    let ann = world.ann().await;
    let path = world.at("n");

    let no = ann.rejected(Txn::new().set(&path, "x", Expect::Any)).await;

    assert_eq!((no.index, &no.path, no.reason), (0, &path, RejectReason::Missing));
    assert!(!ann.exists(&path).await);
}

async fn a_delete_of_what_is_missing_is_rejected(world: World) {
    let ann = world.ann().await;
    let path = world.at("n");
    let never = ann.rejected(Txn::new().delete(&path, Expect::Any)).await;
    assert_eq!((never.index, &never.path, never.reason), (0, &path, RejectReason::Missing));

    ann.create(&path, "").await;
    ann.delete(&path).await;
    let twice = ann.rejected(Txn::new().delete(&path, Expect::Any)).await;
    assert_eq!(twice.reason, RejectReason::Missing);
}

async fn each_write_of_an_incarnation_has_a_version_of_its_own(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let path = world.at("n");
    let mut versions = BTreeSet::from([ann.create(&path, "").await.version.get()]);

    for round in 0_u8..20 {
        // The same bytes again are a write too.
        let stat =
            if round % 2 == 0 { ann.set(&path, "x").await } else { bob.set(&path, "x").await };
        assert!(versions.insert(stat.version.get()), "version {} came twice", stat.version);
        let read = bob.get(&path).await.and_then(|node| node.stat);
        assert_eq!(read, Some(stat), "a read returns the same stat as the write");
    }
}

async fn a_write_leaves_the_incarnation(world: World) {
    let ann = world.ann().await;
    let path = world.at("n");
    let first = ann.create(&path, "").await;

    let second = ann.set(&path, "x").await;

    assert_eq!(first.created, first.modified, "a node that was never written since");
    assert_eq!(second.created, first.created);
    assert!(second.modified > first.modified);
}

async fn a_node_that_is_made_again_is_another(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let path = world.at("n");
    let mut created = BTreeSet::new();
    let mut latest = None;

    for _ in 0..5 {
        let stat = ann.create(&path, "same").await;
        assert!(created.insert(stat.created), "two incarnations share {}", stat.created);
        assert!(Some(stat.created) > latest, "a later incarnation is greater");
        latest = Some(stat.created);
        assert_eq!(bob.get(&path).await.and_then(|node| node.stat), Some(stat));
        ann.delete(&path).await;
    }
}

async fn revisions_rise_with_every_write(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let mut last = None;

    for round in 0..10 {
        let actor = if round % 2 == 0 { &ann } else { &bob };
        let path = world.at(&format!("n{}", round % 3));
        let stat = if actor.exists(&path).await {
            actor.set(&path, "x").await
        } else {
            actor.create(&path, "").await
        };
        assert!(Some(stat.modified) > last, "{} after {last:?}", stat.modified);
        last = Some(stat.modified);
    }
}
