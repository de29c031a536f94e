//! Numbers and values of Curator's and kazoo's, barriers of both, and keys that etcdctl writes.

use std::time::Duration;

use futures_util::StreamExt as _;
use synod::Path;
use synod::recipe::{
    AtomicValue, Barrier, Counter, LocalCopy, Promotion, SharedCount, SharedValue, Transaction,
    within,
};
use tokio::task::spawn_local;

use crate::peer::{PATIENCE, Peer};
use crate::{Kind, Scene, gets, stand};

pub(crate) const SCENES: [(&str, &[Kind], Scene); 8] = [
    ("a_transaction_is_shared", &[Kind::Etcdctl], |kind, path| {
        Box::pin(a_transaction_is_shared(kind, path))
    }),
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

/// Bytes that both replace, each on the condition of what the other one wrote.
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

/// Changes that are promoted wait in one line with those of Curator's, which keep no other change out.
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

    // A number that synod made.
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

    // A number that Curator made.
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

/// A write of etcdctl's, by `put` or by `txn`, to a key that a transaction has read makes it run again; and `txn` compares
/// what a transaction has written.
async fn a_transaction_is_shared(kind: Kind, path: Path) {
    let (client, server) = (kind.client().await, kind.server());
    let [a, b, marks] = ["a", "b", "marks"].map(|name| path.join(name).expect("valid"));
    let (key, ours) = (&format!("{path}//a"), Transaction::new(&client, marks));
    let write = |round: usize, data: &str| {
        if round == 0 {
            return Peer::etcdctl_once(&server, &["put", key, data], "");
        }
        // Conditions, what to do then, and otherwise, each with an empty line after it.
        let txn = format!("value(\"{key}\") = \"0\"\n\nput {key} {data}\n\n\n");
        Peer::etcdctl_once(&server, &["txn"], &txn)
    };
    for round in 0..2 {
        client.put(&a, "0").await.expect("reachable");
        let (a, b, write, mut runs) = (&a, &b, &write, 0);

        let read = ours.run(|run| {
            runs += 1;
            let is_first = runs == 1;
            async move {
                let read = run.get(a).await?.unwrap_or_default();
                if is_first {
                    write(round, "7");
                }
                run.put(b, read.clone())?;
                Ok::<_, synod::Error>(read)
            }
        });
        let read = read.await.expect("reachable");

        assert_eq!((&read[..], runs), (&b"7"[..], 2), "round {round}");
        // etcdctl finds what the transaction has written.
        let found = Peer::etcdctl_once(&server, &["get", &format!("{path}//b")], "");
        assert_eq!(found.lines().last(), Some("7"), "{found}");
    }
    let refused = write(1, "8");
    assert!(refused.starts_with("FAILURE"), "{refused}");
}
