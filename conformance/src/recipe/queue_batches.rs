//! Items that are put in batches: any number, in order, and each once.

use std::num::NonZeroUsize;

use synod_core::error::ErrorKind;
use synod_recipes::queue::Queue;
use synod_testkit::cancel::stop_at;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::recipe::queue::{queue, took};
use crate::world::{World, dropped_enough};

cases![
    "L-Q-3 L-Q-7" breaks [QueueIgnoresOrder] => any_number_of_items_is_put_in_batches_and_in_their_order,
    "L-Q-3 L-Q-1" breaks [TransactionRunsAgain] => a_batch_whose_answer_is_lost_is_put_once,
    "L-Q-3 L-X-1" breaks [TransactionRunsAgain] => batches_continue_after_a_dropped_call_and_after_an_error,
    "L-Q-10 L-Q-7" breaks [QueueIgnoresOrder] => batches_are_put_into_a_small_queue_as_it_has_room,
];

fn numbers(to: usize) -> Vec<String> {
    (0..to).map(|number| format!("{number:05}")).collect()
}

/// The items of the queue, in their order.
async fn listed(queue: &Queue<String>) -> Vec<String> {
    answer(queue.items().await).iter().filter_map(|item| item.item().cloned()).collect()
}

async fn any_number_of_items_is_put_in_batches_and_in_their_order(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.unhurried()).await;
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    let limits = answer(ann.session().await).info().limits.clone();
    // Another transaction creates the directories.
    answer(anns.put_many(&numbers(1)).await);
    assert_eq!(took(&world, &bobs).await, "00000");
    let batch = limits.operations - 1;
    for (count, commits) in [(0, 0), (1, 1), (batch, 1), (batch + 1, 2), (2 * batch + 1, 3)] {
        let (before, items) = (gate.count(Verb::Commit), numbers(count));
        let mut batches = anns.put_in_batches(&items);
        for _ in 0..2 {
            answer(batches.put().await);
            assert_eq!(batches.stored(), count);
        }
        assert_eq!(gate.count(Verb::Commit) - before, commits, "{count} items");
        assert_eq!(listed(&bobs).await, items);
        let mut taken = Vec::new();
        while let Some(many) = NonZeroUsize::new(count - taken.len()) {
            taken.extend(answer(world.in_time("items", bobs.take_many(many)).await));
        }
        assert_eq!(taken, items);
    }

    // Few of these fit into a request, and the last of them into none.
    let large = vec!["x".repeat(limits.data / 2 - 10_000); 5];
    let mut items = large.clone();
    items.push("y".repeat(limits.data));
    items.push("after it".to_owned());
    let mut batches = anns.put_in_batches(&items);
    for _ in 0..2 {
        assert_eq!(failure(batches.put().await, "too large").kind(), ErrorKind::TooLarge);
        assert_eq!(batches.stored(), large.len());
    }
    assert!(format!("{batches:?}").contains("stored: 5, rest: 2"), "{batches:?}");
    assert_eq!(listed(&bobs).await, large, "those before it are stored once");
}

async fn a_batch_whose_answer_is_lost_is_put_once(world: World) {
    let (bob, (ann, plan)) = (world.client().await, world.scripted([]).await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    let batch = answer(ann.session().await).info().limits.operations - 1;
    let items = numbers(batch.min(60) + 1);
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate, Site::Unsent] {
        plan.cue(Cue::new(site).of(Verb::Set));
        let mut batches = anns.put_in_batches(&items);
        answer(world.in_time("the batches", batches.put()).await);
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        assert_eq!((batches.stored(), listed(&bobs).await), (items.len(), items.clone()));
        for item in answer(bobs.items().await) {
            assert!(answer(bobs.remove(&item).await));
        }
    }
}

async fn batches_continue_after_a_dropped_call_and_after_an_error(world: World) {
    let (ann, bob) = (world.hesitant().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    let items = numbers(100);
    let (mut batches, mut stopped) = (anns.put_in_batches(&items), 0);
    for awaits in 1.. {
        match stop_at(awaits, batches.put()).await {
            Some(put) => {
                answer(put);
                break;
            }
            None => stopped += 1,
        }
    }
    dropped_enough(stopped, 2);
    assert_eq!((batches.stored(), listed(&bobs).await), (items.len(), items.clone()));

    let (eve, plan) = world.scripted([]).await;
    let eves = Queue::<String>::new(&eve, world.at("refused"));
    let mut batches = eves.put_in_batches(&items);
    plan.cue(Cue::new(Site::Denied).of(Verb::Set));
    assert_eq!(failure(batches.put().await, "a refusal").kind(), ErrorKind::Denied);
    plan.cue(Cue::new(Site::ReplyLost).of(Verb::Set));
    answer(world.in_time("the rest", batches.put()).await);
    assert_eq!(plan.pending(), 0, "no answer was lost");
    assert_eq!((batches.stored(), listed(&eves).await), (items.len(), items.clone()));
}

async fn batches_are_put_into_a_small_queue_as_it_has_room(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [anns, bobs] = [&ann, &bob].map(|client| queue(&world, client));
    for capacity in [1, 3] {
        let bounded = anns.clone().capacity(NonZeroUsize::new(capacity).expect("not zero"));
        let items = numbers(10);
        let all = items.clone();
        let putting = Waiting::new(async move {
            let mut batches = bounded.put_in_batches(&all);
            batches.put().await.map(|()| batches.stored())
        });
        for item in &items {
            assert!(answer(bobs.len().await) <= 2 * capacity, "also while items move");
            assert_eq!(took(&world, &bobs).await, *item);
        }
        assert_eq!(putting.gets(&world, "the end").await, items.len());
    }
}
