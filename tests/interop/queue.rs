//! Queues of kazoo, of Curator, and of etcd's recipes for Go.

use std::time::Duration;

use synod::Path;
use synod::queue::{CompatQueue, ItemPlace, PutOptions, Queue, QueueLayout};
use tokio::time::timeout;

use crate::peer::{PATIENCE, Peer};
use crate::{Kind, Scene};

pub(crate) const SCENES: [(&str, &[Kind], Scene); 4] = [
    ("a_queue_is_shared", &[Kind::Kazoo], |kind, path| Box::pin(a_queue_is_shared(kind, path))),
    ("a_queue_of_curator_is_shared", &[Kind::Curator], |kind, path| {
        Box::pin(a_queue_of_curator_is_shared(kind, path))
    }),
    ("a_locking_queue_is_shared", &[Kind::Kazoo], |kind, path| {
        Box::pin(a_locking_queue_is_shared(kind, path))
    }),
    ("an_etcd_queue_is_shared", &[Kind::Go], |kind, path| {
        Box::pin(an_etcd_queue_is_shared(kind, path))
    }),
];

async fn a_queue_is_shared(kind: Kind, path: Path) {
    let client = kind.client().await;
    let queue = Queue::new_bytes(&client, &path);
    let mut theirs = Peer::kazoo(&kind.server()).await;
    for item in ["one 100", "two 100", "first 5"] {
        theirs.write_line(&format!("put {path}/items {item}"));
        theirs.says("in").await;
    }
    let next =
        async || timeout(PATIENCE, queue.claim()).await.expect("in time").expect("reachable");
    for item in ["first", "one"] {
        let taken = timeout(PATIENCE, queue.take()).await.expect("in time").expect("reachable");
        assert_eq!(taken, item);
    }
    let delivery = next().await;
    assert_eq!((&delivery.item()[..], delivery.delivered()), (&b"two"[..], 1));
    delivery.put_back().await.expect("reachable");
    let delivery = next().await;
    assert_eq!((&delivery.item()[..], delivery.delivered()), (&b"two"[..], 2));
    theirs.write_line(&format!("get {path}/items"));
    // It is claimed.
    theirs.says("none").await;
    delivery.ack().await.expect("it is held");

    theirs.write_line(&format!("put {path}/items three 100"));
    theirs.says("in").await;
    // kazoo sorts the names. So it has the priorities, and of one priority any item.
    for (item, priority) in [("fifty", 50), ("seven", 7)] {
        let options = PutOptions::default().priority(priority);
        assert!(queue.put_with(&item.into(), options).await.expect("reachable"));
    }
    for item in ["seven", "fifty", "three", "none"] {
        theirs.write_line(&format!("get {path}/items"));
        theirs.says(item).await;
    }
    assert_eq!(queue.len().await.expect("reachable"), 0);
    queue.put(&"last".into()).await.expect("reachable");
    let last = timeout(PATIENCE, queue.take()).await.expect("in time").expect("reachable");
    assert_eq!(last, "last", "what others have taken is gone here, too");
}

async fn took(queue: &CompatQueue) -> Vec<String> {
    let taken = timeout(PATIENCE, queue.take()).await.expect("in time").expect("reachable");
    taken.iter().map(|item| String::from_utf8_lossy(item).into_owned()).collect()
}

async fn put(queue: &CompatQueue, item: &'static str, place: ItemPlace) {
    queue.put_at(&[item.into()], place).await.expect("reachable");
}

async fn a_queue_of_curator_is_shared(kind: Kind, path: Path) {
    let client = kind.client().await;
    let mut theirs = Peer::curator_queues(&kind.server()).await;
    let usual = ItemPlace::default();
    for (name, layout, first, last) in [
        ("simple", QueueLayout::CuratorSimple, usual, usual),
        ("items", QueueLayout::CuratorItems, usual, usual),
        ("priority", QueueLayout::CuratorPriority, usual.priority(-3), usual.priority(3)),
        ("delay", QueueLayout::CuratorDelay, usual, usual.after(Duration::from_millis(300))),
    ] {
        let path = path.join(name).expect("short");
        let queue = CompatQueue::new(&client, &path, layout);
        // Theirs, of a middle place, is between ours.
        put(&queue, "first", first).await;
        theirs.write_line(&format!("put {name} {path} theirs 1"));
        theirs.says("in").await;
        put(&queue, "last", last).await;
        for item in ["first", "theirs", "last"] {
            assert_eq!(took(&queue).await, [item], "{name}");
        }
        put(&queue, "ours", usual).await;
        theirs.write_line(&format!("take {name} {path}"));
        theirs.says("ours").await;
    }

    let items = path.join("items").expect("short");
    let queue = CompatQueue::new(&client, &items, QueueLayout::CuratorItems);
    theirs.write_line(&format!("put-two {items} one two"));
    theirs.says("in").await;
    assert_eq!(took(&queue).await, ["one", "two"], "they are in one node");

    let locks = path.join("locks").expect("short");
    let locked = CompatQueue::locked_at(&client, &items, QueueLayout::CuratorItems, &locks);
    put(&locked, "under a lock", usual).await;
    theirs.write_line(&format!("take items {items} {locks}"));
    theirs.says("under a lock").await;
    put(&locked, "next", usual).await;
    assert_eq!(took(&locked).await, ["next"], "what they have taken is gone");
}

async fn a_locking_queue_is_shared(kind: Kind, path: Path) {
    let client = kind.client().await;
    let queue = CompatQueue::new(&client, &path, QueueLayout::KazooLocking);
    let mut theirs = Peer::kazoo(&kind.server()).await;
    put(&queue, "first", ItemPlace::default().priority(7)).await;
    theirs.write_line(&format!("lock-next {path}"));
    theirs.says("first").await;
    put(&queue, "second", ItemPlace::default().priority(8)).await;
    assert_eq!(took(&queue).await, ["second"], "they have the first one");
    theirs.write_line("let-go");
    theirs.says("out").await;
    assert_eq!(took(&queue).await, ["first"], "they gave it back");

    put(&queue, "later", ItemPlace::default()).await;
    theirs.write_line(&format!("offer {path} theirs 50"));
    theirs.says("in").await;
    theirs.write_line(&format!("lock-next {path}"));
    theirs.says("theirs").await;
    theirs.write_line("consume");
    theirs.says("out").await;
    assert_eq!(took(&queue).await, ["later"]);
    assert_eq!(queue_length(&client, &path).await, 0, "nothing is left");
}

async fn queue_length(client: &synod::Client, path: &Path) -> usize {
    client.children(&path.join("entries").expect("short")).await.expect("reachable").len()
}

async fn an_etcd_queue_is_shared(kind: Kind, path: Path) {
    let client = kind.client().await;
    let queue = CompatQueue::new(&client, &path, QueueLayout::EtcdRecipe);
    let mut theirs = Peer::go_queue(&kind.server()).await;
    put(&queue, "ours", ItemPlace::default()).await;
    theirs.write_line(&format!("put {path}/ theirs"));
    theirs.says("in").await;
    put(&queue, "last", ItemPlace::default()).await;
    for item in ["ours", "theirs"] {
        assert_eq!(took(&queue).await, [item]);
    }
    theirs.write_line(&format!("take {path}/"));
    theirs.says("last").await;
    theirs.write_line(&format!("put {path}/ more"));
    theirs.says("in").await;
    assert_eq!(took(&queue).await, ["more"]);
}
