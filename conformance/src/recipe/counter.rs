//! The counter: each change is made exactly once, at the cost of one call.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};

use futures_util::future::{join, join_all};
use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime, Query};
use synod_recipes::value::Counter;
use synod_testkit::cancel::cancel_at_every_await;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::world::{World, dropped_enough};

cases![
    "L-CNT-1 L-CNT-2" breaks [SharesOneAnswer] => additions_of_many_tasks_are_all_counted,
    "L-CNT-6" breaks [LostRaceStarves] => contenders_for_one_number_all_come_to_their_end,
    "L-CNT-1 L-CNT-3" breaks [LostAnswerIsLostRace] => an_addition_whose_answer_is_lost_is_made_once,
    "L-CNT-1 L-CNT-3" breaks [CreatesWithoutMark] => a_first_addition_whose_answer_is_lost_is_made_once,
    "L-CNT-1 L-CNT-3" breaks [LostAnswerIsLostRace] => an_addition_that_was_replaced_before_its_answer_is_made_once,
    "L-CNT-3 L-OUT-3" needs [Expiry] breaks [DoubtForgotten] => an_addition_in_doubt_when_its_session_is_lost_has_an_unknown_effect,
    "L-CNT-3 L-OUT-3" needs [Expiry] breaks [DoubtForgotten] => a_first_addition_in_doubt_when_its_session_is_lost_has_an_unknown_effect,
    "L-CNT-3 L-OUT-3" breaks [LostAnswerIsLostRace] => an_addition_whose_mark_is_removed_before_its_answer_has_an_unknown_effect,
    "L-CNT-3 L-X-5" breaks [DroppedCreateStays] => a_first_addition_that_is_not_answered_leaves_no_mark,
    "L-CNT-3 D-NEXT" breaks [LossEndsChange] => an_addition_that_was_not_sent_is_made_in_the_next_session,
    "L-CNT-2" breaks [MemoryTrusted] => a_refusal_is_of_the_latest_number,
    "L-CNT-4" breaks [SumWraps] => a_sum_that_does_not_fit_changes_nothing,
    "L-CNT-5" breaks [CorruptIsZero] => bytes_that_are_no_number_are_an_error,
    "L-CNT-1" catches [CasIgnoresVersion] => a_number_that_another_client_wrote_is_added_to,
    "L-CNT-1" breaks [WritesWithoutMark] => a_counter_that_is_removed_and_made_again_is_another,
    "L-CNT-1 L-KV-5" catches [CasIgnoresVersion] => a_number_is_stored_once_and_swapped_once,
    "L-X-7" breaks [ReadsFirst] => an_addition_that_no_client_disturbs_is_one_call,
    "L-X-1 L-CNT-1 L-X-5" breaks [MarkStays] => an_addition_dropped_at_any_await_leaves_nothing_but_its_result,
];

fn counter(world: &World, client: &Client) -> Counter {
    Counter::new(client, world.at("counter"))
}

/// Reads the number without the recipe.
async fn stored(world: &World, client: &Client) -> i64 {
    let node = answer(client.get(&world.at("counter")).await).expect("there is a number");
    i64::from_be_bytes(node.data[..].try_into().expect("eight bytes"))
}

/// A counter that has written `number`, and knows the version of its node: some servers report the
/// stat of a set, but not of a create.
async fn known(world: &World, client: &Client, number: i64) -> Counter {
    let one = counter(world, client);
    for _ in 0..2 {
        answer(one.set(number).await);
    }
    one
}

async fn store(world: &World, client: &Client, number: i64) {
    answer(client.put(&world.at("counter"), number.to_be_bytes().to_vec()).await);
}

async fn additions_of_many_tasks_are_all_counted(world: World) {
    const CLIENTS: i64 = 3;
    const TASKS: i64 = 8;
    const ROUNDS: i64 = 5;
    let (ann, mut adding) = (world.client().await, Vec::new());
    for number in 0..CLIENTS * TASKS {
        let client = if number % TASKS == 0 { world.client().await } else { ann.clone() };
        let one = counter(&world, &client);
        adding.push(Waiting::new(async move {
            let mut seen = Vec::new();
            for _ in 0..ROUNDS {
                let (first, second) = join(one.increment(), one.add(1)).await;
                seen.extend([first?, second?]);
            }
            Ok(seen)
        }));
    }
    let mut after = BTreeSet::new();
    for one in adding {
        for update in one.gets(&world, "all of its additions").await {
            assert_eq!(update.after, update.before + 1);
            assert!(after.insert(update.after), "{} is the result of two", update.after);
        }
    }
    let sum = CLIENTS * TASKS * ROUNDS * 2;
    assert_eq!((answer(counter(&world, &ann).get().await), after.last()), (sum, Some(&sum)));
    assert_eq!(stored(&world, &ann).await, sum);
}

async fn contenders_for_one_number_all_come_to_their_end(world: World) {
    const CONTENDERS: usize = 4;
    const ROUNDS: i64 = 10;
    let mut adding = Vec::new();
    for _ in 0..CONTENDERS {
        let one = counter(&world, &world.hesitant().await);
        adding.push(Waiting::new(async move {
            let mut tries = 0;
            for _ in 0..ROUNDS {
                tries += one.increment().await?.cost.tries;
            }
            Ok(tries)
        }));
    }
    let mut tries = 0;
    for one in adding {
        tries += one.gets(&world, "all of its additions").await;
    }
    let sum = i64::try_from(CONTENDERS).expect("few") * ROUNDS;
    assert!(i64::from(tries) > sum, "no client was faster than another");
    assert_eq!(stored(&world, &world.client().await).await, sum);
}

async fn an_addition_whose_answer_is_lost_is_made_once(world: World) {
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate, Site::Unsent] {
        let (client, plan) = world.scripted([]).await;
        let one = Counter::new(&client, world.at(&format!("{site:?}")));
        answer(one.add(5).await);

        for round in 0..5 {
            plan.cue(Cue::new(site).of(Verb::Set));
            let update = answer(world.in_time("an addition", one.increment()).await);
            assert_eq!((update.before, update.after), (5 + round, 6 + round), "{site:?}");
        }

        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        assert_eq!(answer(one.get().await), 10, "{site:?}");
    }
}

async fn a_first_addition_whose_answer_is_lost_is_made_once(world: World) {
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate] {
        // The first create is rejected, because no counter exists below which the write id could be
        // created.
        let (client, plan) = world.scripted([Cue::new(site).of(Verb::Create).nth(2)]).await;
        let one = Counter::new(&client, world.at(&format!("{site:?}")));

        let update = answer(world.in_time("an addition", one.add(7)).await);

        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        assert_eq!((update.before, update.after), (0, 7), "{site:?}");
        assert_eq!(answer(one.get().await), 7, "{site:?}");
        assert_eq!(answer(one.add(7).await).after, 14, "{site:?}");
    }
}

async fn an_addition_that_was_replaced_before_its_answer_is_made_once(world: World) {
    for site in [Site::ReplyLost, Site::RequestLost] {
        let (client, plan) = world.scripted([]).await;
        let (mine, bob) = (counter(&world, &client), world.client().await);
        answer(mine.set(0).await);
        // The second request waits until another client has written.
        plan.cue(Cue::new(site).of(Verb::Set));
        plan.cue(Cue::new(Site::RequestSlow).of(Verb::Set).nth(2).lasting(world.brief()));
        let adding = mine.clone();
        let adding = Waiting::new(async move { adding.increment().await });
        let fired = async || plan.pending() < 2;
        world.eventually("the answer is lost", fired).await;
        answer(counter(&world, &bob).add(10).await);

        let update = adding.gets(&world, "its addition").await;

        assert_eq!(update.after, update.before + 1, "{site:?}");
        assert_eq!(stored(&world, &bob).await, 11, "{site:?}");
    }
}

async fn an_addition_in_doubt_when_its_session_is_lost_has_an_unknown_effect(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let client = world.client_on(gate.clone(), world.options()).await;
    let one = known(&world, &client, 1).await;
    let sent = gate.count(Verb::Commit);
    gate.hold_behind(Some((Verb::Commit, sent)));
    let adding = one.clone();
    let adding = Waiting::new(async move { Ok(adding.increment().await) });
    gate.held(1).await;

    let first = answer(client.session().await);
    world.expire(first.info().id).await;
    world.in_time("the loss", first.lost()).await;
    gate.hold_behind(None);

    let failed = failure(adding.gets(&world, "its answer").await, "an addition in doubt");
    assert!(failed.has_unknown_effect(), "{failed}");
    assert_eq!(stored(&world, &bob).await, 2, "it was made once");
    let next = answer(world.in_time("an addition in the next session", one.increment()).await);
    assert_eq!((next.before, next.after), (2, 3));
}

async fn a_first_addition_in_doubt_when_its_session_is_lost_has_an_unknown_effect(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let client = world.client_on(gate.clone(), world.options()).await;
    let one = counter(&world, &client);
    // The first commit finds that no counter exists below which the write id could be created.
    gate.hold_behind(Some((Verb::Commit, gate.count(Verb::Commit) + 1)));
    let adding = one.clone();
    let adding = Waiting::new(async move { Ok(adding.add(7).await) });
    gate.held(1).await;

    let first = answer(client.session().await);
    world.expire(first.info().id).await;
    world.in_time("the loss", first.lost()).await;
    gate.hold_behind(None);

    let failed = failure(adding.gets(&world, "its answer").await, "an addition in doubt");
    assert!(failed.has_unknown_effect(), "{failed}");
    assert_eq!(stored(&world, &bob).await, 7, "it was made once");
    let next = answer(world.in_time("an addition in the next session", one.add(7)).await);
    assert_eq!((next.before, next.after), (7, 14));
}

async fn an_addition_whose_mark_is_removed_before_its_answer_has_an_unknown_effect(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let (client, plan) = world.scripted_on(gate.clone(), world.options(), []).await;
    let one = known(&world, &client, 0).await;
    plan.cue(Cue::new(Site::ReplyLost).of(Verb::Set));
    gate.hold_behind(Some((Verb::Commit, gate.count(Verb::Commit))));
    let adding = one.clone();
    let adding = Waiting::new(async move { Ok(adding.increment().await) });
    gate.held(1).await;
    for mark in answer(bob.children(&world.at("counter")).await) {
        answer(answer(bob.delete(&mark.path, Expect::Any).await).required());
    }

    // The answer is lost, and the write id that would prove the write is gone.
    gate.hold_behind(None);

    let failed = failure(adding.gets(&world, "its answer").await, "an addition in doubt");
    assert!(failed.has_unknown_effect(), "{failed}");
    assert_eq!((plan.pending(), stored(&world, &bob).await), (0, 1), "it was made once");
    assert_eq!(answer(one.increment().await).after, 2);
}

async fn a_first_addition_that_is_not_answered_leaves_no_mark(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let options = world.unhurried().timeout(world.brief() * 5);
    let client = world.client_on(gate.clone(), options).await;
    let one = counter(&world, &client);
    // The first commit finds that no counter exists below which the write id could be created.
    gate.hold_behind(Some((Verb::Commit, gate.count(Verb::Commit) + 1)));
    let failed = failure(world.in_time("its answer", one.add(7)).await, "a first addition");
    assert!(failed.has_unknown_effect(), "{failed}");
    assert_eq!(stored(&world, &bob).await, 7, "it was made");

    gate.hold_behind(None);

    let marks = Query::children(world.at("counter")).names_only();
    let alone = async || answer(bob.read(marks.clone()).await).nodes.is_empty();
    world.eventually("no mark is left", alone).await;
    assert!(!answer(client.session().await).is_lost(), "it did not go with the session");
    assert_eq!(answer(one.add(7).await).after, 14);
}

async fn an_addition_that_was_not_sent_is_made_in_the_next_session(world: World) {
    let gate = world.gate();
    gate.may_lose();
    let client = world.client_on(gate.clone(), world.options()).await;
    let one = known(&world, &client, 1).await;
    let first = answer(client.session().await);
    let sent = gate.count(Verb::Commit);
    gate.set(Way::Silent);
    let adding = one.clone();
    let adding = Waiting::new(async move { adding.increment().await });
    gate.called(Verb::Commit, sent + 1).await;
    // Another thread may be between the count and the gate.
    tokio::time::sleep(world.brief()).await;

    gate.lose();
    world.in_time("the loss", first.lost()).await;
    gate.set(Way::Open);

    // The value is still the one that the first request would have replaced, so that request was
    // not applied.
    let update = adding.gets(&world, "its addition").await;
    assert_eq!((update.before, update.after), (1, 2));
    assert_eq!(stored(&world, &client).await, 2);
}

async fn a_refusal_is_of_the_latest_number(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let (anns, bobs) = (known(&world, &ann, 5).await, counter(&world, &bob));
    answer(bobs.set(7).await);
    let swapped = answer(anns.compare_and_set(7, i64::MAX).await);
    assert!(swapped.is_ok(), "it is 7 since bob wrote it");

    answer(bobs.set(0).await);
    assert_eq!(answer(anns.increment().await).after, 1, "it fits since bob wrote 0");

    answer(bobs.set(3).await);
    assert_eq!(answer(anns.compare_and_set(1, 2).await), Err(3));
}

async fn a_sum_that_does_not_fit_changes_nothing(world: World) {
    let client = world.client().await;
    let one = counter(&world, &client);
    for (number, add) in [(i64::MAX, 1), (i64::MIN, -1), (i64::MIN + 3, i64::MIN)] {
        answer(one.set(number).await);
        let refused = failure(one.add(add).await, "a sum that does not fit");
        assert_eq!((refused.kind(), refused.has_unknown_effect()), (ErrorKind::Invalid, false));
        assert_eq!(stored(&world, &client).await, number);
    }
    let low = Counter::new_u64(&client, world.at("unsigned"));
    assert_eq!(failure(low.decrement().await, "less than 0").kind(), ErrorKind::Invalid);
    let small = Counter::new_i32(&client, world.at("small"));
    answer(small.set(i32::MAX).await);
    assert_eq!(failure(small.increment().await, "too much").kind(), ErrorKind::Invalid);
    assert_eq!(answer(small.get().await), i32::MAX);
}

async fn bytes_that_are_no_number_are_an_error(world: World) {
    let client = world.client().await;
    let one = counter(&world, &client);
    assert_eq!(answer(one.get().await), 0, "there is no node yet");
    for bytes in [&b""[..], b"7", b"1234567", b"123456789", b"not a number"] {
        answer(client.put(&world.at("counter"), bytes).await);

        let refused = [
            failure(one.get().await, "a read"),
            failure(one.increment().await, "an addition"),
            failure(one.compare_and_set(0, 1).await, "a swap"),
        ];

        assert_eq!(refused.map(|it| it.kind()), [ErrorKind::Corrupt; 3], "{bytes:?}");
        let node = answer(client.get(&world.at("counter")).await).expect("it is there");
        assert_eq!(node.data, bytes, "it is not changed");
    }
    assert!(!answer(one.initialize(5).await), "something is stored");
    answer(one.set(-2).await);
    assert_eq!((stored(&world, &client).await, answer(one.get().await)), (-2, -2));
}

async fn a_number_that_another_client_wrote_is_added_to(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let one = known(&world, &ann, 1).await;
    for number in [100, 200, 300] {
        store(&world, &bob, number).await;
        let update = answer(one.increment().await);
        assert_eq!((update.before, update.after, update.cost.tries), (number, number + 1, 2));
    }
}

async fn a_counter_that_is_removed_and_made_again_is_another(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let one = counter(&world, &ann);
    for _ in 0..3 {
        answer(one.set(1).await);
        // A counter in use is removed with the write ids below it.
        for mark in answer(bob.children(&world.at("counter")).await) {
            answer(answer(bob.delete(&mark.path, Expect::Any).await).required());
        }
        answer(answer(bob.delete(&world.at("counter"), Expect::Any).await).required());
        // The new node may have the same version as before.
        let again = 100_i64.to_be_bytes().to_vec();
        answer(
            answer(bob.create(&world.at("counter"), again, Lifetime::Persistent).await).required(),
        );

        assert_eq!(answer(one.increment().await).after, 101);
    }
}

async fn a_number_is_stored_once_and_swapped_once(world: World) {
    const CLIENTS: i64 = 4;
    let (mut storing, mut swapping) = (Vec::new(), Vec::new());
    let first = counter(&world, &world.client().await);
    // Their calls overlap.
    for number in 1..=CLIENTS {
        let one = counter(&world, &world.hesitant().await);
        storing.push(Waiting::new(async move { Ok((number, one.initialize(number).await?)) }));
    }
    let mut stored = Vec::new();
    for one in storing {
        let (number, is_first) = one.gets(&world, "its answer").await;
        stored.extend(is_first.then_some(number));
    }
    let [winner] = stored[..] else { panic!("{stored:?} were stored") };
    assert_eq!(answer(first.get().await), winner);
    for number in 11..=10 + CLIENTS {
        let one = counter(&world, &world.hesitant().await);
        let swap = async move { Ok((number, one.compare_and_set(winner, number).await?)) };
        swapping.push(Waiting::new(swap));
    }
    let (mut done, mut found) = (Vec::new(), Vec::new());
    for one in swapping {
        match one.gets(&world, "its answer").await {
            (number, Ok(_)) => done.push(number),
            (_, Err(number)) => found.push(number),
        }
    }
    assert_eq!(done.len(), 1, "{done:?} were swapped in");
    assert!(found.iter().all(|number| *number == done[0]), "{found:?}, and {done:?} is stored");
}

async fn an_addition_that_no_client_disturbs_is_one_call(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let client = world.client_on(gate.clone(), world.options()).await;
    let counts = || [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));
    let one = counter(&world, &client);

    answer(one.increment().await);
    let [commits, reads, _] = counts();
    assert!(commits == 2 && reads <= 1, "{commits} commits and {reads} reads for the first");
    let first = answer(one.increment().await);
    let reads = gate.count(Verb::Read);
    assert!(reads <= 2 && first.cost.tries == 1, "{reads} reads for the first two");
    for more in 2..10 {
        answer(one.increment().await);
        assert_eq!(counts(), [commits + more, reads, 0], "commits, reads, observes");
    }
    store(&world, &bob, 100).await;
    assert_eq!(answer(one.increment().await).cost.tries, 2);
    assert_eq!(counts(), [commits + 11, reads, 0], "a lost race costs one more write, and no read");

    // Additions that are requested together are written together.
    let before = gate.count(Verb::Commit);
    let many = join_all((0..20).map(|_| one.increment()));
    // The first write is not answered before all of them were requested, with any number of
    // threads.
    gate.set(Way::Holding);
    let opens = async {
        gate.held(1).await;
        gate.set(Way::Open);
    };
    let (many, ()) = join(many, opens).await;
    let after: Vec<_> = many.into_iter().map(|update| answer(update).after).collect();
    assert_eq!(after, (102..122).collect::<Vec<_>>());
    let sent = gate.count(Verb::Commit) - before;
    assert!(sent <= 2, "{sent} writes for 20 additions");
}

async fn an_addition_dropped_at_any_await_leaves_nothing_but_its_result(world: World) {
    let (client, other) = (world.hesitant().await, world.client().await);
    answer(counter(&world, &other).set(0).await);
    let calls = AtomicI64::new(0);

    let drops = cancel_at_every_await(async || {
        // A new counter each time, so that each has to create and to remove a write id.
        let one = counter(&world, &client);
        calls.fetch_add(1, Ordering::Relaxed);
        answer(one.increment().await);
    });
    dropped_enough(drops.await, 0);

    let marks = Query::children(world.at("counter")).names_only();
    let alone = async || answer(client.read(marks.clone()).await).nodes.is_empty();
    world.eventually("no mark is left", alone).await;
    let (number, calls) = (stored(&world, &other).await, calls.into_inner());
    assert!((1..=calls).contains(&number), "{number} after {calls} calls");
}
