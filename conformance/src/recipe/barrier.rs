//! The barrier: no waiter passes while it is set, and all do when it is lifted.

use futures_util::future::join_all;
use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::Lifetime;
use synod_recipes::barrier::{Barrier, BarrierChange};
use synod_testkit::cancel::stop_at;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::world::{World, dropped_enough};

cases![
    "L-BAR-1 L-BAR-2" catches [WatchMissesDelete] => waiters_pass_when_it_is_lifted_and_not_before,
    "L-BAR-3" breaks [PutKeepsWhatIsThere] => a_set_and_a_lift_tell_what_they_changed,
    "L-X-1 D-PUT" breaks [PutTakenBack] => a_set_that_is_dropped_does_not_undo_that_of_another_client,
];

fn barrier(world: &World, client: &Client) -> Barrier {
    Barrier::new(client, world.at("barrier"))
}

fn waits(world: &World, client: &Client) -> Waiting<()> {
    let barrier = barrier(world, client);
    Waiting::new(async move { barrier.wait().await })
}

async fn waiters_pass_when_it_is_lifted_and_not_before(world: World) {
    let (ann, gate) = (world.client().await, world.gate());
    let bob = world.client_on(gate.clone(), world.options()).await;
    let (anns, bobs) = (barrier(&world, &ann), barrier(&world, &bob));
    answer(world.in_time("a barrier that is not set", bobs.wait()).await);
    assert_eq!(gate.count(Verb::Watch), 1, "one call");
    answer(anns.lift().await);
    for round in 1..=3 {
        answer(anns.set().await);
        let mut waiting = [(); 3].map(|()| waits(&world, &bob));
        world.in_time("all look", gate.answered(Verb::Watch, 3 * round + 1)).await;
        // The barrier may be set again.
        answer(anns.set().await);
        assert!(answer(bobs.is_set().await));
        for one in &mut waiting {
            one.waits_for(world.brief(), "it is set").await;
        }

        answer(anns.lift().await);

        for one in waiting {
            one.gets(&world, "a barrier that was lifted").await;
        }
        assert!(!answer(bobs.is_set().await));
        assert_eq!(gate.count(Verb::Watch), 3 * round + 1, "one watch each");
        assert_eq!(gate.count(Verb::Read), 5 * round, "and one look each");
    }
    // A node below a path makes it a directory.
    answer(answer(ann.create(&world.at("barrier/x"), "", Lifetime::Persistent).await).required());
    assert_eq!(failure(anns.set().await, "a directory").kind(), ErrorKind::Refused);
    answer(world.in_time("a directory is no barrier", bobs.wait()).await);
}

async fn a_set_and_a_lift_tell_what_they_changed(world: World) {
    use BarrierChange::{Changed, Unchanged, Unknown};
    let (bob, (ann, plan)) = (world.client().await, world.scripted([]).await);
    let (anns, bobs) = (barrier(&world, &ann), barrier(&world, &bob));
    for _ in 0..2 {
        assert_eq!(answer(anns.lift().await), Unchanged);
        assert_eq!(answer(bobs.set().await), Changed);
        assert_eq!(answer(bobs.set().await), Unchanged);
        assert_eq!(answer(anns.set().await), Unchanged);
        assert_eq!(answer(anns.lift().await), Changed);
        assert_eq!(answer(bobs.lift().await), Unchanged);
    }
    // Of several calls at the same time one makes the change.
    let all = [&anns, &bobs, &anns, &bobs];
    let set = join_all(all.map(Barrier::set)).await.into_iter().map(answer);
    assert_eq!(set.filter(|change| *change == Changed).count(), 1);
    let lifted = join_all(all.map(Barrier::lift)).await.into_iter().map(answer);
    assert_eq!(lifted.filter(|change| *change == Changed).count(), 1);

    for (site, created, lifted) in [
        (Site::ReplyLost, [Changed, Changed], [Unknown, Unknown]),
        (Site::RequestLost, [Changed, Changed], [Changed, Changed]),
        // The first request may be the applied one.
        (Site::AppliedLate, [Changed, Unknown], [Changed, Unknown]),
    ] {
        plan.cue(Cue::new(site).of(Verb::Create));
        let change = answer(world.in_time("a barrier", anns.set()).await);
        assert!(created.contains(&change), "{site:?}: {change:?}");
        // A write to a barrier that is already set has no effect on waiters.
        for other in [&bobs, &anns] {
            answer(other.lift().await);
            answer(other.set().await);
            plan.cue(Cue::new(site).of(Verb::Set));
            let change = answer(world.in_time("a barrier", anns.set()).await);
            assert!([Unchanged, Unknown].contains(&change), "{site:?}: {change:?}");
            assert!(site != Site::ReplyLost || change == Unchanged, "it wrote over another one");
        }
        plan.cue(Cue::new(site).of(Verb::Delete));
        let change = answer(world.in_time("a lift", anns.lift()).await);
        assert!(lifted.contains(&change), "{site:?}: {change:?}");
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        assert_eq!(answer(anns.lift().await), Unchanged, "{site:?}");
    }
}

async fn a_set_that_is_dropped_does_not_undo_that_of_another_client(world: World) {
    let (ann, bob) = (world.hesitant().await, world.client().await);
    for waits in 1.. {
        let ended = stop_at(waits, barrier(&world, &ann).set()).await;
        answer(barrier(&world, &bob).set().await);
        world.think().await;
        // A request that was sent has completed when a later write of the same session is answered.
        answer(ann.put(&world.at(&format!("later-{waits}")), "").await);
        assert!(answer(barrier(&world, &bob).is_set().await), "dropped at await {waits}");
        answer(barrier(&world, &bob).lift().await);
        if let Some(set) = ended {
            answer(set);
            dropped_enough(waits, 2);
            break;
        }
    }
    // Requests whose answer was lost are repeated.
    let (client, plan) = world.scripted([]).await;
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate] {
        plan.cue(Cue::new(site).of(Verb::Commit));
        answer(world.in_time("a barrier", barrier(&world, &client).set()).await);
        assert!(answer(barrier(&world, &bob).is_set().await), "{site:?}");
        plan.cue(Cue::new(site).of(Verb::Delete));
        answer(world.in_time("a lift", barrier(&world, &client).lift()).await);
        assert!(!answer(barrier(&world, &bob).is_set().await), "{site:?}");
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
    }
}
