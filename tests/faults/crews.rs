//! A crew whose members and submitters are killed, paused and cut off: each task has one result.

use synod_servers::clients::deed::{Deed, Part};

use crate::scene::Scene;
use crate::team::{Post, Team, posts};

/// The number of tasks, and the number of faults while they run.
const PIECE: (u64, usize) = (80, 8);
/// The same numbers for one round of a long run.
const ROUND: (u64, usize) = (300, 40);

pub(crate) async fn a_piece(scene: &mut Scene) {
    a_round(scene, "crew", PIECE, false).await;
}

pub(crate) async fn anything(scene: &mut Scene) {
    a_round(scene, "crew", ROUND, true).await;
}

async fn a_round(scene: &mut Scene, path: &str, (count, events): (u64, usize), servers: bool) {
    let first = scene.values(count);
    let mut all = posts(Part::Member, 5, 0, 0);
    // Both submit all tasks.
    all.extend([Post { part: Part::Submitter, first, count }; 2]);
    let mut team = Team::gather(scene, path, &all).await;
    // Random faults alone seldom meet these.
    if !team.outlasts(scene, (Part::Member, runs), "L-MW-3").await {
        // By then no task may be left for the next steps.
        return;
    }
    team.loses(scene, Part::Member, runs).await;
    for _ in 0..events {
        team.suffers(scene, servers).await;
    }
    scene.heal().await;
    team.await_rest(scene, Part::Submitter, "L-MW-1").await;
    team.leaves().await;
    team.joins(scene, Post { part: Part::Remover, first: 0, count: 0 }).await;
    for dir in ["tasks", "done", "todo", "attempts"] {
        team.await_empty(scene, dir, "L-MW-9").await;
    }
    team.leaves().await;
    team.await_empty(scene, "workers", "L-X-5").await;
}

fn runs(deed: &Deed) -> bool {
    matches!(deed, Deed::Runs { .. })
}
