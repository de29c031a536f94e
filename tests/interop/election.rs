//! Elections of synod and of other programs on the same path: Curator's `LeaderLatch` on ZooKeeper,
//! `etcdctl elect` on etcd.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use synod::election::{Election, Leader, LeaderLatch, LeaderSelector, Leadership, Term};
use synod::{Client, Path};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;

use crate::peer::{PATIENCE, Peer};
use crate::{Kind, Scene, gets, stand};

/// The time for which a test waits for something that must not happen.
const SHORT: Duration = Duration::from_millis(300);

pub(crate) const SCENES: [(&str, &[Kind], Scene); 6] = [
    ("an_election_is_shared_in_order", &[Kind::Curator, Kind::Etcdctl], |kind, path| {
        Box::pin(an_election_is_shared_in_order(kind, path))
    }),
    ("a_leader_that_dies_is_succeeded", &[Kind::Curator], |kind, path| {
        Box::pin(a_leader_that_dies_is_succeeded(kind, path))
    }),
    ("a_leader_of_ours_that_is_gone_is_succeeded", &[Kind::Etcdctl], |kind, path| {
        Box::pin(a_leader_of_ours_that_is_gone_is_succeeded(kind, path))
    }),
    ("a_latch_is_shared", &[Kind::Curator], |kind, path| Box::pin(a_latch_is_shared(kind, path))),
    ("a_selector_is_shared", &[Kind::Curator], |kind, path| {
        Box::pin(a_selector_is_shared(kind, path))
    }),
    ("values_are_heard_both_ways", &[Kind::Etcdctl], |kind, path| {
        Box::pin(values_are_heard_both_ways(kind, path))
    }),
];

/// A peer that is a candidate with the label `theirs`.
async fn campaigns(kind: Kind, path: &Path) -> Peer {
    let server = kind.server();
    if kind == Kind::Etcdctl {
        return Peer::etcdctl_elect(&server, &[&format!("{path}/"), "theirs"]);
    }
    let mut peer = Peer::curator(&server).await;
    peer.write_line(&format!("latch {path} theirs"));
    peer
}

async fn leads(kind: Kind, peer: &mut Peer) {
    if kind == Kind::Etcdctl {
        let _key = peer.speaks().await;
        return peer.says("theirs").await;
    }
    peer.says("in").await;
}

fn leaves(kind: Kind, peer: &mut Peer) {
    peer.write_line(if kind == Kind::Etcdctl { "INT" } else { "leave" });
}

fn campaign(client: &Client, path: &Path, value: &'static str) -> JoinHandle<Leader> {
    let election = Election::new(client, path.clone());
    spawn_local(async move { election.campaign(value).await.expect("reachable") })
}

async fn an_election_is_shared_in_order(kind: Kind, path: Path) {
    let client = kind.client().await;
    let election = Election::new(&client, path.clone());
    let first = election.campaign("first").await.expect("there is no leader");
    let mut theirs = campaigns(kind, &path).await;
    stand(&client, &path, 2).await;
    let last = campaign(&client, &path, "last");
    stand(&client, &path, 3).await;
    theirs.keeps_silent().await;
    let candidates = election.candidates().await.expect("reachable");
    let labels: Vec<_> = candidates.iter().map(|one| one.label.as_ref()).collect();
    assert_eq!(labels, [&b"first"[..], b"theirs", b"last"]);

    first.resign().await.expect("reachable");
    leads(kind, &mut theirs).await;
    let leader = election.leader().await.expect("reachable").expect("they lead");
    assert_eq!(leader.label, "theirs");
    assert!(!last.is_finished(), "they lead");

    leaves(kind, &mut theirs);
    let last = gets(last).await;
    assert!(last.is_held() && last.token() > leader.token);
    last.resign().await.expect("reachable");
}

async fn a_leader_that_dies_is_succeeded(kind: Kind, path: Path) {
    let client = kind.client().await;
    let mut theirs = campaigns(kind, &path).await;
    leads(kind, &mut theirs).await;
    let ours = campaign(&client, &path, "ours");
    stand(&client, &path, 2).await;

    theirs.kill();
    let leader = gets(ours).await;

    let mut next = campaigns(kind, &path).await;
    stand(&client, &path, 2).await;
    next.keeps_silent().await;
    assert!(leader.is_held());
    client.close().await.expect("reachable");
    leads(kind, &mut next).await;
}

/// In the other direction it takes a minute: the fixed TTL of the lease of `etcdctl elect`.
async fn a_leader_of_ours_that_is_gone_is_succeeded(kind: Kind, path: Path) {
    let client = kind.client().await;
    let leader = Election::new(&client, path.clone()).campaign("ours").await.expect("free");
    let mut theirs = campaigns(kind, &path).await;
    stand(&client, &path, 2).await;
    theirs.keeps_silent().await;
    assert!(leader.is_held());

    client.close().await.expect("reachable");

    leads(kind, &mut theirs).await;
    assert!(!leader.is_held());
    leaves(kind, &mut theirs);
}

async fn a_latch_is_shared(kind: Kind, path: Path) {
    let client = kind.client().await;
    let latch = LeaderLatch::new(&client, path.clone()).label("ours");
    let mut theirs = campaigns(kind, &path).await;
    leads(kind, &mut theirs).await;
    let candidacy = latch.join().await.expect("reachable");
    assert!(!candidacy.is_leader(), "they lead");
    let candidates = latch.candidates().await.expect("reachable");
    let labels: Vec<_> = candidates.iter().map(|one| one.label.as_ref()).collect();
    assert_eq!(labels, [&b"theirs"[..], b"ours"]);

    leaves(kind, &mut theirs);
    let lead = timeout(PATIENCE, candidacy.leading()).await.expect("in time").expect("reachable");
    let mut next = campaigns(kind, &path).await;
    stand(&client, &path, 2).await;
    next.keeps_silent().await;
    assert!(lead.is_held());
    candidacy.close().await.expect("reachable");
    leads(kind, &mut next).await;
}

async fn a_selector_is_shared(kind: Kind, path: Path) {
    let client = kind.client().await;
    let selects = async || {
        let mut peer = Peer::curator(&kind.server()).await;
        peer.write_line(&format!("select {path} theirs"));
        peer
    };
    let mut theirs = selects().await;
    theirs.says("in").await;
    let (began, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let selector = LeaderSelector::new(&client, path.clone()).label("ours");
    let leading = spawn_local({
        let (selector, began, stop) = (selector.clone(), began.clone(), stop.clone());
        async move {
            let work = |lead: Leadership| async move {
                began.notify_one();
                stop.notified().await;
                lead.is_held()
            };
            selector.lead(work).await.expect("reachable")
        }
    });
    stand(&client, &path, 2).await;
    let candidates = selector.candidates().await.expect("reachable");
    let labels: Vec<_> = candidates.iter().map(|one| one.label.as_ref()).collect();
    assert_eq!(labels, [&b"theirs"[..], b"ours"]);
    assert!(timeout(SHORT, began.notified()).await.is_err(), "they lead");

    theirs.write_line("yield");
    theirs.says("out").await;
    timeout(PATIENCE, began.notified()).await.expect("the lead, in time");
    let mut next = selects().await;
    stand(&client, &path, 2).await;
    next.keeps_silent().await;
    stop.notify_one();
    assert_eq!(gets(leading).await, Term::Done(true));
    next.says("in").await;

    // The same when the peer's process dies.
    let ours = campaign(&client, &path, "ours");
    stand(&client, &path, 2).await;
    next.kill();
    assert!(gets(ours).await.is_held());
}

async fn values_are_heard_both_ways(kind: Kind, path: Path) {
    let client = kind.client().await;
    let election = Election::new(&client, path.clone());
    let leader = election.campaign("one").await.expect("there is no leader");
    let mut listens = Peer::etcdctl_elect(&kind.server(), &["--listen", &format!("{path}/")]);
    let _key = listens.speaks().await;
    listens.says("one").await;
    leader.proclaim("two").await.expect("she leads");
    let _key = listens.speaks().await;
    listens.says("two").await;

    let mut told = election.observe().boxed();
    let mut theirs = campaigns(kind, &path).await;
    stand(&client, &path, 2).await;
    leader.resign().await.expect("reachable");
    leads(kind, &mut theirs).await;
    loop {
        let next = timeout(PATIENCE, told.next()).await.expect("in time").expect("it goes on");
        if next.expect("reachable").label == "theirs" {
            break;
        }
    }
}
