//! Several operations as one transaction, and their results.

use std::collections::BTreeSet;

use futures_util::future::{join, join_all};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, OpResult, Outcome, Query, RejectReason, Rejected, Txn};

use crate::actor::{Actor, names, text};
use crate::world::World;

cases![
    "L-KV-9 C-WRITE-1" catches [AppliesOneByOne] => a_transaction_happens_at_one_revision,
    "L-KV-9 C-READ-3" catches [ListingMixesRevisions] => no_reader_sees_half_of_a_transaction,
    "L-KV-18 C-READ-3 C-WRITE-8" catches [NodesReadOneByOne] => several_nodes_are_read_as_of_one_moment,
    "L-KV-9 C-WRITE-1" catches [ChecksCountAsChange] => a_transaction_of_checks_is_no_change,
    "L-KV-10 L-OUT-1 C-WRITE-1" catches [AppliesHalf] => a_rejected_transaction_changes_nothing,
    "L-KV-10 C-WRITE-2" catches [RejectedNamesLast] => the_first_operation_that_fails_is_named,
    "L-KV-10 C-WRITE-2" catches [RejectedWithoutPlace] => a_rejection_names_the_place_of_its_operation,
    "C-WRITE-1" catches [OpsBlindToEachOther] => operations_see_those_before_them,
    "C-WRITE-1" catches [OpsBlindToEachOther] => children_of_what_goes_before_are_gone,
    "C-WRITE-1" catches [OpsBlindToEachOther] => nothing_is_far_below_what_goes_before,
    "C-WRITE-1" catches [AnswerLeavesOutChecks] => the_answer_has_one_entry_for_each_operation,
    "C-WRITE-1" catches [StatOfBefore] => a_write_is_answered_with_what_the_node_is_now,
    "C-WRITE-1" catches [LookBeforeCommit] => a_look_reflects_its_own_commit,
    "C-WRITE-1" catches [LookShowsLater] => a_look_shows_nothing_above_its_own_ticket,
    "L-KV-17 C-WRITE-8" catches [RejectionNotLooked] => a_look_of_a_rejected_transaction_shows_the_reason,
    "L-KV-17 C-WRITE-8" catches [RejectionLookedBefore] => the_loser_of_a_race_sees_the_winner,
    "C-WRITE-1" catches [LookIgnoresPrefix] => a_look_is_narrowed_as_a_read_is,
    "C-WRITE-1" catches [LookTakenAsRead] => a_look_shows_tickets_created_since_the_last_one,
    "C-WRITE-1" catches [LookTakenAsRead] => a_look_shows_tickets_of_a_directory_that_was_created_again,
    "C-WRITE-1" catches [CheckWrites] => a_transaction_of_checks_changes_nothing,
];

fn writes(path: &Path) -> Txn {
    Txn::new().create(path, "", Lifetime::Persistent)
}

async fn a_transaction_happens_at_one_revision(world: World) {
    let ann = world.ann().await;
    let [a, b, c, d] = ["a", "b/b", "c", "d"].map(|name| world.at(name));
    ann.create(&c, "old").await;
    ann.create(&d, "").await;

    let txn = writes(&a).create(&b, "", Lifetime::Session).set(&c, "new", Expect::Any);
    let commit = ann.commit(txn.delete(&d, Expect::Any)).await;

    let mut revisions = Vec::new();
    for path in [&a, &b, &c] {
        let stat = ann.get(path).await.and_then(|node| node.stat);
        revisions.push(stat.expect("it was just written").modified);
    }
    revisions.extend(commit.revision);
    revisions.extend(commit.results.iter().filter_map(|done| done.stat).map(|stat| stat.modified));
    assert!(revisions.iter().all(|revision| *revision == revisions[0]), "{revisions:?}");
    assert!(!ann.exists(&d).await);
}

async fn several_nodes_are_read_as_of_one_moment(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let [a, b, d, far] = ["a", "b", "d", "c/c"].map(|name| world.at(name));
    for node in [&a, &b, &d, &far] {
        ann.create(node, "0").await;
    }
    // The directory is a container, so it is not listed.
    let dir = world.at("c");
    let several = || Query::nodes(&far, [&b, &a, &b, &world.at("absent"), &dir].map(Clone::clone));

    let writing = async {
        for round in 1..=40 {
            let [a, b] = [&a, &b].map(Clone::clone);
            let set = |txn: Txn, path| txn.set(path, round.to_string(), Expect::Any);
            let _commit = ann.commit(set(set(set(Txn::new(), b), a), far.clone())).await;
            world.think().await;
        }
    };
    let reading = async {
        for round in 0..40 {
            let view = match round % 3 {
                0 => bob.read(several()).await,
                1 => bob.read(several().local()).await,
                _ => {
                    let check = Txn::new().check(&d, Expect::Any).look(several());
                    bob.commit(check).await.look.expect("a look was asked for")
                }
            };
            let paths: Vec<_> = view.nodes.iter().map(|node| &node.path).collect();
            assert_eq!(paths, [&a, &b, &far], "those that exist, sorted");
            let texts: BTreeSet<_> = view.nodes.iter().map(text).collect();
            assert_eq!(texts.len(), 1, "{view:?}");
            world.think().await;
        }
    };
    join(writing, reading).await;
    let names = bob.read(several().names_only()).await;
    assert!(names.nodes.iter().all(|node| node.data.is_empty() && node.stat.is_some()));
}

async fn a_transaction_of_checks_is_no_change(world: World) {
    let ann = world.ann().await;
    let [node, absent] = ["n", "absent"].map(|name| world.at(name));
    for round in 0..5 {
        let before = ann.make_or_set(&node, round.to_string()).await;
        let checks = Txn::new().check(&node, Expect::Version(before.version));

        let commit = ann.commit(checks.check(&absent, Expect::Absent)).await;

        assert!(commit.results.iter().all(|done| done.stat.is_none() && done.sequence.is_none()));
        let after = ann.get(&node).await.and_then(|node| node.stat);
        assert_eq!(after, Some(before), "a check writes nothing");
        let later = ann.set(&node, "later").await;
        if let Some(revision) = commit.revision {
            assert!(revision >= before.modified, "the checks held at {revision}");
            assert!(revision < later.modified, "no change has the revision of the checks");
        }
    }
}

async fn no_reader_sees_half_of_a_transaction(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let [left, right] = ["a-left", "z-right"].map(|name| world.at(name));
    for filler in 0..20 {
        ann.create(&world.at(&format!("m{filler}")), "").await;
    }
    ann.create(&left, "").await;

    let moving = async {
        for round in 0..40 {
            let (from, to) = if round % 2 == 0 { (&left, &right) } else { (&right, &left) };
            let _moved = ann.commit(writes(to).delete(from, Expect::Any)).await;
            world.think().await;
        }
    };
    let looking = async {
        for round in 0..40 {
            let query = match round % 3 {
                0 => Query::children(&world.dir),
                1 => Query::children(&world.dir).names_only().local(),
                _ => Query::subtree(&world.dir),
            };
            let seen = names(&bob.read(query).await);
            let both = ["a-left", "z-right"].map(|name| seen.iter().any(|seen| seen == name));
            assert!(both[0] != both[1], "it is in one place at a time: {seen:?}");
            world.think().await;
        }
    };
    join(moving, looking).await;
}

async fn a_rejected_transaction_changes_nothing(world: World) {
    let ann = world.ann().await;
    let [made, kept, gone] = ["deep/made", "kept", "gone"].map(|name| world.at(name));
    let stat = ann.create(&kept, "old").await;
    ann.create(&gone, "").await;

    let txn = writes(&made).set(&kept, "new", Expect::Any).delete(&gone, Expect::Any);
    let txn = txn.create_sequential(world.at("s-"), "", Lifetime::Session);
    let no = ann.rejected(txn.check(world.at("missing"), Expect::Any)).await;

    assert_eq!((no.index, no.reason), (4, RejectReason::Missing));
    let node = ann.get(&kept).await.expect("it still exists");
    assert_eq!((text(&node).as_str(), node.stat), ("old", Some(stat)));
    assert!(!ann.exists(&made).await);
    assert_eq!(ann.names(&world.dir).await, ["gone", "kept"], "nor is a container left");
}

async fn the_first_operation_that_fails_is_named(world: World) {
    let ann = world.ann().await;
    let here = world.at("here");
    ann.create(&here, "").await;

    let txn = Txn::new().check(&here, Expect::Any).check(world.at("x"), Expect::Absent);
    let txn = txn.create(&here, "", Lifetime::Persistent).delete(world.at("y"), Expect::Any);
    let no = ann.rejected(txn.set(world.at("z"), "", Expect::Any)).await;

    assert_eq!(no, Rejected::new(2, here, RejectReason::Exists));
}

async fn a_rejection_names_the_place_of_its_operation(world: World) {
    let ann = world.ann().await;
    let [node, leaf, missing] = ["node", "node/leaf", "missing"].map(|name| world.at(name));
    let old = ann.create(&node, "").await;
    ann.set(&node, "").await;
    ann.create(&leaf, "").await;
    ann.ephemeral(&world.at("e")).await;
    let stale = Expect::Version(old.version);
    let table: [(Txn, &Path, RejectReason); 9] = [
        (writes(&node), &node, RejectReason::Exists),
        (Txn::new().set(&missing, "", Expect::Any), &missing, RejectReason::Missing),
        (Txn::new().set(&missing, "", stale), &missing, RejectReason::Missing),
        (Txn::new().set(&node, "", stale), &node, RejectReason::OtherVersion),
        (Txn::new().delete(&missing, Expect::Any), &missing, RejectReason::Missing),
        (Txn::new().delete(&node, Expect::Any), &node, RejectReason::HasChildren),
        (Txn::new().check(&missing, stale), &missing, RejectReason::Missing),
        (Txn::new().check(&node, stale), &node, RejectReason::OtherVersion),
        (writes(&world.at("e/x")), &world.at("e/x"), RejectReason::BelowEphemeral),
    ];

    for (failing, path, why) in table {
        let failing = failing.ops.into_iter().next().expect("one operation");
        let before = writes(&world.at("new")).check(&leaf, Expect::Any);
        let no = ann.rejected(before.op(failing.clone()).delete(&leaf, Expect::Any)).await;
        assert_eq!(no, Rejected::new(2, path.clone(), why), "{failing:?}");
        assert!(!ann.exists(&world.at("new")).await, "{failing:?}");
    }
}

async fn operations_see_those_before_them(world: World) {
    let ann = world.ann().await;
    let [parent, child, lonely] = ["p", "p/c", "q/c"].map(|name| world.at(name));

    let _both = ann.commit(writes(&parent).create(&child, "", Lifetime::Persistent)).await;
    assert!(ann.exists(&parent).await && ann.exists(&child).await);

    let no = ann.rejected(writes(&lonely).create(world.at("q"), "", Lifetime::Persistent)).await;
    assert_eq!(
        (no.index, no.reason),
        (1, RejectReason::Exists),
        "its child has made it a container"
    );

    let ephemeral = Txn::new().create(world.at("e"), "", Lifetime::Session);
    let no = ann.rejected(ephemeral.create(world.at("e/x"), "", Lifetime::Persistent)).await;
    assert_eq!((no.index, no.reason), (1, RejectReason::BelowEphemeral));
    assert_eq!(ann.names(&world.dir).await, ["p"]);
}

async fn children_of_what_goes_before_are_gone(world: World) {
    let ann = world.ann().await;
    let [parent, child, other] = ["p", "p/c", "p/d"].map(|name| world.at(name));
    let _both = ann.commit(writes(&parent).create(&child, "", Lifetime::Persistent)).await;
    let upwards = || Txn::new().delete(&child, Expect::Any).delete(&parent, Expect::Any);

    ann.create(&other, "").await;
    let no = ann.rejected(upwards()).await;
    assert_eq!((no.index, no.reason), (1, RejectReason::HasChildren));

    ann.delete(&other).await;
    let downwards = Txn::new().delete(&parent, Expect::Any).delete(&child, Expect::Any);
    let no = ann.rejected(downwards).await;
    assert_eq!((no.index, no.reason), (0, RejectReason::HasChildren));

    let _gone = ann.commit(upwards()).await;
    assert!(!ann.exists(&parent).await && !ann.exists(&child).await);
}

async fn nothing_is_far_below_what_goes_before(world: World) {
    let ann = world.ann().await;
    let [node, child] = ["a", "a/child"].map(|name| world.at(name));
    ann.create(&node, "").await;
    ann.create(&child, "").await;

    let mut txn = Txn::new().delete(&child, Expect::Any).delete(&node, Expect::Any);
    for absent in ["a/b/x", "a/b/y", "a/c/d/x", "a/child/x", "a/b/z"] {
        txn = txn.check(world.at(absent), Expect::Absent);
    }
    ann.commit(txn).await;

    assert!(!ann.exists(&node).await);
    assert_eq!(ann.names(&node).await, Vec::<String>::new());
}

async fn the_answer_has_one_entry_for_each_operation(world: World) {
    let ann = world.ann().await;
    let [a, b, c] = ["a", "b", "c"].map(|name| world.at(name));
    ann.create(&b, "").await;
    ann.create(&c, "").await;

    let txn = Txn::new().check(&b, Expect::Any).create(&a, "", Lifetime::Persistent);
    let txn = txn.set(&b, "x", Expect::Any).delete(&c, Expect::Any);
    let commit = ann.commit(txn).await;

    let paths: Vec<_> = commit.results.iter().map(|done| &done.path).collect();
    assert_eq!(paths, [&b, &a, &b, &c]);
    let stats = [&a, &b].map(|path| async { ann.get(path).await.and_then(|node| node.stat) });
    for (done, stat) in
        [&commit.results[1], &commit.results[2]].into_iter().zip(join_all(stats).await)
    {
        assert!(done.stat.is_none() || done.stat == stat, "a returned stat is true: {done:?}");
    }
}

async fn a_write_is_answered_with_what_the_node_is_now(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let [node, ephemeral] = ["n", "e"].map(|name| world.at(name));

    let created = ann.create(&node, "").await;
    assert_eq!(created.owner, None);
    assert_eq!(bob.get(&node).await.and_then(|node| node.stat), Some(created));

    let set = ann.set(&node, "x").await;
    assert_ne!(set.version, created.version);
    assert_eq!(bob.get(&node).await.and_then(|node| node.stat), Some(set));

    let owned = ann.ephemeral(&ephemeral).await;
    assert_eq!(owned.owner, Some(ann.id()));
    assert_eq!(bob.get(&ephemeral).await.and_then(|node| node.stat), Some(owned));
}

async fn a_look_reflects_its_own_commit(world: World) {
    let ann = world.ann().await;
    let node = world.at("n");

    let commit = ann.commit(writes(&node).look(Query::node(&node))).await;
    let seen = commit.look.expect("a look was asked for").into_node();
    assert_eq!(seen.and_then(|node| node.stat), commit.results[0].stat);

    let set = Txn::new().set(&node, "x", Expect::Any).look(Query::children(&world.dir).local());
    let view = ann.commit(set).await.look.expect("a look was asked for");
    assert_eq!(view.nodes.iter().map(text).collect::<Vec<_>>(), ["x"]);

    let gone = Txn::new().delete(&node, Expect::Any).look(Query::subtree(&world.dir));
    let view = ann.commit(gone).await.look.expect("a look was asked for");
    assert!(view.nodes.iter().all(|seen| seen.path != node), "{view:?}");

    let without = ann.commit(writes(&node)).await;
    assert_eq!(without.look, None, "no look was asked for");
}

async fn a_look_of_a_rejected_transaction_shows_the_reason(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let [node, other, absent] = ["n", "o", "absent"].map(|name| world.at(name));
    ann.create(&other, "other").await;
    let looks = || {
        let all = Query::nodes(&node, [other.clone(), absent.clone()]);
        [Query::node(&node), all, Query::children(&world.dir), Query::subtree(&world.dir).local()]
    };
    let mut old = ann.create(&node, "0").await;
    for (round, query) in looks().into_iter().enumerate() {
        let now = bob.set(&node, format!("{}", round + 1)).await;
        let shows = |no: Rejected| {
            let view = no.look.unwrap_or_else(|| panic!("{query:?} was not answered"));
            let seen = view.nodes.iter().find(|seen| seen.path == node).expect("it exists");
            assert_eq!((seen.stat, text(seen)), (Some(now), (round + 1).to_string()), "{query:?}");
            assert!(view.nodes.iter().all(|seen| seen.path != absent), "{view:?}");
        };

        let stale = Txn::new().set(&node, "x", Expect::Version(old.version));
        shows(ann.rejected(stale.look(query.clone())).await);
        shows(ann.rejected(writes(&node).look(query.clone())).await);
        let checked = writes(&absent).check(&node, Expect::Version(old.version));
        shows(ann.rejected(checked.look(query.clone())).await);
        let missing = Txn::new().set(&other, "x", Expect::Any).delete(&absent, Expect::Any);
        shows(ann.rejected(missing.look(query.clone())).await);
        old = now;
    }
    let without = ann.rejected(writes(&node)).await;
    assert_eq!(without.look, None, "no look was asked for");
    // A look that is requested for a rejection only: even if the second of two operations is
    // rejected, and not for a commit.
    for round in 0..3 {
        let query = || Query::nodes(&node, [absent.clone()]);
        let no = ann.rejected(writes(&node).look_if_rejected(query())).await;
        let seen = no.look.expect("a look was asked for");
        assert_eq!(seen.nodes.iter().map(|seen| &seen.path).collect::<Vec<_>>(), [&node]);
        let set = Txn::new().set(&node, format!("set {round}"), Expect::Any);
        assert_eq!(ann.commit(set.look_if_rejected(query())).await.look, None);
    }
}

async fn the_loser_of_a_race_sees_the_winner(world: World) {
    let actors = join_all((0..3).map(|_| world.ann())).await;
    for round in 0..10 {
        let [node, twin] = ["n", "t"].map(|name| world.at(&format!("{name}-{round}")));
        let racing = actors.iter().map(|actor| async {
            world.think().await;
            let both = writes(&node).create(&twin, "", Lifetime::Persistent);
            let racing = both.look(Query::nodes(&node, [twin.clone()]));
            match actor.attempt(racing).await.expect("it is answered") {
                Outcome::Committed(_) => 1,
                Outcome::Rejected(no) => {
                    let view = no.look.expect("a look was asked for");
                    let seen: Vec<_> = view.nodes.iter().map(|node| &node.path).collect();
                    assert_eq!(seen, [&node, &twin], "the loser sees what the winner created");
                    0
                }
            }
        });
        assert_eq!(join_all(racing).await.iter().sum::<u32>(), 1, "one wins");
    }
}

async fn a_look_shows_nothing_above_its_own_ticket(world: World) {
    let actors = join_all((0..4).map(|_| world.ann())).await;
    let line = world.at("line");
    let drawing = actors.iter().map(|actor| async {
        for round in 0..10 {
            world.think().await;
            let path = line.join(&format!("{}-{round}-", actor.id())).expect("valid");
            let txn = Txn::new().create_sequential(path, "", Lifetime::Session);
            let commit = actor.commit(txn.look(Query::children(&line).newest(2))).await;

            let mine = commit.results[0].sequence.expect("a ticket has a sequence");
            let view = commit.look.expect("a look was asked for");
            let last = view.nodes.last().expect("at least the own ticket");
            assert_eq!((&last.path, last.sequence), (&commit.results[0].path, Some(mine)));
            assert!(view.nodes[0].sequence <= Some(mine));
        }
    });
    join_all(drawing).await;
}

async fn a_look_is_narrowed_as_a_read_is(world: World) {
    let ann = world.ann().await;
    let line = world.at("line");
    let mut drawn = Vec::new();
    for name in ["r-1-", "w-2-", "r-3-"] {
        drawn.push(ann.draw(&world.at(&format!("line/{name}")), Lifetime::Session).await);
    }
    let before = drawn[2].sequence.expect("a ticket has a sequence");
    let readers = || Query::children(&line).starting_with("r-");

    for (query, found) in [
        (readers().oldest(1), &drawn[0]),
        (readers().newest(1), &drawn[2]),
        (readers().newest_before(1, before).names_only(), &drawn[0]),
    ] {
        let check = Txn::new().check(&drawn[1].path, Expect::Any);
        let view = ann.commit(check.look(query.clone())).await.look.expect("it was asked for");
        let shown: Vec<_> = view.nodes.iter().map(|node| &node.path).collect();
        assert_eq!(shown, [&found.path], "{query:?}");
    }
}

/// Creates a ticket in a wait queue, and lists the queue in the same transaction.
async fn draw_and_look(actor: &Actor, line: &Path) -> (OpResult, Vec<Path>) {
    let ticket = line.join("t-").expect("valid");
    let txn = Txn::new().create_sequential(ticket, "", Lifetime::Session);
    let commit = actor.commit(txn.look(Query::children(line).names_only())).await;
    let view = commit.look.expect("a look was asked for");
    let seen = view.nodes.into_iter().map(|node| node.path).collect();
    (commit.results.into_iter().next().expect("one operation"), seen)
}

/// Creates tickets as the only contender, and returns the last one.
async fn draw_alone(actor: &Actor, line: &Path) -> OpResult {
    let mut last = None;
    for _ in 0..4 {
        let (done, seen) = draw_and_look(actor, line).await;
        assert_eq!(seen, std::slice::from_ref(&done.path), "there is no other child");
        actor.delete(&done.path).await;
        last = Some(done);
    }
    last.expect("some were drawn")
}

async fn a_look_shows_tickets_created_since_the_last_one(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let line = world.at("line");
    ann.create(&line, "").await;
    for round in 0..6 {
        draw_alone(&ann, &line).await;
        let other = line.join("a-plain-one").expect("valid");
        let other = if round % 2 == 0 {
            bob.draw(&line.join("s-").expect("valid"), Lifetime::Session).await.path
        } else {
            bob.ephemeral(&other).await;
            other
        };

        let (done, mut seen) = draw_and_look(&ann, &line).await;

        seen.sort();
        let mut both = [other.clone(), done.path.clone()];
        both.sort();
        assert_eq!(seen, both, "{round}");
        bob.delete(&other).await;
        ann.delete(&done.path).await;
    }
}

/// With as many children as the old directory had, for stores that count children.
async fn a_look_shows_tickets_of_a_directory_that_was_created_again(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let line = world.at("line");
    for round in 0..3 {
        ann.create(&line, "").await;
        let last = draw_alone(&ann, &line).await;
        bob.delete(&line).await;
        bob.create(&line, "").await;
        let other = loop {
            let drawn = bob.draw(&line.join("b-").expect("valid"), Lifetime::Session).await;
            if drawn.sequence >= last.sequence {
                break drawn.path;
            }
            bob.delete(&drawn.path).await;
        };

        let (done, mut seen) = draw_and_look(&ann, &line).await;

        seen.sort();
        let mut both = [other.clone(), done.path.clone()];
        both.sort();
        assert_eq!(seen, both, "{round}");
        for node in [&other, &done.path, &line] {
            ann.delete(node).await;
        }
    }
}

async fn a_transaction_of_checks_changes_nothing(world: World) {
    let ann = world.ann().await;
    let node = world.at("n");
    let stat = ann.create(&node, "x").await;

    let txn = Txn::new().check(&node, Expect::Version(stat.version)).check(&node, Expect::Any);
    let commit = ann.commit(txn.check(world.at("missing"), Expect::Absent)).await;

    assert_eq!(commit.results.len(), 3);
    assert_eq!(ann.get(&node).await.and_then(|node| node.stat), Some(stat));
    assert_eq!(ann.names(&world.dir).await, ["n"]);
}
