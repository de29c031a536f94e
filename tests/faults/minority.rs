//! Clients that reach one server only, and that server is cut off from the others, or its disk
//! stalls.
//!
//! A ZooKeeper server that has lost its leader continues to serve its clients for `syncLimit`
//! ticks, and a leader that has lost its followers does so for about as long. The answers of such a
//! server must not make a session certain for longer than the other servers keep it alive.

use std::sync::Arc;
use std::time::Duration;

use synod_servers::clients::client::End;
use synod_servers::clients::entry::Op;
use tokio::time::{Instant, sleep};

use crate::scene::{Actor, PATIENCE, Scene, TTL, eventually};
use crate::servers::SIZE;

/// The fault, and the server that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    FollowerCutOff,
    LeaderCutOff,
    /// A leader whose disk stalls does not count time, so it does not step down.
    LeaderStalled,
}

/// With servers that disconnect from each other after two seconds: sessions with shorter and with
/// longer TTLs.
pub(crate) async fn follower(scene: &mut Scene) {
    isolate(scene, Fault::FollowerCutOff, &[Duration::from_secs(1), TTL]).await;
}

pub(crate) async fn leader(scene: &mut Scene) {
    isolate(scene, Fault::LeaderCutOff, &[Duration::from_secs(1), TTL]).await;
}

pub(crate) async fn stalled_leader(scene: &mut Scene) {
    isolate(scene, Fault::LeaderStalled, &[Duration::from_secs(1), TTL]).await;
}

/// With ZooKeeper's stock settings, a tick of two seconds and a `syncLimit` of five ticks.
pub(crate) async fn stock_follower(scene: &mut Scene) {
    isolate(scene, Fault::FollowerCutOff, &STOCK_TTLS).await;
}

pub(crate) async fn stock_leader(scene: &mut Scene) {
    isolate(scene, Fault::LeaderCutOff, &STOCK_TTLS).await;
}

/// The shortest session of the stock settings, and longer ones up to the default.
const STOCK_TTLS: [Duration; 3] =
    [Duration::from_secs(4), Duration::from_secs(5), Duration::from_secs(10)];

async fn isolate(scene: &mut Scene, fault: Fault, ttls: &[Duration]) {
    let leader = scene.leader().await;
    let server = if fault == Fault::FollowerCutOff { (leader + 1) % SIZE } else { leader };
    // The other follower: it stays with the majority in both cases.
    let witness = only(scene, (leader + 2) % SIZE);
    open(&witness, PATIENCE).await;
    let mut holders = Vec::new();
    for ttl in ttls {
        let holder = only(scene, server);
        hold(&holder, *ttl, &node(*ttl)).await;
        holders.push((*ttl, holder));
    }
    all_live(&holders).await;

    if fault == Fault::LeaderStalled {
        scene.stall(server);
        // It stalls when it has something to write.
        let _unanswered = holders[0].1.client.call(holders[0].1.create("d/stalls"));
    } else {
        scene.part(server);
    }

    // The others end the sessions. Nothing else does: no client closes its session or is killed.
    // One after the other: the witness may need several attempts to open another session.
    for (ttl, _) in &holders {
        sees_gone(&witness, &node(*ttl)).await;
    }
    for (_, holder) in &holders {
        eventually("the holder knows", async || holder.believes().as_deref() == Some("lost")).await;
    }

    if fault == Fault::LeaderStalled {
        scene.resume_disk(server).await;
    } else {
        scene.join(server);
    }
    for (ttl, holder) in &holders {
        holder.pipe.only(None);
        hold(holder, *ttl, &format!("{} again", node(*ttl))).await;
    }
}

/// Waits until heartbeats of all sessions were answered, so that they are certain as long as
/// possible. A short session may end while the machine is busy; then there is another.
async fn all_live(holders: &[(Duration, Arc<Actor>)]) {
    let end = Instant::now() + PATIENCE * 4;
    loop {
        sleep(holders[0].0).await;
        let lost = holders.iter().filter(|(_, it)| it.believes().as_deref() != Some("live"));
        let lost: Vec<_> = lost.collect();
        if lost.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "{} sessions do not live", lost.len());
        for (ttl, holder) in lost {
            hold(holder, *ttl, &node(*ttl)).await;
        }
    }
}

/// Opens a session that owns this node.
async fn hold(holder: &Actor, ttl: Duration, path: &str) {
    let end = Instant::now() + PATIENCE * 4;
    loop {
        open(holder, ttl).await;
        match holder.call(holder.ephemeral(path)).await {
            End::Ok(answer) if answer.refused.is_none() => return,
            // The session ended meanwhile, or the node of the last one is still there.
            end_of_call => assert!(Instant::now() < end, "{path}: {end_of_call:?}"),
        }
    }
}

/// Waits until the session's node is gone. Servers that lost their leader need many seconds for an
/// election while the old one is cut off, and more than one attempt.
async fn sees_gone(witness: &Actor, path: &str) {
    let end = Instant::now() + PATIENCE * 4;
    loop {
        match witness.read(path, false).await {
            End::Ok(answer) if answer.nodes.is_empty() => return,
            End::Fail(why) if why.starts_with("SessionLost") => open(witness, PATIENCE).await,
            _ => assert!(Instant::now() < end, "{path} is still there"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Opens a session. An attempt lasts no longer than the session's TTL, which may be too short on a
/// busy machine.
async fn open(actor: &Actor, ttl: Duration) {
    let ttl = u64::try_from(ttl.as_millis()).expect("short");
    // The servers may have to elect a leader first.
    let end = Instant::now() + PATIENCE * 4;
    while !matches!(actor.call(Op::Open { ttl }).await, End::Ok(_)) {
        assert!(Instant::now() < end, "no session is opened within {:?}", PATIENCE * 4);
    }
}

fn node(ttl: Duration) -> String {
    format!("d/{}ms", ttl.as_millis())
}

/// A client that reaches this server only, and has no session yet.
fn only(scene: &mut Scene, server: usize) -> Arc<Actor> {
    let actor = scene.process();
    actor.pipe.only(Some(server));
    actor
}
