//! Servers that are killed, paused or partitioned while clients work.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use synod_core::random::Random;
use synod_servers::clients::client::End;
use synod_servers::clients::entry::Op;
use tokio::time::sleep;

use crate::scene::{Actor, Scene, at, shown};
use crate::servers::SIZE;

/// The number of registers.
const REGISTERS: u64 = 4;
/// The number of calls of each client: no more calls of a register than the search for an order can
/// handle.
pub(crate) const CALLS: usize = 120;
/// The TTL of the sessions that clients open while they work, in milliseconds.
const SESSION: u64 = 3_000;

/// Some clients.
pub(crate) async fn clients(scene: &mut Scene) -> Vec<Arc<Actor>> {
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(scene.client().await);
    }
    clients
}

/// A directory that the first of them observes, one for tickets, and registers.
pub(crate) async fn prepare(clients: &[Arc<Actor>], dir: &str) {
    let first = &clients[0];
    first.insists(|| Op::Observe { path: at(&format!("{dir}/d")) }).await;
    first.insists(|| first.create(&format!("{dir}/q/anchor"))).await;
    for register in 0..REGISTERS {
        first.insists(|| first.create(&format!("{dir}/r/{register}"))).await;
    }
}

/// Makes some calls of all kinds on a client, with any results, with pauses of up to `pause`
/// milliseconds.
pub(crate) async fn work(random: &Random, ann: &Actor, dir: &str, calls: usize, pause: u64) {
    own(ann, dir).await;
    for _ in 0..calls {
        let register = format!("{dir}/r/{}", random.below(REGISTERS));
        let node = format!("{dir}/d/{}", random.below(6));
        let lasting = format!("{dir}/d/lasting{}", random.below(4));
        let end = match random.below(14) {
            0 | 1 => ann.read(&register, false).await,
            2..5 => {
                let read = ann.read(&register, false).await;
                match shown(&read) {
                    Some(seen) => ann.call(ann.cas(&register, seen)).await,
                    None => read,
                }
            }
            5 => ann.call(ann.set(&register)).await,
            6 => ann.call(ann.ticket(&format!("{dir}/q"), random.below(2) == 0)).await,
            7 => ann.call(ann.create(&format!("{dir}/d/n{}", ann.value()))).await,
            8 => ann.call(ann.ephemeral(&node)).await,
            9 => ann.call(Op::Delete { path: at(&node) }).await,
            10 => ann.list(&format!("{dir}/d"), true).await,
            11 => ann.call(ann.create(&lasting)).await,
            12 => ann.call(Op::Delete { path: at(&lasting) }).await,
            _ => ann.read(&register, true).await,
        };
        match end {
            End::Fail(why) if why.starts_with("SessionLost") => {
                if matches!(ann.call(Op::Open { ttl: SESSION }).await, End::Ok(_)) {
                    own(ann, dir).await;
                } else {
                    sleep(Duration::from_millis(200)).await;
                }
            }
            _ => sleep(Duration::from_millis(random.below(pause))).await,
        }
    }
}

/// Creates a node that is deleted only with its session: its deletion, which a watch of the
/// directory reports, shows when the session ended.
async fn own(ann: &Actor, dir: &str) {
    let _may_fail = ann.call(ann.ephemeral(&format!("{dir}/d/own{}", ann.value()))).await;
}

/// Lets all of them work during a fault, and once more after it.
async fn while_they_work(scene: &mut Scene, happens: impl AsyncFnOnce(&mut Scene)) {
    let clients = clients(scene).await;
    prepare(&clients, "w").await;
    let random = scene.random.clone();
    let working = clients.iter().map(|ann| work(&random, ann, "w", CALLS, 30));
    join(join_all(working), happens(scene)).await;
    scene.heal().await;
    for ann in &clients {
        ann.insists(|| ann.set("w/r/0")).await;
    }
    // By now every client is connected: a watch that begins now reports all of this without reading
    // again.
    clients[0].insists(|| Op::Observe { path: at("w/d") }).await;
    let ann = &clients[1];
    for name in ["x", "y", "z"] {
        let path = format!("w/d/{name}");
        ann.insists(|| ann.create(&path)).await;
        ann.insists(|| Op::Delete { path: at(&path) }).await;
        ann.insists(|| ann.create(&format!("{path}2"))).await;
    }
}

pub(crate) async fn restart(scene: &mut Scene) {
    while_they_work(scene, async |scene| {
        for server in 0..SIZE {
            sleep(Duration::from_millis(300)).await;
            scene.kill(server);
            sleep(Duration::from_millis(500)).await;
            scene.restart(server);
            scene.stand.servers.processes().await_ready().expect("it starts again");
        }
    })
    .await;
}

pub(crate) async fn killed_leader(scene: &mut Scene) {
    while_they_work(scene, async |scene| {
        for _ in 0..2 {
            sleep(Duration::from_millis(300)).await;
            let leader = scene.leader().await;
            scene.kill(leader);
            let next = scene.leader().await;
            assert_ne!(next, leader, "the dead do not lead");
            sleep(Duration::from_millis(500)).await;
            scene.restart(leader);
            scene.stand.servers.processes().await_ready().expect("it starts again");
        }
    })
    .await;
}

pub(crate) async fn paused_leader(scene: &mut Scene) {
    while_they_work(scene, async |scene| {
        sleep(Duration::from_millis(300)).await;
        let leader = scene.leader().await;
        scene.pause(leader);
        sleep(Duration::from_secs(4)).await;
        scene.resume(leader).await;
        sleep(Duration::from_secs(1)).await;
    })
    .await;
}

pub(crate) async fn parted_leader(scene: &mut Scene) {
    while_they_work(scene, async |scene| {
        sleep(Duration::from_millis(300)).await;
        let leader = scene.leader().await;
        scene.part(leader);
        sleep(Duration::from_secs(4)).await;
        scene.join(leader);
        sleep(Duration::from_secs(1)).await;
    })
    .await;
}
