//! Groups of Curator and parties of kazoo.

use synod::Path;
use synod::presence::{Group, PersistentNode};
use synod_servers::zookeeper::TICK;
use tokio::time::{Instant, sleep};

use crate::peer::{PATIENCE, Peer};
use crate::{Kind, Scene};

pub(crate) const SCENES: [(&str, &[Kind], Scene); 1] =
    [("a_group_is_shared", &[Kind::Curator, Kind::Kazoo], |kind, path| {
        Box::pin(a_group_is_shared(kind, path))
    })];

/// Waits until these are the data of all members that the group has for synod.
async fn we_see(group: &Group, expected: &[&str]) {
    let end = Instant::now() + PATIENCE;
    loop {
        let members = group.members().await.expect("reachable");
        let mut seen: Vec<_> = members.iter().map(|it| String::from_utf8_lossy(&it.data)).collect();
        seen.sort();
        if seen == expected {
            return;
        }
        assert!(Instant::now() < end, "{seen:?} instead of {expected:?}");
        sleep(TICK / 10).await;
    }
}

/// Waits until these are the data of all members that the group has for the other program.
async fn they_see(peer: &mut Peer, expected: &[&str]) {
    let end = Instant::now() + PATIENCE;
    loop {
        peer.write_line("members");
        let seen = peer.speaks().await;
        if seen == expected.join(",") {
            return;
        }
        assert!(Instant::now() < end, "{seen} instead of {expected:?}");
        sleep(TICK / 10).await;
    }
}

/// Another program that joins under a name, with data.
async fn joins(kind: Kind, path: &Path, what: &str) -> Peer {
    let server = kind.server();
    let mut peer = match kind {
        Kind::Kazoo => Peer::kazoo(&server).await,
        _ => Peer::curator(&server).await,
    };
    peer.write_line(&format!("join {path} {what}"));
    peer
}

async fn a_group_is_shared(kind: Kind, path: Path) {
    let client = kind.client().await;
    let group = Group::new(&client, &path);
    let first = group.join("a-of-ours").await.expect("reachable");
    let mut theirs = joins(kind, &path, "theirs b-of-theirs").await;
    theirs.says("in").await;
    we_see(&group, &["a-of-ours", "b-of-theirs"]).await;
    they_see(&mut theirs, &["a-of-ours", "b-of-theirs"]).await;

    // kazoo counts only nodes without a name of their own as members.
    let node = PersistentNode::new(&client, path.join("node").expect("valid"));
    let node = node.keep("c-of-ours").await.expect("free");
    let all = ["a-of-ours", "b-of-theirs", "c-of-ours"];
    we_see(&group, &all).await;
    they_see(&mut theirs, if kind == Kind::Kazoo { &all[..2] } else { &all }).await;
    node.set("d-of-ours").await.expect("reachable");
    first.set("a-again").await.expect("reachable");
    let all = ["a-again", "b-of-theirs", "d-of-ours"];
    they_see(&mut theirs, if kind == Kind::Kazoo { &all[..2] } else { &all }).await;

    node.close().await.expect("reachable");
    first.leave().await.expect("reachable");
    they_see(&mut theirs, &["b-of-theirs"]).await;
    let mut last = joins(kind, &path, "last c-of-theirs").await;
    last.says("in").await;
    they_see(&mut theirs, &["b-of-theirs", "c-of-theirs"]).await;
    theirs.write_line("part");
    theirs.says("out").await;
    we_see(&group, &["c-of-theirs"]).await;
    last.kill();
    we_see(&group, &[]).await;
}
