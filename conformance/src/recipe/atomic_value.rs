//! The atomic value: the promises of the counter, for every type.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt as _;
use futures_util::future::{join, join3};
use synod_core::client::Client;
use synod_core::error::{Effect, ErrorKind};
use synod_recipes::value::AtomicValue;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::world::World;

cases![
    "L-CNT-1 L-CNT-2" breaks [SharesOneAnswer] => updates_of_many_tasks_all_see_each_other,
    "L-CNT-1 L-CNT-3" breaks [LostAnswerIsLostRace] => an_update_whose_answer_is_lost_is_made_once,
    "L-CNT-2" breaks [MemoryTrusted] => a_swap_that_is_refused_returns_the_latest_value,
    "L-CNT-5 D-VALUE" breaks [CorruptIsNone] => an_update_of_what_is_no_such_value_changes_nothing,
    "L-OUT-1 L-CNT-5 D-VALUE" breaks [CorruptIsNone] => a_value_that_cannot_be_read_again_is_not_written,
    "L-CNT-1 B-SIZE" breaks [SharesOneAnswer] => a_value_that_is_too_large_fails_alone,
    "L-CNT-1 L-CNT-3" breaks [SharesOneAnswer] => a_function_that_panics_fails_alone,
    "L-CNT-2 L-SES-18" breaks [SharesOneAnswer] => a_change_that_is_given_up_may_start_another_as_it_is_dropped,
    "L-X-7" breaks [ReadsFirst] => an_update_that_no_client_disturbs_is_one_call,
];

fn value(world: &World, client: &Client) -> AtomicValue<Vec<u32>> {
    AtomicValue::new(client, world.at("value"))
}

/// The list with one more entry.
fn with(entry: u32) -> impl FnMut(Option<Vec<u32>>) -> Vec<u32> + Send + 'static {
    move |list| [list.unwrap_or_default(), vec![entry]].concat()
}

async fn updates_of_many_tasks_all_see_each_other(world: World) {
    const TASKS: u32 = 12;
    let (ann, mut updating) = (world.hesitant().await, Vec::new());
    let shared = value(&world, &ann);
    for entry in 0..TASKS {
        let client = world.client().await;
        let one = if entry % 2 == 0 { shared.clone() } else { value(&world, &client) };
        updating.push(Waiting::new(async move {
            let update = one.update(with(entry)).await?;
            Ok((entry, update.before.unwrap_or_default(), update.after))
        }));
    }
    let mut lengths = BTreeSet::new();
    for one in updating {
        let (entry, before, after) = one.gets(&world, "its update").await;
        assert_eq!(after, [before, vec![entry]].concat());
        lengths.insert(after.len());
    }
    let list = answer(shared.get().await).expect("it was set");
    let entries: BTreeSet<_> = list.iter().copied().collect();
    assert_eq!((list.len(), entries.len(), lengths.len()), (12, 12, 12), "{list:?}");
}

async fn an_update_whose_answer_is_lost_is_made_once(world: World) {
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate] {
        let (client, plan) = world.scripted([]).await;
        let one = AtomicValue::new(&client, world.at(&format!("{site:?}")));
        answer(one.set(&vec![0]).await);
        plan.cue(Cue::new(site).of(Verb::Set));

        let update = answer(world.in_time("an update", one.update(with(1))).await);

        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        assert_eq!((update.before, update.after), (Some(vec![0]), vec![0, 1]), "{site:?}");
        assert_eq!(answer(one.get().await), Some(vec![0, 1]), "{site:?}");
    }
}

async fn a_swap_that_is_refused_returns_the_latest_value(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let (anns, bobs) = (value(&world, &ann), value(&world, &bob));
    assert_eq!(answer(anns.get().await), None);
    assert!(answer(anns.compare_and_set(None, &vec![1]).await).is_ok(), "there was none");
    assert_eq!(answer(anns.swap(&vec![2]).await), Some(vec![1]));
    answer(bobs.set(&vec![7]).await);

    let swapped = answer(anns.compare_and_set(Some(vec![7]), &vec![3]).await);

    assert!(swapped.is_ok(), "it is 7 since bob wrote it");
    answer(bobs.set(&vec![8]).await);
    assert_eq!(answer(anns.compare_and_set(Some(vec![3]), &vec![4]).await), Err(Some(vec![8])));
    assert!(!answer(anns.initialize(&vec![5]).await), "there is a value");
    assert_eq!(answer(bobs.get().await), Some(vec![8]));
}

async fn an_update_of_what_is_no_such_value_changes_nothing(world: World) {
    let client = world.client().await;
    let one = value(&world, &client);
    for bytes in [&b""[..], b"{", b"\"text\"", b"[-1]"] {
        answer(client.put(&world.at("value"), bytes).await);

        let refused = [
            failure(one.get().await, "a read").kind(),
            failure(one.update(with(1)).await, "an update").kind(),
            failure(one.swap(&vec![1]).await, "a swap").kind(),
            failure(one.compare_and_set(None, &vec![1]).await, "a swap").kind(),
        ];

        assert_eq!(refused, [ErrorKind::Corrupt; 4], "{bytes:?}");
        let node = answer(client.get(&world.at("value")).await).expect("it is there");
        assert_eq!(node.data, bytes, "it is not changed");
    }
    answer(one.set(&vec![6]).await);
    let read = answer(client.get_value::<Vec<u32>>(&world.at("value")).await);
    assert_eq!(read.map(|read| read.value), Some(vec![6]));
}

async fn a_value_that_cannot_be_read_again_is_not_written(world: World) {
    let (client, at) = (world.client().await, world.at("value"));
    let one = AtomicValue::<f64>::new(&client, at.clone());
    for stored in [None, Some(1.5)] {
        if let Some(number) = stored {
            answer(one.set(&number).await);
        }
        // JSON has no such number: `null` would be written, which is not a number.
        let refused = [
            failure(one.set(&f64::NAN).await, "a set"),
            failure(one.initialize(&f64::INFINITY).await, "a first value"),
            failure(one.swap(&f64::NAN).await, "a swap"),
            failure(one.compare_and_set(stored, &f64::NAN).await, "a swap"),
            failure(one.update(|_before| f64::NEG_INFINITY).await, "an update"),
        ];
        for error in refused {
            let said = (error.kind(), error.effect(), error.path());
            assert_eq!(said, (ErrorKind::Invalid, Effect::None, Some(&at)), "{error}");
        }
        assert_eq!(answer(one.get().await), stored, "nothing was written");
    }
    // Another program may have written it.
    answer(client.put(&at, "null").await);
    let refused = failure(one.update(|_before| 2.5).await, "an update of what is no number");
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert_eq!(answer(client.get(&at).await).expect("it is there").data, "null");
    answer(one.set(&2.5).await);
    assert_eq!(answer(one.get().await), Some(2.5));
}

async fn a_value_that_is_too_large_fails_alone(world: World) {
    let client = world.client().await;
    let one = AtomicValue::<String>::new(&client, world.at("value"));
    let most = answer(client.session().await).info().limits.data;
    // As JSON it has two quotes.
    let text = |bytes: usize| "x".repeat(bytes - 2);
    answer(one.set(&text(most)).await);
    assert_eq!(answer(one.get().await).map(|text| text.len()), Some(most - 2));
    let large = failure(one.set(&text(most + 1)).await, "a byte more");
    assert_eq!((large.kind(), large.effect()), (ErrorKind::TooLarge, Effect::None), "{large}");
    answer(one.set(&String::new()).await);

    let add = |more: String| one.update(move |text| text.unwrap_or_default() + &more);
    // Changes that are requested together are written together.
    let added = join3(add("a".to_owned()), add(text(most)), add("b".to_owned()));
    let (first, large, last) = world.in_time("three updates", added).await;

    let large = failure(large, "an update to a value that is too large");
    assert_eq!((large.kind(), large.effect()), (ErrorKind::TooLarge, Effect::None), "{large}");
    let last = answer(last);
    assert_eq!((answer(first).after, last.before), ("a".to_owned(), Some("a".to_owned())));
    assert_eq!(answer(one.get().await), Some(last.after));
}

async fn a_function_that_panics_fails_alone(world: World) {
    let one = value(&world, &world.client().await);
    let mut entries = Vec::new();
    answer(one.set(&entries).await);
    for round in 0..3 {
        // The panic has no message, because it would be taken for the message of the case.
        let panics = |_list: Option<Vec<u32>>| resume_unwind(Box::new("of the caller"));
        let panicking = AssertUnwindSafe(one.update(panics)).catch_unwind();
        let updates = join3(one.update(with(round)), panicking, one.update(with(100 + round)));
        let (first, panicked, last) = world.in_time("three updates", updates).await;

        let panicked = panicked.expect_err("its panic is its caller's");
        assert_eq!(panicked.downcast_ref::<&str>(), Some(&"of the caller"));
        entries.extend([round, 100 + round]);
        assert_eq!(answer(first).after, entries[..entries.len() - 1]);
        assert_eq!(answer(last).after, entries);
    }
    assert_eq!(answer(one.get().await), Some(entries));
}

/// A value whose drop begins another change, and drops it.
struct Begins(AtomicValue<Vec<u32>>);

impl Drop for Begins {
    fn drop(&mut self) {
        assert!(self.0.update(with(9)).now_or_never().is_none(), "it waits");
    }
}

async fn a_change_that_is_given_up_may_start_another_as_it_is_dropped(world: World) {
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.options()).await;
    let one = value(&world, &client);
    for _ in 0..2 {
        answer(one.set(&vec![]).await);
    }
    gate.set(Way::Holding);
    let first = one.clone();
    let first = Waiting::new(async move { first.update(with(1)).await });
    gate.held(1).await;
    let begins = Begins(one.clone());
    let given_up = one.update(move |list| {
        let _held = &begins;
        with(2)(list)
    });
    assert!(given_up.now_or_never().is_none(), "it waits for the first");

    gate.set(Way::Open);

    assert_eq!(first.gets(&world, "its update").await.after, [1]);
    let updates = join(one.update(with(3)), one.update(with(4)));
    let (third, fourth) = world.in_time("two updates", updates).await;
    assert_eq!((answer(third).after, answer(fourth).after), (vec![1, 3], vec![1, 3, 4]));
}

async fn an_update_that_no_client_disturbs_is_one_call(world: World) {
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.options()).await;
    let one = value(&world, &client);
    for _ in 0..2 {
        answer(one.set(&vec![0]).await);
    }
    let counts = || [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));
    let [commits, reads, _] = counts();
    for more in 1..5 {
        answer(one.update(with(1)).await);
        assert_eq!(counts(), [commits + more, reads, 0], "commits, reads, observes");
    }
}
