//! The count-down latch: it opens when all parties have counted, each once.

use std::num::NonZeroU32;

use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::Lifetime;
use synod_recipes::barrier::{BarrierChange, CountDown};
use synod_testkit::cancel::stop_at;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::{answer, failure};
use crate::recipe::{Waiting, many};
use crate::world::{World, dropped_enough};

cases![
    "L-CD-1 L-CD-2" breaks [StrangersCount] => waiters_pass_when_all_parties_have_counted,
    "L-CD-3" breaks [CountsEachTry] => a_party_counts_once_however_often_it_tries,
    "L-CD-3 L-X-1 D-PUT" breaks [PutTakenBack] => a_party_that_was_counted_stays_counted,
];

fn latch(world: &World, client: &Client, parties: NonZeroU32) -> CountDown {
    CountDown::new(client, world.at("latch"), parties)
}

fn waits(world: &World, client: &Client, parties: u32) -> Waiting<()> {
    let latch = latch(world, client, many(parties));
    Waiting::new(async move { latch.wait().await })
}

async fn waiters_pass_when_all_parties_have_counted(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let three = latch(&world, &ann, many(3));
    // This node is not a party.
    let other = world.at("latch/other");
    answer(answer(ann.create(&other, "", Lifetime::Persistent).await).required());
    let mut waiting = [waits(&world, &ann, 3), waits(&world, &bob, 3)];
    for (counted, party) in ["a", "../b"].into_iter().enumerate() {
        assert_eq!(answer(three.remaining().await) as usize, 3 - counted);
        answer(three.count_down(party).await);
        for one in &mut waiting {
            one.waits_for(world.brief(), "a party is missing").await;
        }
    }

    answer(latch(&world, &bob, many(3)).count_down("c").await);

    for one in waiting {
        one.gets(&world, "the latch").await;
    }
    assert_eq!(answer(three.remaining().await), 0);
    answer(world.in_time("an open latch", three.wait()).await);
}

async fn a_party_counts_once_however_often_it_tries(world: World) {
    let (ann, plan) = world.scripted([]).await;
    let bob = world.client().await;
    let two = latch(&world, &ann, many(2));
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate] {
        plan.cue(Cue::new(site).of(Verb::Commit));
        answer(world.in_time("a count", two.count_down("a")).await);
        let again = answer(latch(&world, &bob, many(2)).count_down("a").await);
        assert_eq!(again, BarrierChange::Unchanged, "{site:?}");
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        assert_eq!(answer(two.remaining().await), 1, "{site:?}");
    }
    assert_eq!(answer(two.count_down("b").await), BarrierChange::Changed);
    assert_eq!(answer(two.remaining().await), 0);
    answer(two.count_down("c").await);
    assert_eq!(answer(two.remaining().await), 0, "more than all is all");
    let all = latch(&world, &ann, NonZeroU32::MAX);
    assert_eq!(answer(all.remaining().await), u32::MAX - 3);
    // The store accepts names of 255 bytes, and the name of a party has a prefix of six.
    answer(all.count_down(&"p".repeat(249)).await);
    assert_eq!(answer(all.remaining().await), u32::MAX - 4);
    for party in ["", &"p".repeat(250)] {
        let error = failure(all.count_down(party).await, "a name that no node can have");
        assert_eq!((error.kind(), error.has_unknown_effect()), (ErrorKind::Invalid, false));
    }
}

async fn a_party_that_was_counted_stays_counted(world: World) {
    let (ann, bob) = (world.hesitant().await, world.client().await);
    for waits in 1.. {
        let dir = world.at(&format!("latch-{waits}"));
        let by = |client| CountDown::new(client, dir.clone(), many(1));
        let ended = stop_at(waits, by(&ann).count_down("a")).await;
        answer(by(&bob).count_down("a").await);
        // A request that was sent has completed when a later write of the same session is answered.
        answer(ann.put(&world.at(&format!("later-{waits}")), "").await);
        assert_eq!(answer(by(&bob).remaining().await), 0, "dropped at await {waits}");
        if let Some(counted) = ended {
            answer(counted);
            dropped_enough(waits, 2);
            return;
        }
    }
}
