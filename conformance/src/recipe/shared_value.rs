//! The shared value: an eventually correct copy, and writes on the condition that the copy is
//! current.

use std::panic::resume_unwind;
use std::pin::pin;

use futures_util::StreamExt as _;
use futures_util::future::join;
use serde::{Deserialize, Deserializer, Serialize};
use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Query};
use synod_recipes::value::{CopyState, LocalCopy, SharedValue};
use synod_testkit::cancel::cancel_at_every_await;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::world::{World, dropped_enough};

cases![
    "L-SV-1 L-WAT-1" catches [WatchMissesUpdate] => every_copy_is_the_last_value_in_the_end,
    "L-SV-1 L-X-5" catches [WatchMissesUpdate] => a_reader_of_changes_gets_the_last_one_and_the_end,
    "L-SV-1" breaks [OvertakenReadCounts] => a_read_that_a_write_overtook_is_not_the_latest,
    "L-SV-1" breaks [NewerByVersion] => a_value_that_is_removed_and_made_again_is_followed,
    "L-SV-1 L-WAT-7" needs [Expiry] breaks [OutageUnread] => a_copy_is_right_again_after_its_session_was_lost,
    "L-SV-1 L-KV-5" catches [CreateOverwrites] => one_of_many_first_values_is_stored,
    "L-SV-2" catches [CasIgnoresVersion] breaks [MemoryTrusted] => a_conditional_write_fails_only_if_the_value_was_written_since,
    "L-SV-2" catches [CasIgnoresVersion] => one_of_many_conditional_writes_succeeds,
    "L-SV-2" breaks [SharesOneAnswer] => of_conditional_writes_that_are_made_together_one_succeeds,
    "L-SV-2 L-CNT-3" breaks [LostAnswerIsLostRace] => a_conditional_write_whose_answer_is_lost_succeeds,
    "L-SV-2" breaks [NumberIsVersion] => a_version_of_a_removed_value_is_not_replaced,
    "L-SV-3" breaks [CopyIsNeverStale] => a_copy_is_stale_while_the_store_is_out_of_reach,
    "L-SV-3 L-CNT-5" breaks [CopyIsNeverStale] => what_is_no_value_is_reported_and_leaves_the_last_one,
    "L-SV-1 L-SV-3" breaks [CopyIsNeverStale] => a_value_whose_decoder_panics_is_reported_and_followed_on,
    "L-X-7" breaks [ObservesTwice] => a_copy_costs_no_request,
    "L-WAT-14 L-X-5" needs [WatchCount] catches [DropLeavesWatch] => values_that_were_dropped_leave_no_watch,
    "L-X-1 L-SV-1 L-X-5" breaks [MarkStays] => a_value_opened_and_written_and_dropped_at_any_await_leaves_no_mark,
];

async fn open(world: &World, client: &Client) -> SharedValue<u64> {
    let value = SharedValue::open(client, world.at("value"), &0);
    answer(world.in_time("a shared value", value).await)
}

async fn store(world: &World, client: &Client, number: u64) {
    answer(client.put_value(&world.at("value"), &number).await);
}

/// Reads the value without the recipe.
async fn stored(world: &World, client: &Client) -> u64 {
    answer(client.get_value(&world.at("value")).await).expect("there is a value").value
}

/// Removes the value, with the write ids of the clients that wrote it.
async fn remove(world: &World, client: &Client) {
    for mark in answer(client.children(&world.at("value")).await) {
        answer(answer(client.delete(&mark.path, Expect::Any).await).required());
    }
    answer(answer(client.delete(&world.at("value"), Expect::Any).await).required());
}

impl World {
    /// Waits until a copy has the expected state.
    async fn shows(
        &self,
        value: &SharedValue<u64>,
        what: &str,
        is: impl Fn(&LocalCopy<u64>) -> bool,
    ) {
        self.eventually(what, async || is(&value.get())).await;
    }

    /// Waits until a copy is current and has this number.
    async fn shows_number(&self, value: &SharedValue<u64>, number: u64) {
        let is_it = |copy: &LocalCopy<u64>| copy.value == number && copy.is_current();
        self.shows(value, &format!("{number} is shown"), is_it).await;
    }
}

async fn every_copy_is_the_last_value_in_the_end(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let anns = open(&world, &ann).await;
    assert!(anns.get().value == 0 && anns.get().is_current(), "the first value");
    store(&world, &bob, 5).await;
    let bobs = open(&world, &bob).await;
    assert_eq!(bobs.get().value, 5, "what there is");
    for number in 6..20 {
        answer(bobs.set(&number).await);
        assert_eq!(bobs.get().value, number, "it shows its own write at once");
    }
    world.shows_number(&anns, 19).await;
    // Written by another program.
    store(&world, &ann, 20).await;
    for one in [&anns, &bobs, &anns.clone()] {
        world.shows_number(one, 20).await;
    }
    assert_eq!(anns.get().stat, bobs.get().stat);
}

async fn a_reader_of_changes_gets_the_last_one_and_the_end(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let (anns, bobs) = (open(&world, &ann).await, open(&world, &bob).await);
    let mut changes = pin!(anns.clone().changes());
    let first = world.in_time("the copy", changes.next()).await.expect("it is open");
    assert_eq!(first.value, 0);
    let mut last = first.stat.modified;
    for number in 1..=10 {
        answer(bobs.set(&number).await);
    }
    loop {
        let next = world.in_time("a change", changes.next()).await.expect("it is open");
        assert!(next.stat.modified >= last, "it went back from {last} to {:?}", next.stat);
        last = next.stat.modified;
        if next.value == 10 {
            break;
        }
    }
    drop(anns);
    while let Some(last) = world.in_time("the end of the value", changes.next()).await {
        assert_eq!(last.value, 10);
    }
    let mut changes = pin!(bobs.changes());
    answer(bob.close().await);
    while let Some(last) = world.in_time("the end of the client", changes.next()).await {
        assert_eq!(last.value, 10);
    }
    assert!(bobs.get().value == 10 && !bobs.get().is_current(), "it is not followed any more");
}

async fn a_read_that_a_write_overtook_is_not_the_latest(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    store(&world, &bob, 1).await;
    let anns = open(&world, &world.client_on(gate.clone(), world.options()).await).await;
    let reads = gate.count(Verb::Read);
    gate.hold_behind(Some((Verb::Read, reads)));
    remove(&world, &bob).await;
    // The answer, that there is no node, is in flight.
    gate.held(1).await;

    answer(anns.set(&2).await);
    gate.hold_behind(Some((Verb::Read, reads + 1)));
    gate.held(2).await;

    let copy = anns.get();
    assert!(!matches!(copy.state, CopyState::Removed), "it was removed before the last write");
    gate.hold_behind(None);
    world.shows_number(&anns, 2).await;
}

async fn a_value_that_is_removed_and_made_again_is_followed(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let anns = open(&world, &ann).await;
    for number in 1..=5 {
        answer(anns.set(&number).await);
    }
    for number in 6..=8 {
        let last = anns.get();
        remove(&world, &bob).await;
        let is_gone = |copy: &LocalCopy<u64>| matches!(copy.state, CopyState::Removed);
        world.shows(&anns, "it is removed", is_gone).await;
        assert_eq!(anns.get().value, last.value, "the last value stays");

        // The new node may have the same version as before, or one with a smaller number.
        store(&world, &bob, number).await;

        world.shows_number(&anns, number).await;
        assert!(anns.get().stat.created > last.stat.created);
    }
    remove(&world, &bob).await;
    answer(anns.set(&9).await);
    world.shows_number(&anns, 9).await;
}

async fn a_copy_is_right_again_after_its_session_was_lost(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let anns = open(&world, &ann).await;
    for round in 1..=3 {
        // Ann loses her session, and gets no other before the value is written.
        let session = answer(ann.session().await);
        gate.set(Way::Shut);
        world.expire(session.info().id).await;
        world.in_time("the loss", session.lost()).await;
        if round == 2 {
            remove(&world, &bob).await;
        }
        store(&world, &bob, round).await;
        gate.set(Way::Open);

        world.shows_number(&anns, round).await;
    }
    answer(anns.set(&7).await);
    assert_eq!((anns.get().value, stored(&world, &bob).await), (7, 7));
}

async fn one_of_many_first_values_is_stored(world: World) {
    let (mut opening, at) = (Vec::new(), world.at("value"));
    for number in 1_u64..=4 {
        let (client, at) = (world.hesitant().await, at.clone());
        opening.push(Waiting::new(async move { SharedValue::open(&client, at, &number).await }));
    }
    let mut seen = Vec::new();
    for one in opening {
        seen.push(one.gets(&world, "a shared value").await.get().value);
    }
    let stored = stored(&world, &world.client().await).await;
    assert_eq!(seen, [stored; 4]);
}

async fn a_conditional_write_fails_only_if_the_value_was_written_since(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let (anns, bobs) = (open(&world, &ann).await, open(&world, &bob).await);
    answer(anns.set(&1).await);
    world.shows_number(&bobs, 1).await;
    let seen = anns.get();

    assert!(answer(bobs.try_set(&bobs.get(), &2).await).is_ok(), "it was not written since");

    world.shows_number(&anns, 2).await;
    // The revision that its writer remembers is older than its copy.
    assert!(answer(anns.try_set(&anns.get(), &3).await).is_ok(), "it was not written since");
    let newer = answer(anns.try_set(&seen, &4).await).expect_err("it was written twice");
    assert_eq!((newer.value, stored(&world, &bob).await), (3, 3));
    assert!(answer(anns.try_set(&newer, &4).await).is_ok(), "it was not written since");
    assert!(answer(anns.try_set(&newer, &5).await).is_err(), "it has written itself");
    // Writing the same value again is also a write.
    let seen = anns.get();
    answer(bobs.set(&4).await);
    assert!(answer(anns.try_set(&seen, &5).await).is_err(), "bob has written");
    assert_eq!((anns.get().value, stored(&world, &bob).await), (4, 4));
}

async fn one_of_many_conditional_writes_succeeds(world: World) {
    const CLIENTS: u64 = 4;
    let bob = world.client().await;
    let mut values = Vec::new();
    for _ in 0..CLIENTS {
        values.push(open(&world, &world.hesitant().await).await);
    }
    for round in 1..=3 {
        // All have seen the same version.
        let seen: Vec<_> = values.iter().map(SharedValue::get).collect();
        let mut trying = Vec::new();
        for ((value, seen), own) in values.iter().cloned().zip(seen).zip(round * 10..) {
            let tries = async move { Ok((own, value.try_set(&seen, &own).await?)) };
            trying.push(Waiting::new(tries));
        }
        let mut winners = Vec::new();
        for one in trying {
            let (own, tried) = one.gets(&world, "its answer").await;
            winners.extend(tried.is_ok().then_some(own));
        }
        let stored = stored(&world, &bob).await;
        assert_eq!(winners, [stored]);
        for value in &values {
            world.shows_number(value, stored).await;
        }
    }
}

async fn of_conditional_writes_that_are_made_together_one_succeeds(world: World) {
    let client = world.client().await;
    let value = open(&world, &client).await;
    for number in 1..=3 {
        answer(value.set(&number).await);
        world.shows_number(&value, number).await;
        let seen = value.get();

        let tries = join(value.try_set(&seen, &10), value.try_set(&seen, &20));
        let (first, second) = world.in_time("two writes", tries).await;

        assert!(answer(first).is_ok(), "it was not written since");
        assert!(answer(second).is_err(), "the first one has written it");
        assert_eq!(stored(&world, &client).await, 10);
    }
}

async fn a_conditional_write_whose_answer_is_lost_succeeds(world: World) {
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate] {
        let (client, plan) = world.scripted([]).await;
        let at = world.at(&format!("{site:?}"));
        let value = answer(SharedValue::open(&client, &at, &0).await);
        for number in 1..=3 {
            let seen = value.get();
            plan.cue(Cue::new(site).of(Verb::Set));
            let tried = world.in_time("a write", value.try_set(&seen, &number)).await;
            assert!(answer(tried).is_ok(), "{site:?}: no other client wrote it");
            assert_eq!(plan.pending(), 0, "{site:?} did not fire");
            let stored = answer(client.get_value::<u64>(&at).await).map(|it| it.value);
            assert_eq!(stored, Some(number), "{site:?}");
            let is_shown = async || value.get().value == number && value.get().is_current();
            world.eventually("its own value is shown", is_shown).await;
        }
    }
}

async fn a_version_of_a_removed_value_is_not_replaced(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let anns = open(&world, &ann).await;
    for number in 1..=3 {
        let seen = anns.get();
        remove(&world, &bob).await;
        // The new node has the same version number as the removed one.
        store(&world, &bob, number).await;

        let tried = answer(anns.try_set(&seen, &100).await);

        assert!(tried.is_err(), "another node has that number now");
        assert_eq!(stored(&world, &bob).await, number);
        world.shows_number(&anns, number).await;
    }
    let seen = anns.get();
    remove(&world, &bob).await;
    assert!(answer(anns.try_set(&seen, &100).await).is_err(), "there is no value");
    assert!(!answer(bob.exists(&world.at("value")).await));
}

async fn a_copy_is_stale_while_the_store_is_out_of_reach(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.options()).await;
    store(&world, &bob, 1).await;
    let anns = open(&world, &ann).await;
    let mut changes = pin!(anns.changes());
    for number in 2..=4 {
        world.shows(&anns, "it is current", LocalCopy::is_current).await;
        gate.set(Way::Shut);
        gate.lose();
        assert!(!anns.get().is_current(), "its session is lost");
        store(&world, &bob, number).await;

        let is_stale = |copy: &LocalCopy<u64>| matches!(copy.state, CopyState::Stale);
        world.shows(&anns, "it is stale", is_stale).await;
        assert_eq!(anns.get().value, number - 1, "the last one stays");
        let stale = async { while !changes.next().await.is_some_and(|copy| is_stale(&copy)) {} };
        world.in_time("readers are notified", stale).await;

        gate.set(Way::Open);
        world.shows_number(&anns, number).await;
    }
}

async fn what_is_no_value_is_reported_and_leaves_the_last_one(world: World) {
    let (client, at) = (world.client().await, world.at("value"));
    answer(client.put(&at, "x").await);
    let value = SharedValue::<u64>::open(&client, &at, &0).await;
    assert_eq!(failure(value, "what is no number").kind(), ErrorKind::Corrupt);
    // JSON has no such number: `null` would be written, which is not a number.
    let (odd, nan) = (world.at("odd"), f64::NAN);
    let refused = failure(SharedValue::open(&client, &odd, &nan).await, "no number");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let number = answer(SharedValue::open(&client, &odd, &1.5).await);
    let refused = [
        failure(number.set(&nan).await, "no number"),
        failure(number.try_set(&number.get(), &nan).await, "no number"),
    ];
    assert_eq!(refused.map(|error| error.kind()), [ErrorKind::Invalid; 2]);
    assert_eq!(answer(client.get(&odd).await).expect("it is there").data, "1.5");
    store(&world, &client, 1).await;
    let value = open(&world, &client).await;
    for bytes in ["", "{", "-1"] {
        let seen = value.get();
        answer(client.put(&at, bytes).await);

        let is_reported = |copy: &LocalCopy<u64>| match &copy.state {
            CopyState::Unreadable(why) => why.kind() == ErrorKind::Corrupt,
            _ => false,
        };
        world.shows(&value, "it is reported", is_reported).await;

        assert_eq!(value.get().value, seen.value, "the last one stays");
        let tried = answer(value.try_set(&seen, &100).await);
        assert!(tried.is_err_and(|now| is_reported(&now) || !now.is_current()));
        let node = answer(client.get(&at).await).expect("it is there");
        assert_eq!(node.data, bytes, "it is not changed");
        store(&world, &client, seen.value + 1).await;
        world.shows_number(&value, seen.value + 1).await;
    }
    answer(client.put(&at, "{").await);
    answer(value.set(&7).await);
    world.shows_number(&value, 7).await;
}

/// A number that some programs cannot read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Fragile(u64);

impl<'de> Deserialize<'de> for Fragile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            // The panic has no message, because it would be taken for the message of the case.
            13 => resume_unwind(Box::new("of the decoder")),
            number => Ok(Self(number)),
        }
    }
}

async fn a_value_whose_decoder_panics_is_reported_and_followed_on(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let opening = SharedValue::open(&ann, world.at("value"), &Fragile(0));
    let value = answer(world.in_time("a shared value", opening).await);
    for number in 1..=3 {
        store(&world, &bob, 13).await;
        let is_reported = async || match value.get().state {
            CopyState::Unreadable(why) => why.kind() == ErrorKind::Corrupt,
            _ => false,
        };
        world.eventually("it is reported", is_reported).await;
        assert_eq!(value.get().value, Fragile(number - 1), "the last one stays");

        store(&world, &bob, number).await;

        let is_shown = async || value.get().value == Fragile(number) && value.get().is_current();
        world.eventually("the next one is shown", is_shown).await;
    }
}

async fn a_copy_costs_no_request(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    store(&world, &bob, 1).await;
    let client = world.client_on(gate.clone(), world.options()).await;
    let counts = || [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));

    let value = open(&world, &client).await;

    for _ in 0..100 {
        assert_eq!(value.get().value, 1);
    }
    assert_eq!(counts(), [0, 0, 1], "commits, reads, observes");
    for number in 2..=4 {
        store(&world, &bob, number).await;
        world.shows_number(&value, number).await;
    }
    let [commits, reads, observes] = counts();
    assert!(commits == 0 && reads <= 3 && observes == 1, "{reads} reads for three events");

    // The first write creates a write id. On some servers the version of the write id's node is
    // read once.
    answer(value.set(&5).await);
    let [commits, ..] = counts();
    for (more, number) in (1..5).zip(6..) {
        answer(value.set(&number).await);
        assert_eq!(gate.count(Verb::Commit), commits + more, "a write is one commit");
    }
    // Each event causes one read, sooner or later.
    let [_, all, _] = counts();
    assert!(all <= reads + 2 * 5 + 1, "{} reads for five writes", all - reads);
}

async fn values_that_were_dropped_leave_no_watch(world: World) {
    let client = world.client().await;
    store(&world, &client, 1).await;
    let before = world.harness.watches().await;
    for _ in 0..5 {
        let value = open(&world, &client).await;
        let watching = async || world.harness.watches().await > before;
        world.eventually("it is watched", watching).await;
        let clone = value.clone();
        drop(value);
        let next = clone.get().value + 1;
        store(&world, &client, next).await;
        world.shows_number(&clone, next).await;
        drop(clone);
        let quiet = async || world.harness.watches().await <= before;
        world.eventually("no watch is left", quiet).await;
    }
}

async fn a_value_opened_and_written_and_dropped_at_any_await_leaves_no_mark(world: World) {
    let (client, other) = (world.hesitant().await, world.client().await);
    let drops = cancel_at_every_await(async || {
        let value = answer(SharedValue::open(&client, world.at("value"), &0).await);
        answer(value.set(&1).await);
        let seen = value.get();
        if seen.is_current() {
            let _tried = answer(value.try_set(&seen, &2).await).is_ok();
        }
    });
    dropped_enough(drops.await, 2);

    let marks = Query::children(world.at("value")).names_only();
    let alone = async || answer(other.read(marks.clone()).await).nodes.is_empty();
    world.eventually("no mark is left", alone).await;
    let stored = stored(&world, &other).await;
    assert!(stored <= 2, "{stored} is stored");
}
