//! Values, groups, services, partitions and double barriers whose clients are killed, paused and
//! cut off: counts are right, copies show the members, and every item has one holder.

use synod_servers::clients::deed::{Deed, Part};

use tokio::time::sleep;

use crate::scene::{Scene, TTL};
use crate::team::{Post, Team, posts};

/// The number of processes in each part.
const EACH: usize = 3;
/// The number of items of the partition.
const ITEMS: u64 = 5;
/// The number of additions of each adder, and of the faults meanwhile.
const PIECE: (u64, usize) = (60, 12);
/// The same numbers for one round of a long run.
const ROUND: (u64, usize) = (300, 50);

pub(crate) async fn a_piece(scene: &mut Scene) {
    a_round(scene, "families", PIECE, false).await;
}

pub(crate) async fn anything(scene: &mut Scene) {
    a_round(scene, "families", ROUND, true).await;
}

async fn a_round(scene: &mut Scene, path: &str, (count, events): (u64, usize), servers: bool) {
    let party = Post { part: Part::Party, first: 0, count: EACH as u64 };
    let mut all = vec![party; EACH - 1];
    for _ in 0..EACH {
        all.push(Post { part: Part::Adder, first: 0, count });
        all.push(Post { part: Part::Sharer, first: 0, count: ITEMS });
    }
    all.extend(posts(Part::Resident, EACH, 0, 0));
    let mut team = Team::gather(scene, path, &all).await;
    // None of them may be inside before the last one is there.
    team.await_report(scene, Part::Party, |deed| matches!(deed, Deed::Enters)).await;
    sleep(TTL / 3).await;
    team.joins(scene, party).await;
    // Random faults alone seldom meet these.
    team.loses(scene, Part::Sharer, |deed| matches!(deed, Deed::Shares { .. })).await;
    team.loses(scene, Part::Party, |deed| matches!(deed, Deed::Entered)).await;
    team.loses(scene, Part::Resident, |deed| matches!(deed, Deed::Sees { .. })).await;
    team.hears_nothing(scene, Part::Adder).await;
    for _ in 0..events {
        team.suffers(scene, servers).await;
    }
    scene.heal().await;
    team.await_rest(scene, Part::Adder, "L-CNT-6").await;
    team.await_sight(scene, Part::Resident, "L-GM-1").await;
    team.await_shares(scene, Part::Sharer, ITEMS, "L-SP-2").await;
    team.await_rounds(scene, Part::Party, "L-DB-4").await;
    team.leaves().await;
    for (dir, law) in [("members", "L-GM-1"), ("services/web", "L-PE-4"), ("marks", "L-STM-7")] {
        team.await_empty(scene, dir, law).await;
    }
}
