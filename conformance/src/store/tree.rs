//! Parents, children and containers.

use futures_util::future::join;
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Query, RejectReason, Txn, Version};

use crate::actor::Actor;
use crate::world::World;

cases![
    "C-TREE-2 L-KV-16" catches [NoImplicitParents] => ancestors_are_never_missing,
    "C-TREE-2" catches [ContainerIsNode] => a_container_reads_as_absent,
    "C-TREE-2" catches [ContainerIsNode] => nothing_can_be_set_in_a_container,
    "C-TREE-2" catches [ListingLeavesOutContainers] => a_listing_names_a_container_without_a_stat,
    "C-TREE-2" catches [CreateReplacesContainer] => a_container_with_children_is_something_that_exists,
    "C-TREE-2" catches [ContainerStays] => an_empty_container_gives_way,
    "C-TREE-2" catches [ContainerIsNode] => creating_a_container_changes_nothing_that_can_be_seen,
    "C-TREE-2" catches [ParentGoesWithLastChild] => a_node_stays_when_its_last_child_goes,
    "C-TREE-3" catches [DeleteIgnoresChildren] => a_node_with_children_is_not_deleted,
    "C-TREE-3" catches [ContainerDeletesItsChildren] => a_container_with_children_is_not_deleted,
    "C-TREE-3" catches [ContainerDeletesItsChildren] => nor_is_one_where_a_ticket_was,
    "C-TREE-4" catches [EphemeralMayHaveChildren] => nothing_is_created_below_an_ephemeral_node,
    "C-TREE-4" catches [EphemeralMayHaveGrandchildren] => nothing_is_created_far_below_an_ephemeral_node,
    "L-KV-16" catches [NoImplicitParents] => a_deep_create_during_deletes_never_misses_a_parent,
];

async fn ancestors_are_never_missing(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);

    ann.create(&world.at("a/b/c/d"), "deep").await;
    ann.ephemeral(&world.at("e/f/g")).await;
    ann.draw(&world.at("s/t/u-"), Lifetime::Persistent).await;

    assert_eq!(bob.text(&world.at("a/b/c/d")).await.as_deref(), Some("deep"));
    assert!(bob.exists(&world.at("e/f/g")).await);
    assert_eq!(bob.names(&world.at("s/t")).await.len(), 1);
}

async fn a_container_reads_as_absent(world: World) {
    let ann = world.ann().await;
    ann.create(&world.at("a/b/c"), "").await;

    for path in [world.dir.clone(), world.at("a"), world.at("a/b")] {
        assert_eq!(ann.get(&path).await, None, "{path} is a container");
        let local = ann.read(Query::node(&path).local().names_only()).await;
        assert_eq!(local.node(), None, "{path} is a container");
        // A server may keep an entry there, with a first version.
        for expect in [Expect::Any, Expect::Version(Version::new(0))] {
            let no = ann.rejected(Txn::new().check(&path, expect)).await;
            assert_eq!(no.reason, RejectReason::Missing, "{path} {expect:?}");
        }
    }
}

async fn nothing_can_be_set_in_a_container(world: World) {
    let ann = world.ann().await;
    let container = world.at("a");
    ann.create(&world.at("a/b"), "").await;

    let no = ann.rejected(Txn::new().set(&container, "x", Expect::Any)).await;

    assert_eq!((no.index, &no.path, no.reason), (0, &container, RejectReason::Missing));
    assert_eq!(ann.get(&container).await, None);
}

async fn a_listing_names_a_container_without_a_stat(world: World) {
    let ann = world.ann().await;
    ann.create(&world.at("container/x/y"), "").await;
    ann.create(&world.at("node"), "data").await;

    for query in [Query::children(&world.dir), Query::children(&world.dir).local()] {
        let nodes = ann.read(query).await.nodes;

        let shown: Vec<_> =
            nodes.iter().map(|node| (node.path.name(), node.stat.is_some())).collect();
        assert_eq!(shown, [("container", false), ("node", true)]);
        assert!(nodes[0].data.is_empty() && nodes[0].sequence.is_none());
    }
    assert_eq!(ann.names(&world.dir).await, ["container", "node"]);
    assert_eq!(ann.names(&world.at("container")).await, ["x"]);
}

async fn a_container_with_children_is_something_that_exists(world: World) {
    let ann = world.ann().await;
    let container = world.at("a");
    ann.create(&world.at("a/b/c"), "").await;

    let create = ann.rejected(Txn::new().create(&container, "", Lifetime::Persistent)).await;
    let check = ann.rejected(Txn::new().check(&container, Expect::Absent)).await;

    assert_eq!((create.reason, check.reason), (RejectReason::Exists, RejectReason::Exists));
    assert!(ann.exists(&world.at("a/b/c")).await);
    assert_eq!(ann.get(&container).await, None);
}

async fn an_empty_container_gives_way(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    // Many rounds, because a store may have collected some of the parents already.
    for round in 0..12 {
        let lifetime = if round % 2 == 0 { Lifetime::Persistent } else { Lifetime::Session };
        let container = world.at(&format!("a{round}/b"));
        let child = container.join("c").expect("valid");
        ann.create(&child, "").await;
        ann.delete(&child).await;

        assert_eq!(bob.get(&container).await, None);
        let _absent = bob.commit(Txn::new().check(&container, Expect::Absent)).await;
        bob.make(&container, "node", lifetime).await;

        assert_eq!(ann.text(&container).await.as_deref(), Some("node"));
        assert_eq!(ann.names(&container).await, Vec::<String>::new());
    }
}

async fn creating_a_container_changes_nothing_that_can_be_seen(world: World) {
    let ann = world.ann().await;
    let container = world.at("c");

    let commit = ann.commit(Txn::new().create(&container, "", Lifetime::Container)).await;

    assert_eq!(commit.results.len(), 1);
    assert_eq!(commit.results[0].stat, None, "a container has no stat");
    assert_eq!(ann.get(&container).await, None);
    let _still_absent = ann.commit(Txn::new().check(&container, Expect::Absent)).await;
    ann.create(&container, "node").await;
    assert_eq!(ann.text(&container).await.as_deref(), Some("node"));
}

async fn a_node_stays_when_its_last_child_goes(world: World) {
    let ann = world.ann().await;
    let (parent, child) = (world.at("p"), world.at("p/c"));
    let stat = ann.create(&parent, "kept").await;

    ann.create(&child, "").await;
    ann.delete(&child).await;

    let node = ann.get(&parent).await.expect("it was not deleted");
    assert_eq!(node.data.as_ref(), b"kept");
    assert_eq!(node.stat, Some(stat), "a child that comes and goes does not write its parent");
}

async fn a_node_with_children_is_not_deleted(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    for below in ["near", "far/away"] {
        let parent = world.at(&format!("parent-{}", below.len()));
        let child = Path::new(&format!("{parent}/{below}")).expect("valid");
        let stat = ann.create(&parent, "").await;
        ann.create(&child, "").await;

        for expect in [Expect::Any, Expect::Version(stat.version)] {
            let no = bob.rejected(Txn::new().delete(&parent, expect)).await;
            assert_eq!((no.index, &no.path, no.reason), (0, &parent, RejectReason::HasChildren));
        }

        assert!(bob.exists(&parent).await && bob.exists(&child).await);
        bob.delete(&child).await;
        if below == "near" {
            bob.delete(&parent).await;
            assert!(!ann.exists(&parent).await);
        }
    }
}

async fn a_container_with_children_is_not_deleted(world: World) {
    let ann = world.ann().await;
    let child = world.at("a/b");
    ann.create(&child, "").await;

    let no = ann.rejected(Txn::new().delete(world.at("a"), Expect::Any)).await;

    assert_eq!(no.reason, RejectReason::HasChildren);
    assert!(ann.exists(&child).await);
}

async fn nor_is_one_where_a_ticket_was(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    // By its owner, or by another session.
    for (round, deleter) in [&ann, &bob].into_iter().enumerate() {
        let drawn = ann.draw(&world.at(&format!("d/{round}-")), Lifetime::Session).await;
        let version = drawn.stat.expect("a single create returns the stat").version;
        deleter.commit(Txn::new().delete(&drawn.path, Expect::Version(version))).await;
        let child = drawn.path.join("child").expect("valid");
        bob.create(&child, "").await;

        let no = ann.rejected(Txn::new().delete(&drawn.path, Expect::Any)).await;

        assert_eq!((&no.path, no.reason), (&drawn.path, RejectReason::HasChildren));
        assert!(bob.exists(&child).await);
    }
}

async fn nothing_is_created_below_an_ephemeral_node(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    ann.ephemeral(&world.at("e")).await;

    for actor in [&ann, &bob] {
        refuse_below_ephemeral(actor, &world.at("e/child")).await;
    }

    let ticket = world.at("e/ticket-");
    let no = bob.rejected(Txn::new().create_sequential(&ticket, "", Lifetime::Session)).await;
    assert_eq!((no.index, no.reason), (0, RejectReason::BelowEphemeral));
    assert_eq!(bob.names(&world.at("e")).await, Vec::<String>::new());
}

async fn nothing_is_created_far_below_an_ephemeral_node(world: World) {
    let ann = world.ann().await;
    ann.ephemeral(&world.at("e")).await;

    refuse_below_ephemeral(&ann, &world.at("e/a/b/c")).await;

    assert_eq!(ann.names(&world.at("e")).await, Vec::<String>::new(), "nor are containers left");
}

async fn refuse_below_ephemeral(actor: &Actor, path: &Path) {
    for lifetime in [Lifetime::Persistent, Lifetime::Session] {
        let no = actor.rejected(Txn::new().create(path, "", lifetime)).await;
        assert_eq!((no.index, &no.path, no.reason), (0, path, RejectReason::BelowEphemeral));
    }
    assert!(!actor.exists(path).await);
}

async fn a_deep_create_during_deletes_never_misses_a_parent(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let making = async |actor: &Actor, name: &str| {
        for _ in 0..20 {
            let path = world.at(&format!("a/b/{name}"));
            actor.create(&path, name.to_owned()).await;
            world.think().await;
            actor.delete(&path).await;
            world.think().await;
        }
    };

    join(making(&ann, "ann"), making(&bob, "bob")).await;

    assert_eq!(
        ann.get(&world.at("a/b")).await,
        None,
        "a path without a create is at most a container"
    );
}
