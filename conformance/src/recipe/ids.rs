//! Unique numbers from blocks.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_recipes::value::Ids;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::world::World;

cases![
    "L-ID-1" catches [CasIgnoresVersion] => numbers_of_many_tasks_are_unique_and_rise,
    "L-ID-1 L-CNT-3" breaks [WritesWithoutMark] => a_block_whose_answer_is_lost_is_reserved_once,
    "L-ID-1" breaks [BlockByGuess] => a_block_in_doubt_is_skipped,
    "L-ID-1 L-X-4" catches [CasIgnoresVersion] => a_call_that_is_not_polled_holds_up_no_other,
    "L-ID-1 L-OUT-5 L-X-8" breaks [BlockByGuess] => calls_that_wait_for_a_block_share_its_failure,
    "L-CNT-4 L-CNT-5" catches [CasIgnoresVersion] => numbers_end_and_do_not_begin_again,
];

fn ids(world: &World, client: &Client, block: u64) -> Ids {
    Ids::new(client, world.at("ids"), NonZeroU64::new(block).expect("not zero"))
}

async fn numbers_of_many_tasks_are_unique_and_rise(world: World) {
    const TASKS: usize = 12;
    const ROUNDS: usize = 15;
    let (shared, mut drawing) = (ids(&world, &world.hesitant().await, 4), Vec::new());
    for task in 0..TASKS {
        let own = ids(&world, &world.hesitant().await, 4);
        let one = if task % 2 == 0 { shared.clone() } else { own };
        drawing.push(Waiting::new(async move {
            let mut drawn = Vec::new();
            for _ in 0..ROUNDS {
                drawn.push(one.next().await?);
            }
            Ok(drawn)
        }));
    }
    let mut all = BTreeSet::new();
    for one in drawing {
        let drawn = one.gets(&world, "all of its numbers").await;
        assert!(drawn.is_sorted(), "{drawn:?}");
        all.extend(drawn);
    }
    assert_eq!(all.len(), TASKS * ROUNDS, "some were handed out twice");
}

async fn a_block_whose_answer_is_lost_is_reserved_once(world: World) {
    let (client, plan) = world.scripted([]).await;
    let one = ids(&world, &client, 2);
    for number in [0, 1] {
        assert_eq!(answer(one.next().await), number);
    }
    let mut next = 2;
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate] {
        plan.cue(Cue::new(site).of(Verb::Set));
        for _ in 0..2 {
            // No block is skipped.
            assert_eq!(answer(world.in_time("a number", one.next()).await), next, "{site:?}");
            next += 1;
        }
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
    }
}

async fn a_block_in_doubt_is_skipped(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let client = world.client_on(gate.clone(), world.options()).await;
    let one = ids(&world, &client, 1);
    let mut all = BTreeSet::new();
    for _ in 0..3 {
        all.insert(answer(one.next().await));
    }
    let session = answer(client.session().await);
    let sent = gate.count(Verb::Commit);
    gate.set(Way::Silent);
    let drawing = one.clone();
    let drawing = Waiting::new(async move { Ok(drawing.next().await) });
    gate.called(Verb::Commit, sent + 1).await;
    // Another thread may be between the count and the gate.
    tokio::time::sleep(world.brief()).await;

    // Another client reserves the requested block.
    all.insert(answer(ids(&world, &bob, 1).next().await));
    gate.lose();
    world.in_time("the loss", session.lost()).await;
    gate.set(Way::Open);

    if let Ok(number) = drawing.gets(&world, "its answer").await {
        assert!(all.insert(number), "{number} was handed out before");
    }
    for _ in 0..3 {
        let next = answer(world.in_time("a number", one.next()).await);
        assert!(all.insert(next), "{next} was handed out before");
        let theirs = answer(ids(&world, &bob, 1).next().await);
        assert!(all.insert(theirs), "{theirs} was handed out before");
    }
}

async fn a_call_that_is_not_polled_holds_up_no_other(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let client = world.client_on(gate.clone(), world.options()).await;
    let (one, theirs) = (ids(&world, &client, 1), ids(&world, &bob, 1));
    let mut all = BTreeSet::new();
    for _ in 0..2 {
        all.insert(answer(one.next().await));
    }
    all.insert(answer(theirs.next().await));
    gate.set(Way::Holding);
    let mut kept = Box::pin(one.next());
    assert!((&mut kept).now_or_never().is_none(), "it waits for a block");
    gate.held(1).await;
    gate.set(Way::Open);

    let second = answer(world.in_time("a number", one.next()).await);

    let first = answer(world.in_time("the number that was kept", kept).await);
    all.extend([first, second, answer(theirs.next().await)]);
    assert_eq!(all.len(), 6, "{all:?}: some were handed out twice");
}

async fn calls_that_wait_for_a_block_share_its_failure(world: World) {
    const CALLS: usize = 20;
    let gate = world.gate();
    let options = world.unhurried().timeout(world.brief() * 5);
    let client = world.client_on(gate.clone(), options).await;
    let one = ids(&world, &client, 1);
    for number in [0, 1] {
        assert_eq!(answer(one.next().await), number);
    }
    let sent = gate.count(Verb::Commit);
    gate.set(Way::Silent);

    let calls = join_all((0..CALLS).map(|_| one.next()));
    let numbers = world.in_time("all of their answers", calls).await;

    assert!(numbers.iter().all(Result::is_err), "{numbers:?}");
    // One for the block, and some for the discarded write id.
    let sent = gate.count(Verb::Commit) - sent;
    assert!(sent < CALLS / 2, "{sent} requests for {CALLS} calls");
    gate.set(Way::Open);
    let next = answer(world.in_time("a number", one.next()).await);
    assert!(next > 1, "{next} was handed out before");
}

async fn numbers_end_and_do_not_begin_again(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let one = ids(&world, &ann, 3);
    assert_eq!(answer(one.next().await), 0);
    let last = i64::MAX - 3;
    answer(ann.put(&world.at("ids"), last.to_be_bytes().to_vec()).await);
    for number in [1, 2, last.unsigned_abs()] {
        assert_eq!(answer(one.next().await), number);
    }
    for client in [&ann, &bob] {
        let none = failure(ids(&world, client, 3).next().await, "a number after the last");
        assert_eq!(none.kind(), ErrorKind::Invalid);
    }
    // Blocks after which no further block fits.
    let wide = |client: &Client, block| {
        Ids::new(client, world.at("wide"), NonZeroU64::new(block).expect("not zero"))
    };
    let large = failure(wide(&ann, u64::MAX).next().await, "more than there are");
    assert_eq!(large.kind(), ErrorKind::Invalid);
    let all = wide(&ann, i64::MAX.unsigned_abs());
    assert_eq!((answer(all.next().await), answer(all.next().await)), (0, 1));
    let none = failure(wide(&bob, 1).next().await, "a number after the last");
    assert_eq!(none.kind(), ErrorKind::Invalid);
    for bytes in [&b""[..], b"7", &(-1_i64).to_be_bytes()] {
        answer(ann.put(&world.at("ids"), bytes.to_vec()).await);
        let none = failure(ids(&world, &bob, 3).next().await, "a number after no number");
        assert_eq!(none.kind(), ErrorKind::Corrupt, "{bytes:?}");
    }
}
