//! Children and trees: complete, sorted, and without other nodes.

use std::cell::Cell;
use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::join;
use synod_core::error::ErrorKind;
use synod_core::path::Path;
use synod_core::store::{Lifetime, Op, Query, Sequence, Txn, View};

use crate::actor::{Actor, names, text, text_of};
use crate::world::World;

cases![
    "L-KV-12 C-READ-3" catches [ListingUnsorted] => children_are_complete_and_sorted,
    "L-KV-12 C-READ-3" catches [TreeLeavesOutItsRoot] => a_tree_is_a_node_and_all_below_it,
    "L-KV-12 C-READ-3" catches [TreeLeavesOutContainers] => a_tree_names_the_containers_in_it,
    "L-KV-12 C-READ-3" catches [ChildrenIncludeGrandchildren] => children_are_one_level_below,
    "L-X-9 L-KV-12" catches [RangeEndIncludesSibling] => a_path_that_starts_alike_is_not_below,
    "L-X-9 L-KV-12" catches [PathTakenForPattern] => a_path_is_no_pattern,
    "L-KV-12 C-READ-3" catches [PrefixIgnored] => a_prefix_narrows_the_children,
    "L-KV-12 C-READ-3" catches [WindowUnsorted] => the_oldest_children_come_in_order,
    "L-KV-12 C-READ-3" catches [NewestFromTheWrongEnd] => the_newest_children_come_in_order,
    "L-KV-12 C-READ-3" catches [NewestFromTheWrongEnd] => a_window_counts_no_container,
    "L-KV-12 C-READ-3" catches [WindowIgnoresBefore] => the_newest_before_one_are_all_before_it,
    "L-KV-12 C-READ-3" catches [WindowBeforePrefix] => a_window_is_taken_of_what_has_the_prefix,
    "L-KV-12 C-READ-3" catches [ListingMixesRevisions] => a_tree_that_is_written_all_the_time_is_of_one_moment,
    "L-KV-13 C-READ-3" needs [Crowd] catches [ListingTruncated] => a_crowded_directory_is_listed_whole,
];

async fn create_all(actor: &Actor, paths: impl IntoIterator<Item = Path>) {
    let mut txn = Txn::new();
    for path in paths {
        if txn.ops.len() == actor.store.session().limits.operations.min(128) {
            let _done = actor.commit(std::mem::take(&mut txn)).await;
        }
        let (data, lifetime) = (Bytes::from_static(b"x"), Lifetime::Persistent);
        txn = txn.op(Op::Create { path, data, lifetime, sequential: false });
    }
    let _done = actor.commit(txn).await;
}

async fn children_are_complete_and_sorted(world: World) {
    let ann = world.ann().await;
    // Sorted by bytes, which differs from the order of UTF-16 and of languages.
    let sorted =
        ["!", "-", ".a", "0", "10", "9", "A", "Z", "_", "a", "a b", "aa", "b", "~", "é", "中"];
    let mut shuffled = sorted;
    shuffled.reverse();
    shuffled.swap(3, 9);

    for name in shuffled {
        ann.create(&world.at(&format!("d/{name}")), "x").await;
    }

    let dir = world.at("d");
    assert_eq!(names(&ann.read(Query::children(&dir)).await), sorted);
    assert_eq!(names(&ann.read(Query::children(&dir).local()).await), sorted);
    assert_eq!(ann.names(&dir).await, sorted);
    // The directory itself is a container, so the listing does not contain it.
    assert_eq!(names(&ann.read(Query::subtree(&dir)).await), sorted);
    assert!(ann.children(&dir).await.iter().all(|node| node.data == "x" && node.stat.is_some()));
}

async fn a_tree_is_a_node_and_all_below_it(world: World) {
    let ann = world.ann().await;
    let mut expected = ["t", "t/a", "t/a!", "t/a/b/c", "t/z"].map(|path| world.at(path)).to_vec();
    create_all(&ann, expected.iter().cloned()).await;
    expected.sort();

    for query in [Query::subtree(world.at("t")), Query::subtree(world.at("t")).local()] {
        let view = ann.read(query).await;

        assert!(view.nodes.is_sorted_by_key(|node| &node.path), "{view:?}");
        let nodes = view.nodes.iter().filter(|node| node.stat.is_some());
        assert_eq!(nodes.map(|node| node.path.clone()).collect::<Vec<_>>(), expected);
        for container in view.nodes.iter().filter(|node| node.stat.is_none()) {
            assert_eq!(container.path, world.at("t/a/b"), "nothing else was made on the way");
        }
    }
}

async fn a_tree_names_the_containers_in_it(world: World) {
    let ann = world.ann().await;
    create_all(&ann, ["t/a/b/c", "t/d"].map(|path| world.at(path))).await;
    let shown = [("t/a", false), ("t/a/b", false), ("t/a/b/c", true), ("t/d", true)];
    let shown = shown.map(|(path, is_node)| (world.at(path), is_node));

    for query in [Query::subtree(world.at("t")), Query::subtree(world.at("t")).names_only()] {
        let view = ann.read(query).await;

        let named = view.nodes.iter().map(|node| (node.path.clone(), node.stat.is_some()));
        assert_eq!(named.collect::<Vec<_>>(), shown, "its own path is a container, and not named");
    }
}

async fn children_are_one_level_below(world: World) {
    let ann = world.ann().await;
    create_all(&ann, ["d", "d/a", "d/a/x", "d/a/x/y", "d/b"].map(|path| world.at(path))).await;

    assert_eq!(ann.names(&world.at("d")).await, ["a", "b"]);
    assert_eq!(names(&ann.read(Query::children(world.at("d"))).await), ["a", "b"]);
    assert_eq!(ann.names(&world.at("d/a")).await, ["x"]);
    assert_eq!(ann.names(&world.at("d/b")).await, Vec::<String>::new());
}

async fn a_path_that_starts_alike_is_not_below(world: World) {
    let ann = world.ann().await;
    let alike = ["a", "a!", "a0", "ab", "ab/c", "a-b", "a.b/c", "b"];
    create_all(&ann, alike.map(|path| world.at(path))).await;
    ann.create(&world.at("a/own"), "").await;

    assert_eq!(ann.names(&world.at("a")).await, ["own"]);
    assert_eq!(names(&ann.read(Query::children(world.at("a"))).await), ["own"]);
    assert_eq!(names(&ann.read(Query::subtree(world.at("a"))).await), ["a", "own"]);
    ann.delete(&world.at("a/own")).await;
    ann.delete(&world.at("a")).await;
}

async fn a_path_is_no_pattern(world: World) {
    let ann = world.ann().await;
    // Names that `LIKE` of SQL would match as well: other case, any letter for `_`, any text for
    // `%`.
    let alike = ["a", "A/c", "_", "%", "z/c", "zz/c", "x_y", "xzy/c", "X_Y/c", "*", "[a]/c", "a*"];
    create_all(&ann, alike.map(|path| world.at(path))).await;

    for empty in ["a", "_", "%", "x_y", "*", "a*"] {
        let path = world.at(empty);
        assert_eq!(ann.names(&path).await, Vec::<String>::new(), "nothing is below {path}");
        let tree = ann.read(Query::subtree(&path)).await;
        assert_eq!(names(&tree), [empty], "nothing is below {path}");
    }
    assert_eq!(ann.names(&world.at("A")).await, ["c"]);
    for empty in ["a", "_", "%", "x_y", "*", "a*"] {
        ann.delete(&world.at(empty)).await;
    }
    assert_eq!(ann.names(&world.dir).await, ["A", "X_Y", "[a]", "xzy", "z", "zz"]);
}

async fn a_prefix_narrows_the_children(world: World) {
    let ann = world.ann().await;
    let all = ["a", "ab", "ab-1", "ab-2/below", "abc", "b", "ab!"];
    create_all(&ann, all.map(|path| world.at(&format!("d/{path}")))).await;
    let having = |prefix: &str| Query::children(world.at("d")).starting_with(prefix);

    assert_eq!(names(&ann.read(having("ab-")).await), ["ab-1", "ab-2"]);
    assert_eq!(
        names(&ann.read(having("ab").names_only()).await),
        ["ab", "ab!", "ab-1", "ab-2", "abc"]
    );
    assert_eq!(names(&ann.read(having("x")).await), Vec::<String>::new());
    assert_eq!(ann.read(having("")).await.nodes.len(), 7);
}

/// Five tickets in a line, with names that sort in another order, and two nodes that are not
/// tickets.
async fn line(world: &World, actor: &Actor) -> Vec<(String, Sequence)> {
    create_all(actor, ["!no-ticket", "~no-ticket/x"].map(|path| world.at(&format!("line/{path}"))))
        .await;
    let mut line = Vec::new();
    for name in ["e", "b", "d", "a", "c"] {
        let done = actor.draw(&world.at(&format!("line/{name}-")), Lifetime::Session).await;
        line.push((done.path.name().to_owned(), done.sequence.expect("a ticket has a sequence")));
    }
    line
}

/// The names and sequences of the tickets that a query finds.
async fn tickets(actor: &Actor, query: Query) -> Vec<(String, Sequence)> {
    let view = actor.read(query).await;
    let ours = view.nodes.iter().filter(|node| !node.path.name().contains("no-ticket"));
    let known = ours
        .map(|node| (node.path.name().to_owned(), node.sequence.expect("a ticket has a sequence")));
    known.collect()
}

async fn the_oldest_children_come_in_order(world: World) {
    let ann = world.ann().await;
    let line = line(&world, &ann).await;
    let query = || Query::children(world.at("line"));

    assert_eq!(tickets(&ann, query().oldest(100)).await, line);
    assert_eq!(tickets(&ann, query().starting_with("").oldest(100).local()).await, line);
    assert_eq!(tickets(&ann, query().oldest(100).names_only()).await, line);
    assert_eq!(tickets(&ann, query().starting_with("d-").oldest(2)).await, line[2..3]);
    assert_eq!(tickets(&ann, query().oldest(0)).await, []);
}

async fn the_newest_children_come_in_order(world: World) {
    let ann = world.ann().await;
    let line = line(&world, &ann).await;
    let query = || Query::children(world.at("line"));

    assert_eq!(tickets(&ann, query().newest(2)).await, line[3..]);
    assert_eq!(tickets(&ann, query().newest(100).names_only()).await, line);
    assert_eq!(tickets(&ann, query().newest(2).local()).await, line[3..]);
}

/// Also where a container has the name of a ticket.
async fn a_window_counts_no_container(world: World) {
    let (ann, dir) = (world.ann().await, world.at("d"));
    for number in ["0000000000", "2000000000"] {
        ann.create(&world.at(&format!("d/t-{number}/below")), "").await;
    }
    let mut line = Vec::new();
    for nth in 0..3 {
        line.push(ann.draw(&world.at(&format!("d/t-{nth}-")), Lifetime::Session).await.path);
    }
    let shown = async |query: Query| {
        let nodes = ann.read(query.starting_with("t-")).await.nodes;
        nodes.into_iter().map(|node| node.path).collect::<Vec<_>>()
    };

    assert_eq!(shown(Query::children(&dir).oldest(2)).await, line[..2]);
    assert_eq!(shown(Query::children(&dir).newest(1)).await, line[2..]);
    assert_eq!(shown(Query::children(&dir).newest(2)).await, line[1..]);
}

async fn the_newest_before_one_are_all_before_it(world: World) {
    let ann = world.ann().await;
    let line = line(&world, &ann).await;
    let before =
        |count, place: usize| Query::children(world.at("line")).newest_before(count, line[place].1);

    assert_eq!(tickets(&ann, before(1, 3)).await, line[2..3]);
    assert_eq!(tickets(&ann, before(2, 3).names_only()).await, line[1..3]);
    assert_eq!(tickets(&ann, before(100, 4)).await, line[..4]);
    assert_eq!(tickets(&ann, before(1, 0)).await, []);
}

async fn a_window_is_taken_of_what_has_the_prefix(world: World) {
    let ann = world.ann().await;
    let line = line(&world, &ann).await;
    let having = |prefix: &str| Query::children(world.at("line")).starting_with(prefix);

    // The line is e, b, d, a, c: the oldest and the newest of all have other prefixes.
    assert_eq!(tickets(&ann, having("d-").oldest(1)).await, line[2..3]);
    assert_eq!(tickets(&ann, having("d-").newest(1).names_only()).await, line[2..3]);
    assert_eq!(tickets(&ann, having("b-").newest_before(1, line[4].1)).await, line[1..2]);
    assert_eq!(tickets(&ann, having("x-").oldest(1)).await, []);
}

async fn a_tree_that_is_written_all_the_time_is_of_one_moment(world: World) {
    const NODES: usize = 300;

    let (ann, bob) = (world.ann().await, world.bob().await);
    let dir = world.at("tree");
    let nodes: Vec<Path> = (0..NODES).map(|node| world.at(&format!("tree/{node:03}"))).collect();
    create_all(&ann, nodes.iter().cloned()).await;

    // All over the tree, and every other time the same node.
    let place = |round: usize| if round.is_multiple_of(2) { round * 271 % NODES } else { 7 };
    let shows = |view: &View| {
        let written: Vec<Option<usize>> =
            view.nodes.iter().map(|node| text(node).parse().ok()).collect();
        assert_eq!(written.len(), NODES, "as many as there are at any moment");
        let last = written.iter().flatten().max().copied().unwrap_or_default();
        let due = (1..=last).map(|round| (place(round), round)).collect::<BTreeMap<_, _>>();
        for (node, written) in written.into_iter().enumerate() {
            assert_eq!(written, due.get(&node).copied(), "node {node}, when {last} were written");
        }
        last
    };
    let (stop, written) = (Cell::new(false), Cell::new(0));
    let writing = async {
        while !stop.get() {
            let round = written.get() + 1;
            ann.set(&nodes[place(round)], round.to_string()).await;
            written.set(round);
            if round.is_multiple_of(8) {
                world.think().await;
            }
        }
    };
    let further = async |rounds: usize| {
        let due = written.get() + rounds;
        while written.get() < due {
            world.think().await;
        }
    };
    let reading = async {
        further(20).await;
        let (view, watcher) = bob.watch(Query::subtree(&dir)).await;
        let mut seen = vec![shows(&view)];
        for query in [Query::subtree(&dir), Query::children(&dir)] {
            further(20).await;
            seen.push(shows(&bob.read(query).await));
        }
        drop(watcher);
        stop.set(true);
        assert!(seen[0] > 0 && seen.is_sorted(), "{seen:?}");
    };
    join(writing, reading).await;
    shows(&bob.read(Query::subtree(&dir)).await);
}

async fn a_crowded_directory_is_listed_whole(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let crowd = world.profile.crowd;
    let name = |number| format!("n{number:06}");
    create_all(&ann, (0..crowd).map(|number| world.at(&format!("crowd/{}", name(number))))).await;

    for query in
        [Query::children(world.at("crowd")).names_only(), Query::children(world.at("crowd"))]
    {
        match bob.ask(query).await {
            Ok(view) => {
                assert_eq!(view.nodes.len(), crowd);
                let mut listed = view.nodes.iter().enumerate();
                assert!(listed.all(|(number, node)| node.path.name() == name(number)));
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::TooLarge, "{}", text_of(&error)),
        }
    }
}
