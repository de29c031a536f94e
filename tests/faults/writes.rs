//! Requests and answers that get lost, one by one.

use synod_servers::clients::client::End;
use synod_servers::clients::entry::{Kind, Op};
use synod_servers::pipe::Lost;

use crate::scene::{Actor, Scene, at, eventually, shown};

/// The number of rounds: each loses one request or answer of every kind of write.
const ROUNDS: usize = 2;

pub(crate) async fn lost_answers(scene: &mut Scene) {
    let kept = every_kind(scene, Lost::Reply).await;
    assert!(kept >= ROUNDS * 4, "the answers of {kept} writes that were done got lost");
}

pub(crate) async fn lost_requests(scene: &mut Scene) {
    let kept = every_kind(scene, Lost::Request).await;
    // Creates that are repeated, and requests that the store sends again because they were
    // certainly not sent.
    assert!(kept >= ROUNDS * 2, "{kept} were done");
}

/// Loses a request or answer of every kind of write, and returns how many of the writes happened.
async fn every_kind(scene: &mut Scene, lost: Lost) -> usize {
    let (ann, bob) = (scene.client().await, scene.client().await);
    bob.done(bob.create("r")).await;
    bob.done(Op::Observe { path: at("d") }).await;
    // This node keeps the directory of the tickets from being collected.
    bob.done(bob.create("q/anchor")).await;
    let mut values = Vec::new();
    for round in 0..ROUNDS {
        let nodes = ["create", "set", "delete"].map(|name| format!("d/{name}{round}"));
        bob.done(bob.create(&nodes[1])).await;
        bob.done(bob.create(&nodes[2])).await;
        let read = ann.read("r", false).await;
        let seen = shown(&read).expect("it is there");
        let ops = [
            ann.create(&nodes[0]),
            ann.ephemeral(&format!("d/e{round}")),
            ann.set(&nodes[1]),
            ann.cas("r", seen),
            ann.ticket("q", true),
            ann.ticket("q", false),
        ];
        for op in ops {
            values.push(value(&op));
            let mark = value(&op).to_string();
            ann.lossy(op, lost, &mark).await;
            until_back(&ann).await;
        }
        let delete = Op::Delete { path: at(&nodes[2]) };
        ann.lossy(delete, lost, &format!("delete{round}")).await;
        until_back(&ann).await;
    }
    let facts = scene.stand.facts().await.expect("they can be read");
    let kept = facts.iter().filter(|fact| {
        fact.kind != Kind::Deleted && fact.value.is_some_and(|value| values.contains(&value))
    });
    kept.count()
}

fn value(op: &Op) -> u64 {
    match op {
        Op::Create { value, .. }
        | Op::Ticket { value, .. }
        | Op::Set { value, .. }
        | Op::Cas { value, .. } => *value,
        _ => unreachable!("it writes nothing"),
    }
}

/// Waits until the client continues after a lost connection, in the same session.
async fn until_back(ann: &Actor) {
    eventually("it is connected again", async || {
        matches!(ann.read("r", true).await, End::Ok(_)) && ann.believes().as_deref() == Some("live")
    })
    .await;
}

pub(crate) async fn lost_close(scene: &mut Scene) {
    let bob = scene.client().await;
    bob.done(Op::Observe { path: at("d") }).await;
    for (round, lost) in [Lost::Reply, Lost::Request].into_iter().enumerate() {
        let ann = scene.client().await;
        for name in ["a", "b"] {
            ann.done(ann.ephemeral(&format!("d/{name}{round}"))).await;
        }
        // The request contains no name of ours, so the next request is lost, of any kind.
        ann.pipe.lose(lost, "");
        let closed = ann.call(Op::Close).await;
        assert!(!matches!(closed, End::Fail(_)), "{closed:?}: the effect is unknown");

        bob.sees_gone(&format!("d/a{round}")).await;
        bob.sees_gone(&format!("d/b{round}")).await;
    }
}

/// Servers collect empty containers, some of them while nodes take their places. Such a node also
/// stays when its last child is deleted.
pub(crate) async fn replaced(scene: &mut Scene) {
    let ann = scene.client().await;
    for round in 0..3 {
        let paths: Vec<String> = (0..60).map(|number| format!("c{round}/{number}")).collect();
        for path in &paths {
            ann.done(ann.create(&format!("{path}/x"))).await;
        }
        for path in &paths {
            ann.done(Op::Delete { path: at(&format!("{path}/x")) }).await;
            ann.done(ann.create(path)).await;
        }
        let child = format!("{}/y", paths[0]);
        ann.done(ann.create(&child)).await;
        ann.done(Op::Delete { path: at(&child) }).await;
    }
    // By now they have collected all empty containers.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
}
