//! Sequential creates.

use std::cell::Cell;
use std::collections::BTreeSet;

use futures_util::future::{join, join_all};
use synod_core::store::{Event, Expect, Lifetime, Node, Outcome, Query, RejectReason, Txn};

use crate::actor::{Actor, Watcher, only};
use crate::world::World;

cases![
    "L-SEQ-2 C-WRITE-4" catches [SequenceFalls] => sequences_rise_in_the_order_of_creation,
    "L-SEQ-1 C-WRITE-4" catches [SequenceTwice] => a_ticket_keeps_the_name_that_its_creator_gave_it,
    "L-SEQ-3 C-WRITE-4" catches [SequenceByCount] => a_sequence_is_not_given_again_while_the_directory_lives,
    "L-SEQ-3 C-WRITE-4" catches [SequenceAfterHighest] => the_last_sequence_is_not_given_again,
    "L-SEQ-3 C-WRITE-4" catches [SequenceBeforeCommit] => once_a_sequence_was_seen_no_lower_one_appears,
    "L-SEQ-4 C-WRITE-4" catches [SequenceFalls] => rejected_tickets_leave_the_order_as_it_is,
    "L-SEQ-6 C-WRITE-4" catches [SequenceFromName] => digits_in_a_name_are_no_sequence,
    "L-SEQ-2" catches [ListingTellsOtherSequence] => a_listing_has_the_sequence_that_was_assigned,
    "L-SEQ-9" catches [OwnerUntold] => a_listing_has_the_owner_of_each_ticket,
    "L-SEQ-2 L-KV-6" catches [TwoNodesShareCreated] => created_distinguishes_nodes_that_a_sequence_does_not,
    "L-SEQ-7 C-WRITE-4" needs [SequenceEnd] catches [SequenceWraps] => a_directory_that_is_out_of_sequences_says_so_for_ever,
    "L-OUT-2 L-SEQ-1" catches [SequentialTwice] => a_ticket_that_is_answered_is_there_once,
];

async fn sequences_rise_in_the_order_of_creation(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let mut last = None;

    for round in 0..30 {
        let actor = if round % 3 == 0 { &bob } else { &ann };
        let lifetime = if round % 2 == 0 { Lifetime::Session } else { Lifetime::Persistent };
        let done = actor.draw(&world.at(&format!("d/{:03}-", 999 - round)), lifetime).await;
        let stat = done.stat.expect("a single create returns the stat");
        assert!(done.sequence.is_some(), "a sequential create returns its sequence");
        assert!(Some((done.sequence, stat.created)) > last, "{done:?} after {last:?}");
        last = Some((done.sequence, stat.created));
    }
}

async fn a_ticket_keeps_the_name_that_its_creator_gave_it(world: World) {
    let actors = join_all((0..4).map(|_| world.ann())).await;
    let drawing = actors.iter().map(|actor| async {
        let mut drawn = Vec::new();
        for round in 0..5 {
            let given = world.at(&format!("d/{}-{round}-", actor.id()));
            let done = actor.draw(&given, Lifetime::Session).await;
            assert!(done.path.as_str().starts_with(given.as_str()), "{} of {given}", done.path);
            assert_eq!(done.path.parent(), given.parent());
            drawn.push((done.path, done.sequence));
        }
        drawn
    });
    let drawn: Vec<_> = join_all(drawing).await.into_iter().flatten().collect();

    let paths: BTreeSet<_> = drawn.iter().map(|(path, _)| path.clone()).collect();
    let sequences: BTreeSet<_> = drawn.iter().map(|(_, sequence)| *sequence).collect();
    assert_eq!((paths.len(), sequences.len()), (20, 20));
    let listed = actors[0].children(&world.at("d")).await;
    assert!(listed.iter().map(|node| &node.path).eq(&paths));
}

async fn a_sequence_is_not_given_again_while_the_directory_lives(world: World) {
    let ann = world.ann().await;
    let mut highest = None;
    let mut previous = None;

    for round in 0..10 {
        let done = ann.draw(&world.at(&format!("d/{round}-")), Lifetime::Session).await;
        assert!(done.sequence > highest, "{done:?} after {highest:?}");
        highest = done.sequence;
        if let Some(previous) = previous.replace(done.path) {
            ann.delete(&previous).await;
        }
    }
}

async fn the_last_sequence_is_not_given_again(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    bob.draw(&world.at("d/stays-"), Lifetime::Persistent).await;
    let mut highest = None;

    for round in 0..10 {
        let done = ann.draw(&world.at(&format!("d/{round}-")), Lifetime::Session).await;
        assert!(done.sequence > highest, "{done:?} after {highest:?}");
        highest = done.sequence;
        ann.delete(&done.path).await;
    }
}

async fn once_a_sequence_was_seen_no_lower_one_appears(world: World) {
    let actors = join_all((0..4).map(|_| world.ann())).await;
    let (eve, dir) = (world.ann().await, world.at("d"));
    let anchor = eve.draw(&world.at("d/anchor-"), Lifetime::Persistent).await;
    let (_view, mut watcher) = eve.watch(Query::children(&dir)).await;
    let stop = Cell::new(false);

    let drawing = async {
        let all = actors.iter().map(|actor| draw_and_leave(&world, actor));
        join_all(all).await;
        stop.set(true);
    };
    let looking = async {
        let mut known = BTreeSet::from([anchor.path.clone()]);
        let mut highest = anchor.sequence;
        while !stop.get() {
            drain(&mut watcher);
            let nodes = eve.children(&dir).await;
            for node in nodes.iter().filter(|node| !known.contains(&node.path)) {
                let new = node.sequence;
                assert!(new > highest, "{} appears with {new:?}, below {highest:?}", node.path);
            }
            highest = highest.max(nodes.iter().filter_map(|node| node.sequence).max());
            known.extend(nodes.into_iter().map(|node: Node| node.path));
            world.think().await;
        }
        known.len()
    };
    let ((), seen) = join(drawing, looking).await;
    assert!(seen > 10, "only {seen} tickets were ever seen");
}

async fn draw_and_leave(world: &World, actor: &Actor) {
    for round in 0..25 {
        let done =
            actor.draw(&world.at(&format!("d/{}-{round}-", actor.id())), Lifetime::Session).await;
        world.think().await;
        if round % 3 != 0 {
            actor.delete(&done.path).await;
        }
    }
}

fn drain(watcher: &mut Watcher) {
    while let Some(event) = watcher.watch.try_next() {
        assert!(!matches!(event, Event::Ended(_)), "the session lives: {event:?}");
    }
}

async fn rejected_tickets_leave_the_order_as_it_is(world: World) {
    let ann = world.ann().await;
    let missing = world.at("missing");
    let mut last = None;

    for round in 0..5 {
        let burnt = world.at(&format!("d/burnt{round}-"));
        let txn = Txn::new().create_sequential(&burnt, "", Lifetime::Session);
        ann.rejected(txn.check(&missing, Expect::Any)).await;
        let done = ann.draw(&world.at(&format!("d/{round}-")), Lifetime::Session).await;
        assert!(done.sequence > last, "{done:?} after {last:?}");
        last = done.sequence;
    }
    assert_eq!(ann.names(&world.at("d")).await.len(), 5);
}

async fn digits_in_a_name_are_no_sequence(world: World) {
    let ann = world.ann().await;
    let mut drawn = Vec::new();
    for name in ["job-9999999999", "job--1", "job-0000000000", "7", "_c_0123456789-lock-"] {
        let done = ann.draw(&world.at(&format!("d/{name}")), Lifetime::Session).await;
        drawn.push((done.sequence, done.path));
    }
    ann.create(&world.at("d/job-8888888888"), "").await;

    assert!(drawn.is_sorted_by(|(a, _), (b, _)| a < b), "{drawn:?}");
    let view = ann.read(Query::children(world.at("d")).oldest(5)).await;
    let listed = view.nodes.into_iter().map(|node| (node.sequence, node.path));
    assert_eq!(listed.collect::<Vec<_>>(), drawn);
}

async fn a_listing_has_the_sequence_that_was_assigned(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    for round in 0..5 {
        let path = world.at(&format!("d/{}-", 9 - round));
        let done = ann.draw(&path, Lifetime::Session).await;
        let all = Query::children(world.at("d"));
        for query in [all.clone(), all.clone().names_only(), all.local().starting_with("x")] {
            let narrowed = !query.prefix.is_empty();
            let view = bob.read(query).await;
            let listed = view.nodes.iter().find(|node| node.path == done.path);
            assert_eq!(listed.is_none(), narrowed);
            assert!(listed.is_none_or(|listed| listed.sequence == done.sequence), "{view:?}");
        }
    }
}

async fn a_listing_has_the_owner_of_each_ticket(world: World) {
    let (ann, bob) = (world.ann().await, world.bob().await);
    let hers = ann.draw(&world.at("d/a-"), Lifetime::Session).await;
    let his = bob.draw(&world.at("d/b-"), Lifetime::Session).await;
    assert_eq!((hers.owner(), his.owner()), (Some(ann.id()), Some(bob.id())));

    for actor in [&ann, &bob] {
        let nodes = actor.children(&world.at("d")).await;
        let owners: Vec<_> =
            nodes.iter().map(|node| node.stat.and_then(|stat| stat.owner)).collect();
        assert_eq!(owners, [Some(ann.id()), Some(bob.id())]);
    }
}

async fn created_distinguishes_nodes_that_a_sequence_does_not(world: World) {
    let ann = world.ann().await;
    let mut created = None;

    for round in 0..5 {
        // The directory is empty each time, and its sequences may start again.
        let done = ann.draw(&world.at(&format!("d/{round}-")), Lifetime::Session).await;
        let stat = done.stat.expect("a single create returns the stat");
        assert!(Some(stat.created) > created, "{done:?} after {created:?}");
        created = Some(stat.created);
        ann.delete(&done.path).await;
    }
}

async fn a_ticket_that_is_answered_is_there_once(world: World) {
    let ann = world.ann().await;
    let done = ann.draw(&world.at("d/only-"), Lifetime::Session).await;

    assert_eq!(ann.names(&world.at("d")).await, [done.path.name()]);
    assert!(ann.exists(&done.path).await);
}

async fn a_directory_that_is_out_of_sequences_says_so_for_ever(world: World) {
    const FEW: usize = 100;
    let (ann, bob, dir) = (world.ann().await, world.bob().await, world.at("d"));
    let ticket = world.at("d/t-");
    let draw = || Txn::new().create_sequential(&ticket, "", Lifetime::Persistent);
    let mut drawn = vec![ann.draw(&ticket, Lifetime::Persistent).await];
    world.harness.near_sequence_end(&dir).await;

    let refused = loop {
        match ann.attempt(draw()).await.expect("the store answers") {
            Outcome::Committed(commit) => drawn.push(only(commit.results)),
            Outcome::Rejected(no) => break no,
        }
        assert!(drawn.len() <= FEW, "{drawn:?}");
        assert!(drawn.is_sorted_by_key(|done| done.sequence), "{drawn:?}");
    };

    assert_eq!(refused.reason, RejectReason::SequenceExhausted);
    let created = ann.create(&world.at("d/plain"), "").await.created;
    ann.delete(&drawn[0].path).await;
    for actor in [&ann, &bob, &ann, &bob] {
        let beside = Txn::new().create(world.at("d/n"), "", Lifetime::Persistent);
        let txn = beside.create_sequential(&ticket, "", Lifetime::Session);
        let no = actor.rejected(txn).await;
        assert_eq!((no.index, no.reason), (1, RejectReason::SequenceExhausted));
        assert_eq!(actor.rejected(draw()).await.reason, RejectReason::SequenceExhausted);
    }
    let left = bob.children(&dir).await;
    assert_eq!(left.len(), drawn.len(), "the plain one came, and the first ticket went: {left:?}");
    assert!(left.iter().all(|node| node.stat.is_some_and(|stat| stat.created <= created)));
}
