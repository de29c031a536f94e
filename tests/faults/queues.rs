//! A queue whose producers and consumers are killed, paused and cut off: no item is missing.

use synod_servers::clients::deed::{Deed, Part};

use crate::scene::Scene;
use crate::team::{Post, Team, posts};

/// The number of items that each producer puts, and the number of faults meanwhile.
const PIECE: (u64, usize) = (100, 8);
/// The same numbers for one round of a long run.
const ROUND: (u64, usize) = (400, 40);

pub(crate) async fn a_piece(scene: &mut Scene) {
    a_round(scene, "queue", PIECE, false).await;
}

pub(crate) async fn anything(scene: &mut Scene) {
    a_round(scene, "queue", ROUND, true).await;
}

async fn a_round(scene: &mut Scene, path: &str, (items, events): (u64, usize), servers: bool) {
    let first = scene.values(4 * items);
    let mut all = posts(Part::Producer, 4, first, items);
    all.extend(posts(Part::Consumer, 3, 0, 0));
    all.push(Post { part: Part::Taker, first: 0, count: 0 });
    let mut team = Team::gather(scene, path, &all).await;
    // Random faults alone seldom meet these.
    if !team.outlasts(scene, (Part::Consumer, holds), "L-Q-4").await {
        // By then no item may be left for the next steps.
        return;
    }
    team.loses(scene, Part::Consumer, holds).await;
    team.hears_nothing(scene, Part::Producer).await;
    for _ in 0..events {
        team.suffers(scene, servers).await;
    }
    scene.heal().await;
    team.await_rest(scene, Part::Producer, "L-Q-1").await;
    team.await_empty(scene, "items", "L-Q-4").await;
    team.await_empty(scene, "claimed", "L-Q-4").await;
    team.leaves().await;
    team.await_empty(scene, "claims", "L-Q-4").await;
}

fn holds(deed: &Deed) -> bool {
    matches!(deed, Deed::Holds { .. })
}
