//! Numbers of Curator's, and barriers of Curator's and kazoo's.

use std::time::Duration;

use synod::Path;
use synod::recipe::{Barrier, Counter, within};

use crate::peer::{PATIENCE, Peer};
use crate::{Kind, Scene};

pub(crate) const SCENES: [(&str, &[Kind], Scene); 2] = [
    ("a_number_is_shared", &[Kind::Curator], |kind, path| Box::pin(a_number_is_shared(kind, path))),
    ("a_barrier_is_shared", &[Kind::Curator, Kind::Kazoo], |kind, path| {
        Box::pin(a_barrier_is_shared(kind, path))
    }),
];

/// How often each side adds 1.
const TIMES: usize = 50;

async fn a_number_is_shared(kind: Kind, path: Path) {
    let (client, mut peer) = (kind.client().await, Peer::curator(&kind.server()).await);
    let (long, int) = (path.join("long").expect("valid"), path.join("int").expect("valid"));

    // At the same time.
    peer.write_line(&format!("count {long} {TIMES}"));
    let number = Counter::new(&client, &long);
    for _ in 0..TIMES {
        number.increment().await.expect("reachable");
    }
    let theirs: usize = peer.speaks().await.parse().expect("a number");
    assert!((TIMES..=2 * TIMES).contains(&theirs), "{theirs}");
    assert_eq!(number.get().await.expect("reachable"), 100);

    // A number that Curator made, and one that it finds.
    peer.write_line(&format!("count4 {int} 3"));
    peer.says("3").await;
    let number = Counter::of_i32(&client, &int);
    assert_eq!(number.subtract(5).await.expect("reachable").after, -2);
    peer.write_line(&format!("count4 {int} 1"));
    peer.says("-1").await;
}

async fn a_barrier_is_shared(kind: Kind, path: Path) {
    const BRIEF: Duration = Duration::from_millis(300);
    let (client, server) = (kind.client().await, kind.server());
    let mut peer = match kind {
        Kind::Kazoo => Peer::kazoo(&server).await,
        _ => Peer::curator(&server).await,
    };
    let barrier = Barrier::new(&client, &path);

    barrier.set().await.expect("reachable");
    peer.write_line(&format!("wait {path}"));
    peer.keeps_silent().await;
    barrier.lift().await.expect("reachable");
    peer.says("in").await;

    peer.write_line(&format!("set {path}"));
    peer.says("out").await;
    assert!(within(BRIEF, barrier.wait()).await.expect("reachable").is_none(), "it is set");
    peer.write_line(&format!("lift {path}"));
    peer.says("in").await;
    let passed = within(PATIENCE, barrier.wait()).await.expect("reachable");
    assert!(passed.is_some(), "it is lifted");
}
