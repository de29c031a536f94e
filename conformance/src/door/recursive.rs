//! Recursive deletes: a node and everything below it.

use futures_util::future::join;
use synod_core::client::Deletion;
use synod_core::store::{Lifetime, Query};
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::gate::Way;
use crate::door::{answer, done};
use crate::world::World;

cases![
    "D-TREE" catches [TreeLeavesOutItsRoot] => a_recursive_delete_removes_everything_and_nothing_else,
    "D-TREE" catches [AppliesHalf] => a_recursive_delete_removes_what_is_created_meanwhile,
    "D-TREE L-OUT-3" catches [TreeLeavesOutItsRoot] => a_recursive_delete_counts_what_is_gone_though_answers_are_lost,
];

async fn a_recursive_delete_removes_everything_and_nothing_else(world: World) {
    const LEAVES: usize = 90;
    let (client, bob, top) = (world.client().await, world.bob().await, world.at("top"));
    assert_eq!(answer(client.delete_recursive(&top).await), 0);
    // Neighbours whose paths begin in the same way.
    let others = [world.at("topmost"), world.at("to/p")];
    for other in &others {
        bob.create(other, "").await;
    }
    bob.create(&top, "data").await;
    for leaf in 0..LEAVES {
        bob.create(&top.join(&format!("n{leaf}")).expect("short"), "").await;
    }
    // Below containers, and ephemeral.
    bob.create(&world.at("top/a/b/c/d"), "").await;
    done(client.create(&world.at("top/a/b/e"), "", Lifetime::Session).await);

    let mut seen = Vec::new();
    let deleted = client.delete_recursive_with(&top, |deletion| seen.push(deletion)).await;

    let all = LEAVES + 3;
    assert_eq!(answer(deleted), all);
    assert_eq!(bob.read(Query::subtree(&top)).await.nodes, []);
    for other in &others {
        assert!(bob.exists(other).await, "{other}");
    }
    // Three transactions, and a read before and after them.
    let counts: Vec<_> =
        seen.iter().map(|Deletion { deleted, found, .. }| (*deleted, *found)).collect();
    assert_eq!(counts, [(0, all), (40, all), (80, all), (all, all), (all, all)]);
    // A container.
    bob.create(&world.at("top/a/b"), "").await;
    assert_eq!(answer(client.delete_recursive(&world.at("top/a")).await), 1);
}

async fn a_recursive_delete_removes_what_is_created_meanwhile(world: World) {
    let (gate, bob, top) = (world.gate(), world.bob().await, world.at("top"));
    for name in ["top", "top/a", "top/b", "top/c", "top/d"] {
        bob.create(&world.at(name), "").await;
    }
    let client = world.client_on(gate.clone(), world.options()).await;
    gate.set(Way::Holding);

    let meddling = async {
        // The call has read the tree.
        gate.held(1).await;
        bob.create(&world.at("top/b/new"), "").await;
        bob.set(&world.at("top/c"), "written").await;
        bob.delete(&world.at("top/d")).await;
        gate.set(Way::Open);
    };
    let both = join(client.delete_recursive(&top), meddling);
    let (deleted, ()) = world.in_time("a recursive delete", both).await;

    // Another client removed one of the six.
    assert_eq!(answer(deleted), 5);
    assert_eq!(bob.read(Query::subtree(&top)).await.nodes, []);
}

async fn a_recursive_delete_counts_what_is_gone_though_answers_are_lost(world: World) {
    const NODES: usize = 100;
    let (bob, top) = (world.bob().await, world.at("top"));
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate] {
        bob.create(&top, "").await;
        for node in 1..NODES {
            bob.create(&top.join(&format!("n{node}")).expect("short"), "").await;
        }
        let lost = (1..=2).map(|n| Cue::new(site).of(Verb::Commit).nth(n));
        let (client, plan) = world.scripted(lost).await;

        assert_eq!(answer(client.delete_recursive(&top).await), NODES, "{site:?}");

        assert_eq!(plan.pending(), 0, "{site:?}");
        assert_eq!(bob.read(Query::subtree(&top)).await.nodes, [], "{site:?}");
    }
}
