//! Changes that are repeated when their answer is lost and the store then becomes unreachable. A
//! later request without an effect does not show the effect of the request whose answer was lost.

use std::fmt;

use futures_util::future::join;
use synod_core::client::Client;
use synod_core::error::{Effect, ErrorKind, Result};
use synod_recipes::barrier::Barrier;
use synod_recipes::crew::{Crew, CrewWorker};
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::recipe::crew_members::{Slow, crew};
use crate::world::World;

cases![
    "L-OUT-1" catches [WatchMissesDelete] => a_lift_whose_answer_is_lost_before_an_outage_may_have_happened,
    "L-OUT-1" catches [CasNeverMatches] => a_change_of_a_crew_whose_answer_is_lost_before_an_outage_may_have_happened,
];

/// Makes a change whose first write of this kind is applied but not answered; then the store no
/// longer answers.
async fn may_have_happened(
    world: &World,
    what: impl fmt::Debug,
    write: Verb,
    change: impl AsyncFnOnce(Client) -> Result<()>,
) {
    let (gate, lost) = (world.gate(), Cue::new(Site::ReplyLost).of(write));
    let options = world.options().timeout(world.brief());
    let (client, plan) = world.scripted_on(gate.clone(), options, [lost]).await;
    let outage = async {
        gate.answered(Verb::Commit, 1).await;
        gate.set(Way::Shut);
    };
    let (made, ()) = world.in_time("a change", join(change(client), outage)).await;

    let error = failure(made, &format!("{what:?}"));
    assert_eq!(plan.pending(), 0, "{what:?}: the answer was lost");
    let said = (error.kind(), error.effect());
    assert_eq!(said, (ErrorKind::Unreachable, Effect::Unknown), "{what:?}: {error}");
}

async fn a_lift_whose_answer_is_lost_before_an_outage_may_have_happened(world: World) {
    let barrier = Barrier::new(&world.client().await, world.at("barrier"));
    answer(barrier.set().await);
    let mut waiter = Waiting::new(async move { barrier.wait().await });
    waiter.waits_for(world.brief(), "it is set").await;

    may_have_happened(&world, "a lift", Verb::Delete, async |client| {
        Barrier::new(&client, world.at("barrier")).lift().await.map(drop)
    })
    .await;

    waiter.gets(&world, "a barrier that was lifted").await;
}

/// A change from outside of the crew.
#[derive(Clone, Copy, Debug)]
enum Change {
    Submit,
    Cancel,
    Drain,
    Pause,
}

impl Change {
    async fn made(self, crew: &Crew, worker: &str) -> Result<()> {
        match self {
            Self::Submit => crew.submit("new", "data").await.map(drop),
            Self::Cancel => crew.task("old")?.cancel().await.map(drop),
            Self::Drain => crew.drain(worker).await.map(drop),
            Self::Pause => crew.pause().await,
        }
    }
}

async fn a_change_of_a_crew_whose_answer_is_lost_before_an_outage_may_have_happened(world: World) {
    let (bob, slow) = (world.client().await, Slow::default());
    let _working = slow.works(&world, &bob, CrewWorker::new());
    let _old = world.submits(&bob, "old", "data").await;
    let known = crew(&world, &bob);
    // Then there is a switch, and a pause is one write.
    answer(known.resume().await);
    world.eventually("a worker is there", async || !workers(&known).await.is_empty()).await;
    let worker = workers(&known).await.remove(0);

    for change in [Change::Submit, Change::Cancel, Change::Drain, Change::Pause] {
        may_have_happened(&world, change, Verb::Commit, async |client| {
            change.made(&crew(&world, &client), &worker).await
        })
        .await;
    }
    let snapshot = answer(known.snapshot().await);
    assert!(snapshot.paused && snapshot.workers[0].drained, "both were done");
}

/// The names of the workers of a crew.
async fn workers(crew: &Crew) -> Vec<String> {
    answer(crew.snapshot().await).workers.into_iter().map(|worker| worker.name).collect()
}
