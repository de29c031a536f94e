//! A contender may reuse the name of its earlier ticket: no request about the first ticket affects
//! the second.

use synod_core::client::Client;
use synod_core::store::{Expect, Lifetime};
use synod_recipes::lock::Mutex;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::answer;
use crate::recipe::line;
use crate::world::World;

cases![
    "L-MX-5" breaks [ToldNameUsedAgain] => what_an_earlier_guard_sends_does_not_happen_under_a_later_one,
    "L-OUT-1 L-MX-1" breaks [NameFreedInDoubt] => a_removal_that_comes_late_removes_no_later_ticket,
];

fn mutex(world: &World, client: &Client) -> Mutex {
    Mutex::new(client, world.at("lock"))
}

async fn what_an_earlier_guard_sends_does_not_happen_under_a_later_one(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let data = world.at("data");
    answer(ann.create(&data, "", Lifetime::Persistent).await).ok().expect("it is new");
    let earlier = answer(mutex(&world, &ann).lock().await);
    let late = earlier.txn().set(data.clone(), "late", Expect::Any);
    answer(earlier.release().await);
    let between = answer(mutex(&world, &bob).lock().await);
    let write = between.txn().set(data.clone(), "bob's", Expect::Any);
    answer(bob.commit(write).await).ok().expect("bob holds it");
    answer(between.release().await);

    let later = answer(mutex(&world, &ann).lock().await);
    let outcome = answer(ann.commit(late).await);

    assert!(outcome.rejected().is_some(), "it belongs to a guard of before bob's");
    assert!(later.is_held());
    let node = answer(ann.get(&data).await).expect("it is there");
    assert_eq!(node.data, "bob's");
}

async fn a_removal_that_comes_late_removes_no_later_ticket(world: World) {
    let (client, plan) = world.scripted([]).await;
    let other = world.client().await;
    for site in [Site::Unsent, Site::RequestLost, Site::ReplyLost] {
        let guard = answer(mutex(&world, &client).lock().await);
        let first = line(&other, &world.at("lock")).await.remove(0).path;
        plan.cue(Cue::new(site).of(Verb::Delete));
        answer(world.in_time("the release", guard.release()).await);
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");

        let later = answer(mutex(&world, &client).lock().await);
        // The request that was sent first and never answered arrives.
        let late = answer(other.delete(&first, Expect::Any).await);

        assert!(late.rejected().is_some(), "{site:?}: the ticket of before is gone");
        let standing = line(&other, &world.at("lock")).await;
        assert_eq!(standing.len(), 1, "{site:?}: {standing:?}");
        answer(later.release().await);
    }
}
