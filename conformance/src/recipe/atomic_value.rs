//! The atomic value: as the counter, for every type.

use std::collections::BTreeSet;

use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_recipes::AtomicValue;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::world::World;

cases![
    "L-CNT-1 L-CNT-2" breaks [SharesOneAnswer] => updates_of_many_tasks_all_see_each_other,
    "L-CNT-1 L-CNT-3" breaks [LostAnswerIsLostRace] => an_update_whose_answer_is_lost_is_made_once,
    "L-CNT-2" breaks [MemoryTrusted] => a_swap_that_is_refused_returns_the_latest_value,
    "L-CNT-5 D-VALUE" breaks [CorruptIsNone] => an_update_of_what_is_no_such_value_changes_nothing,
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

async fn an_update_that_no_client_disturbs_is_one_call(world: World) {
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.options()).await;
    let one = value(&world, &client);
    for _ in 0..2 {
        answer(one.set(&vec![0]).await);
    }
    let counts = || [Verb::Commit, Verb::Read, Verb::Observe].map(|verb| gate.count(verb));
    let [commits, reads, _] = counts();
    for more in 1..5 {
        answer(one.update(with(1)).await);
        assert_eq!(counts(), [commits + more, reads, 0], "commits, reads, observes");
    }
}
