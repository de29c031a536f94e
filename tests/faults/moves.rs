//! Clients that move from one server to another, and servers that lag behind others.

use std::time::Duration;

use futures_util::future::join_all;
use synod_conformance::harness::Link;
use synod_servers::clients::client::End;
use synod_servers::clients::entry::{Installed, Op};
use tokio::time::{Instant, sleep, timeout};

use crate::scene::{Actor, Scene, at, eventually, shown};
use crate::servers::SIZE;

/// A long TTL: no session may expire during a move.
const LONG: Duration = Duration::from_secs(20);
/// The lag of a server: too short for the server to give up.
const LAG: Duration = Duration::from_millis(1_200);

/// The number of rounds in which a server lags, and its limit if no lag has been observed by then.
const ROUNDS: usize = 3;
const MOST_ROUNDS: usize = 20;

fn moves(scene: &Scene, ann: &Actor, server: usize) {
    ann.pipe.only(Some(server));
    let what = format!("move client {} to server {server}", ann.client.number());
    scene.book.nemesis(what, Installed::Installed);
}

pub(crate) async fn lagging(scene: &mut Scene) {
    let mut lagged = 0;
    // On a busy machine a server may notice that it lags before it is read: then the round is
    // repeated.
    for round in 0.. {
        if round >= ROUNDS && lagged > 0 {
            return;
        }
        assert!(round < MOST_ROUNDS, "no server lagged, so this proves nothing");
        let follower = scene.follower().await;
        let leader = scene.leader().await;
        let (ann, bob) = (scene.client_for(LONG).await, scene.client_for(LONG).await);
        let node = format!("n{round}");
        moves(scene, &ann, leader);
        moves(scene, &bob, follower);
        ann.insists(|| ann.create(&node)).await;
        eventually("bob sees it", async || shown(&bob.read(&node, true).await).is_some()).await;

        for local in [true, false] {
            ann.read(&node, local).await;
        }

        scene.part(follower);
        let began = Instant::now();
        let written = ann.insists(|| ann.set(&node)).await.revision;
        moves(scene, &ann, follower);
        let mut reads = Vec::new();
        while began.elapsed() < LAG {
            // A client that has seen nothing newer may be shown an old state. A server that notices
            // that it lags answers no request.
            let Ok(read) = timeout(LAG, bob.read(&node, true)).await else { break };
            if let Some(seen) = shown(&read) {
                lagged += usize::from(written.is_some_and(|written| seen.modified < written));
            }
            // It may wait until the server has caught up, or fail.
            reads.push(ann.client.call(Op::Read { path: at(&node), local: true }));
            reads.push(bob.client.call(Op::Read { path: at(&node), local: false }));
            sleep(Duration::from_millis(20)).await;
        }
        scene.join(follower);
        join_all(reads).await;
        for _ in 0..3 {
            let answered = async || match ann.read(&node, true).await {
                End::Ok(_) => true,
                // Then no old value can be shown in it.
                End::Fail(why) => why.starts_with("SessionLost"),
                End::Info(_) => false,
            };
            eventually("she is answered, or her session is over", answered).await;
        }
    }
}

pub(crate) async fn watching(scene: &mut Scene) {
    let (ann, bob) = (scene.client().await, scene.client().await);
    moves(scene, &ann, 0);
    ann.insists(|| Op::Observe { path: at("d") }).await;
    for round in 0..2 * SIZE {
        for name in ["a", "b", "c"] {
            let path = format!("d/{name}");
            bob.done(bob.create(&path)).await;
            bob.done(bob.set(&path)).await;
        }
        // Some of it happens while she changes servers.
        moves(scene, &ann, (round + 1) % SIZE);
        bob.done(bob.create(&format!("d/x{round}"))).await;
        for name in ["a", "b", "c"] {
            bob.done(Op::Delete { path: at(&format!("d/{name}")) }).await;
        }
        eventually("she is connected again", async || {
            matches!(ann.read("d/a", true).await, End::Ok(_))
        })
        .await;
    }
    comes_and_goes(&ann, &bob).await;
}

/// No fault is active now, so a new watch reports all of this without a resync.
async fn comes_and_goes(ann: &Actor, bob: &Actor) {
    ann.insists(|| Op::Observe { path: at("d") }).await;
    for name in ["u", "v", "w"] {
        let path = format!("d/{name}");
        bob.done(bob.create(&path)).await;
        bob.done(Op::Delete { path: at(&path) }).await;
        bob.done(bob.create(&format!("{path}2"))).await;
    }
}

pub(crate) async fn cut_off(scene: &mut Scene) {
    while_cut_off(scene, false).await;
}

pub(crate) async fn compacted(scene: &mut Scene) {
    while_cut_off(scene, true).await;
}

/// A client with a watch receives nothing for a while.
async fn while_cut_off(scene: &mut Scene, compact: bool) {
    let (ann, bob) = (scene.client_for(LONG).await, scene.client().await);
    ann.done(Op::Observe { path: at("d") }).await;
    for round in 0..2 {
        bob.done(bob.create(&format!("d/before{round}"))).await;
        ann.pipe.set(Link::Cut);
        scene.book.nemesis("cut client 1", Installed::Installed);
        for number in 0..10 {
            bob.done(bob.create(&format!("d/{round}-{number}"))).await;
        }
        bob.done(Op::Delete { path: at(&format!("d/before{round}")) }).await;
        if compact {
            scene.stand.servers.compact().await.expect("it forgets");
            scene.book.nemesis("compact", Installed::Installed);
        }
        // Until it has closed its connection.
        eventually("it says so", async || ann.believes().as_deref() != Some("live")).await;
        ann.pipe.set(Link::Open);
        let knows = async || matches!(ann.read("d/n", false).await, End::Ok(_));
        eventually("it is connected again", knows).await;
        assert_ne!(ann.believes().as_deref(), Some("lost"), "so that the watch is the same");
    }
    comes_and_goes(&ann, &bob).await;
}
