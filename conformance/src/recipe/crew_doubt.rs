//! Changes of a crew in doubt: the answer to one is lost, and then the store answers no more. What a later request did not do says
//! nothing of the one whose answer was lost.

use futures_util::future::join;
use synod_core::client::Client;
use synod_core::error::{Effect, ErrorKind, Result};
use synod_recipes::{Crew, CrewWorker};
use synod_testkit::fault::{Actor, Cue, FaultyBackend, Plan, Site, Verb};

use crate::door::gate::{Gate, Way};
use crate::door::{answer, failure};
use crate::recipe::crew_members::{Slow, crew};
use crate::world::World;

cases![
    "L-OUT-1" catches [CasNeverMatches] => a_change_of_a_crew_whose_answer_is_lost_before_an_outage_may_have_happened,
];

/// What is changed, from outside of the crew.
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

/// A client whose first commit has a lost answer.
async fn unlucky(world: &World) -> (Gate, Plan, Client) {
    let (gate, plan) = (world.gate(), Plan::scripted([Cue::new(Site::ReplyLost).of(Verb::Commit)]));
    let faulty = FaultyBackend::new(gate.clone(), plan.clone(), Actor::new(1));
    let client = world.client_on(faulty, world.options().deadline(world.brief())).await;
    (gate, plan, client)
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
        let (gate, plan, client) = unlucky(&world).await;
        let crew = crew(&world, &client);
        let outage = async {
            gate.answered(Verb::Commit, 1).await;
            gate.set(Way::Shut);
        };
        let both = join(change.made(&crew, &worker), outage);
        let (made, ()) = world.in_time("a change of a crew", both).await;

        let error = failure(made, &format!("{change:?}"));
        assert_eq!(plan.pending(), 0, "{change:?}: the answer was lost");
        let said = (error.kind(), error.effect());
        assert_eq!(said, (ErrorKind::Unreachable, Effect::Unknown), "{change:?}: {error}");
    }
    let snapshot = answer(known.snapshot().await);
    assert!(snapshot.paused && snapshot.workers[0].drained, "both were done");
}

/// The names of the workers of a crew.
async fn workers(crew: &Crew) -> Vec<String> {
    answer(crew.snapshot().await).workers.into_iter().map(|worker| worker.name).collect()
}
