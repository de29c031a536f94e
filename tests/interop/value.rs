//! Numbers and values of Curator's and kazoo's, and barriers of both.

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::StreamExt as _;
use synod::Path;
use synod::barrier::{Barrier, DoubleBarrier};
use synod::value::{AtomicValue, Counter, LocalCopy, Promotion, SharedCount, SharedValue};
use synod::within;
use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::peer::{PATIENCE, Peer};
use crate::{Kind, Scene, gets, stand};

/// The time for which a test checks that something does not happen.
const BRIEF: Duration = Duration::from_millis(300);

pub(crate) const SCENES: [(&str, &[Kind], Scene); 8] = [
    ("a_number_is_shared", &[Kind::Curator], |kind, path| Box::pin(a_number_is_shared(kind, path))),
    ("a_text_is_shared", &[Kind::Curator], |kind, path| Box::pin(a_text_is_shared(kind, path))),
    ("a_number_in_text_is_shared", &[Kind::Kazoo], |kind, path| {
        Box::pin(a_number_in_text_is_shared(kind, path))
    }),
    ("a_promoted_number_is_shared", &[Kind::Curator], |kind, path| {
        Box::pin(a_promoted_number_is_shared(kind, path))
    }),
    ("a_count_is_followed", &[Kind::Curator], |kind, path| {
        Box::pin(a_count_is_followed(kind, path))
    }),
    ("a_value_is_followed", &[Kind::Curator], |kind, path| {
        Box::pin(a_value_is_followed(kind, path))
    }),
    ("a_barrier_is_shared", &[Kind::Curator, Kind::Kazoo], |kind, path| {
        Box::pin(a_barrier_is_shared(kind, path))
    }),
    ("a_double_barrier_is_shared", &[Kind::Curator, Kind::Kazoo], |kind, path| {
        Box::pin(a_double_barrier_is_shared(kind, path))
    }),
];

/// The number of times that each side adds 1.
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

    // A number that Curator created, and a number that it finds.
    peer.write_line(&format!("count4 {int} 3"));
    peer.says("3").await;
    let number = Counter::new_i32(&client, &int);
    assert_eq!(number.subtract(5).await.expect("reachable").after, -2);
    peer.write_line(&format!("count4 {int} 1"));
    peer.says("-1").await;
}

/// Bytes that both replace, each on the condition of the other's last write.
async fn a_text_is_shared(kind: Kind, path: Path) {
    let (client, mut peer) = (kind.client().await, Peer::curator(&kind.server()).await);
    let value = AtomicValue::<Vec<u8>>::new(&client, &path);
    peer.write_line(&format!("atomic {path} [1]"));
    peer.says("none").await;

    let update = value.update(|list| [list.unwrap_or_default(), vec![2]].concat());
    let update = update.await.expect("reachable");
    assert_eq!((update.before, update.after), (Some(vec![1]), vec![1, 2]));
    peer.write_line(&format!("swap {path} [1] [9]"));
    peer.says("out").await;
    peer.write_line(&format!("swap {path} [1,2] [3]"));
    peer.says("in").await;
    let swapped = value.compare_and_set(Some(vec![1, 2]), &vec![9]).await.expect("reachable");
    assert_eq!(swapped, Err(Some(vec![3])));
    assert_eq!(value.swap(&vec![4]).await.expect("reachable"), Some(vec![3]));
    peer.write_line(&format!("atomic {path} [5]"));
    peer.says("[4]").await;
    assert_eq!(value.get().await.expect("reachable"), Some(vec![5]));
}

/// A number of JSON is the text that kazoo's counter stores.
async fn a_number_in_text_is_shared(kind: Kind, path: Path) {
    let (client, mut peer) = (kind.client().await, Peer::kazoo(&kind.server()).await);
    let value = AtomicValue::<i64>::new(&client, &path);
    assert!(value.initialize(&0).await.expect("reachable"));

    // At the same time.
    peer.write_line(&format!("count {path} {TIMES}"));
    for _ in 0..TIMES {
        value.update(|number| number.unwrap_or_default() + 1).await.expect("reachable");
    }
    let theirs: usize = peer.speaks().await.parse().expect("a number");

    assert!((TIMES..=2 * TIMES).contains(&theirs), "{theirs}");
    assert_eq!(value.get().await.expect("reachable"), Some(100));
}

/// Promoted changes wait in one lock queue with Curator's promoted changes, which do not exclude
/// other changes.
async fn a_promoted_number_is_shared(kind: Kind, path: Path) {
    let (client, mut peer) = (kind.client().await, Peer::curator(&kind.server()).await);
    let [number, lock] = ["number", "lock"].map(|name| path.join(name).expect("valid"));
    let first = Promotion::after(0).at(&lock);
    let ours = Counter::new(&client, &number).promote(first);
    assert_eq!(ours.increment().await.expect("reachable").cost.promoted_tries, 1);

    let mut holder = kind.asks(&lock).await;
    holder.says("in").await;
    let waiting = spawn_local({
        let ours = ours.clone();
        async move { ours.increment().await.expect("reachable") }
    });
    stand(&client, &lock, 2).await;
    assert!(!waiting.is_finished(), "Curator has the lock");
    kind.release(&mut holder);
    assert_eq!(gets(waiting).await.after, 2);

    // At the same time: ours under the lock, and theirs whenever they have lost.
    peer.write_line(&format!("promoted {number} {lock} {TIMES}"));
    for _ in 0..TIMES {
        ours.increment().await.expect("reachable");
    }
    let theirs: usize = peer.speaks().await.parse().expect("a number");

    assert!((TIMES + 2..=2 * TIMES + 2).contains(&theirs), "{theirs}");
    assert_eq!(ours.get().await.expect("reachable"), 102);
    stand(&client, &lock, 0).await;
}

async fn a_count_is_followed(kind: Kind, path: Path) {
    let (client, mut peer) = (kind.client().await, Peer::curator(&kind.server()).await);
    let (one, two) = (path.join("one").expect("valid"), path.join("two").expect("valid"));

    // A number that synod created.
    let count = SharedCount::open(&client, &one, -3).await.expect("reachable");
    peer.write_line(&format!("share {one} 99"));
    peer.says("-3").await;
    for number in [7, i32::MIN, i32::MAX] {
        count.set(number).await.expect("reachable");
        peer.says(&number.to_string()).await;
    }
    for number in [5, -1] {
        peer.write_line(&format!("give {number}"));
        peer.says(&number.to_string()).await;
        shows(count.changes(), number).await;
    }

    // Conditional writes of both, each once too late.
    peer.write_line("see");
    peer.says("-1").await;
    let seen = count.get();
    assert!(count.try_set(&seen, 10).await.expect("reachable").is_ok());
    peer.says("10").await;
    peer.write_line("try 11");
    peer.says("out").await;
    peer.write_line("see");
    peer.says("10").await;
    let seen = count.get();
    peer.write_line("try 12");
    peer.says("12").await;
    let newer = count.try_set(&seen, 13).await.expect("reachable").expect_err("it is too late");
    assert_eq!(newer.value, 12);

    // A number that Curator created.
    peer.write_line(&format!("share {two} 4"));
    peer.says("4").await;
    let count = SharedCount::open(&client, &two, 99).await.expect("reachable");
    assert_eq!(count.get().value, 4);
}

async fn a_value_is_followed(kind: Kind, path: Path) {
    let (client, mut peer) = (kind.client().await, Peer::curator(&kind.server()).await);
    peer.write_line(&format!("value {path} [1]"));
    peer.says("[1]").await;
    let value = SharedValue::<Vec<u8>>::open(&client, &path, &vec![9]).await.expect("reachable");
    assert_eq!(value.get().value, [1]);

    value.set(&vec![1, 2]).await.expect("reachable");
    peer.says("[1,2]").await;
    peer.write_line("text [3]");
    peer.says("[3]").await;
    shows(value.changes(), vec![3]).await;
}

/// Waits until a copy is current, and of this value.
async fn shows<T: PartialEq>(changes: impl futures_util::Stream<Item = LocalCopy<T>>, value: T) {
    let is_it = |copy: &LocalCopy<T>| copy.is_current() && copy.value == value;
    let shown = changes.any(|copy| std::future::ready(is_it(&copy)));
    let shown = tokio::time::timeout(PATIENCE, shown).await;
    assert_eq!(shown, Ok(true), "it is shown in time");
}

async fn a_barrier_is_shared(kind: Kind, path: Path) {
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

async fn a_double_barrier_is_shared(kind: Kind, path: Path) {
    let (client, server) = (kind.client().await, kind.server());
    let mut peer = match kind {
        Kind::Kazoo => Peer::kazoo(&server).await,
        _ => Peer::curator(&server).await,
    };
    let two = DoubleBarrier::new(&client, &path, NonZeroU32::new(2).expect("not zero"));
    for round in 0..4 {
        let entered = if round % 2 == 0 {
            peer.write_line(&format!("both {path} 2"));
            peer.keeps_silent().await;
            within(PATIENCE, two.enter()).await
        } else {
            let ours = two.clone();
            let ours = spawn_local(async move { within(PATIENCE, ours.enter()).await });
            sleep(BRIEF).await;
            assert!(!ours.is_finished(), "it is alone");
            peer.write_line(&format!("both {path} 2"));
            ours.await.expect("it does not panic")
        };
        let inside = entered.expect("reachable").expect("all are there");
        peer.says("in").await;

        let leaves = spawn_local(within(PATIENCE, inside.leave()));
        // Theirs may return from `leave` too early, so only ours is checked.
        sleep(BRIEF).await;
        assert!(!leaves.is_finished(), "they are inside");
        peer.write_line("leave-both");
        peer.says("out").await;
        let left = leaves.await.expect("it does not panic");
        assert!(left.expect("reachable").is_some(), "all have left");
    }
}
