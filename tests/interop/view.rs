//! Recipes of other programs are recognised, on real servers.

use synod::lock::Mutex;
use synod::{Client, Path};
use synod_servers::zookeeper::TICK;
use synod_view::item::{Contest, Item, ItemState};
use synod_view::recognition::{Certainty, OtherQueue};
use synod_view::survey::Survey;
use tokio::time::{Instant, sleep};

use crate::peer::{PATIENCE, Peer};
use crate::{Kind, Scene, stand};

pub(crate) const SCENES: [(&str, &[Kind], Scene); 5] = [
    ("locks_are_recognised", &[Kind::Curator, Kind::Kazoo, Kind::Etcdctl], |kind, path| {
        Box::pin(locks_are_recognised(kind, path))
    }),
    ("elections_are_recognised", &[Kind::Curator], |kind, path| {
        Box::pin(elections_are_recognised(kind, path))
    }),
    ("semaphores_are_recognised", &[Kind::Curator], |kind, path| {
        Box::pin(semaphores_are_recognised(kind, path))
    }),
    ("queues_are_recognised", &[Kind::Curator, Kind::Kazoo], |kind, path| {
        Box::pin(queues_are_recognised(kind, path))
    }),
    ("groups_are_recognised", &[Kind::Curator, Kind::Kazoo], |kind, path| {
        Box::pin(groups_are_recognised(kind, path))
    }),
];

/// The single item below a path, once it is there: a peer may answer before it is.
async fn found(client: &Client, path: &Path) -> Item {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut survey = Survey::new(client, path, 1_000).await.expect("reachable");
        if let Some(item) = survey.next().await.expect("reachable") {
            let more = survey.next().await.expect("reachable");
            assert!(more.is_none(), "{item:?} and {more:?}");
            return item;
        }
        assert!(Instant::now() < end, "nothing is found at {path}");
        sleep(TICK / 10).await;
    }
}

fn below(path: &Path, name: &str) -> Path {
    path.join(name).expect("short")
}

async fn locks_are_recognised(kind: Kind, path: Path) {
    let client = kind.client().await;
    let dir = below(&path, "lock");
    let mut theirs = kind.asks(&dir).await;
    kind.entered(&mut theirs).await;
    let ours = Mutex::new(&client, dir.clone()).enqueue().await.expect("reachable");
    stand(&client, &dir, 2).await;
    let item = found(&client, &path).await;
    let ItemState::Contenders(Contest::Lock, contenders) = &item.state else { panic!("{item:?}") };
    let holds: Vec<_> = contenders.iter().map(|one| one.holds).collect();
    assert_eq!((&item.path, &holds[..]), (&dir, &[Some(true), Some(false)][..]));
    assert_eq!(item.certainty, Certainty::Certain);
    assert!(contenders.iter().all(|one| one.owner.is_some()), "{contenders:?}");
    drop(ours);
    stand(&client, &dir, 1).await;
    // The name of a lock of etcd's package is that of its lease, as of other things.
    let alone = if kind == Kind::Etcdctl { Certainty::Likely } else { Certainty::Certain };
    assert_eq!(found(&client, &path).await.certainty, alone);
    kind.release(&mut theirs);
}

async fn elections_are_recognised(kind: Kind, path: Path) {
    let client = kind.client().await;
    let mut theirs = Peer::curator(&kind.server()).await;
    theirs.write_line(&format!("latch {path}/latch theirs"));
    theirs.says("in").await;
    let item = found(&client, &path).await;
    let ItemState::Contenders(Contest::Election, all) = &item.state else { panic!("{item:?}") };
    assert_eq!((all.len(), all[0].holds, &all[0].label[..]), (1, Some(true), &b"theirs"[..]));
    theirs.write_line("leave");
}

async fn semaphores_are_recognised(kind: Kind, path: Path) {
    let client = kind.client().await;
    let mut theirs = Peer::curator(&kind.server()).await;
    theirs.write_line(&format!("permit {path}/permits 2"));
    theirs.says("in").await;
    let item = found(&client, &path).await;
    let ItemState::Contenders(Contest::Semaphore, all) = &item.state else { panic!("{item:?}") };
    // Only Curator's clients know the limit.
    assert_eq!((all.len(), all[0].holds, item.certainty), (1, None, Certainty::Certain));
    assert_eq!(item.path, below(&below(&path, "permits"), "leases"));
    theirs.kill();
}

async fn queues_are_recognised(kind: Kind, path: Path) {
    let client = kind.client().await;
    let server = kind.server();
    let queues: &[(&str, OtherQueue, Certainty)] = match kind {
        Kind::Kazoo => &[
            ("put PATH one 100", OtherQueue::Kazoo, Certainty::Likely),
            ("offer PATH one 50", OtherQueue::KazooLocking, Certainty::Certain),
        ],
        _ => &[
            ("put simple PATH one 1", OtherQueue::CuratorSimple, Certainty::Certain),
            ("put items PATH one 1", OtherQueue::Curator, Certainty::Likely),
            ("put priority PATH one 1", OtherQueue::Curator, Certainty::Likely),
            ("put delay PATH one 1", OtherQueue::Curator, Certainty::Likely),
        ],
    };
    for (place, (command, queue, certainty)) in queues.iter().enumerate() {
        let mut theirs = match kind {
            Kind::Kazoo => Peer::kazoo(&server).await,
            _ => Peer::curator_queues(&server).await,
        };
        let dir = below(&path, &format!("kind-{place}"));
        theirs.write_line(&command.replace("PATH", dir.as_str()));
        theirs.says("in").await;
        let item = found(&client, &dir).await;
        let is_it = matches!(&item.state, ItemState::OtherQueue(found, 1) if found == queue);
        assert!(is_it && item.certainty == *certainty, "{command}: {item:?}");
    }
}

async fn groups_are_recognised(kind: Kind, path: Path) {
    let client = kind.client().await;
    let dir = below(&path, "group");
    let mut theirs = match kind {
        Kind::Kazoo => Peer::kazoo(&kind.server()).await,
        _ => Peer::curator(&kind.server()).await,
    };
    theirs.write_line(&format!("join {dir} theirs of-theirs"));
    theirs.says("in").await;
    let item = found(&client, &path).await;
    let ItemState::Group(members) = &item.state else { panic!("{item:?}") };
    assert_eq!((members.len(), &members[0].data[..]), (1, &b"of-theirs"[..]));
    let certainty = if kind == Kind::Kazoo { Certainty::Certain } else { Certainty::Likely };
    assert_eq!((item.certainty, &item.path), (certainty, &dir));
}
