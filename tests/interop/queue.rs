//! Queues of kazoo.

use synod::Path;
use synod::recipe::{PutOptions, Queue};
use tokio::time::timeout;

use crate::peer::{PATIENCE, Peer};
use crate::{Kind, Scene};

pub(crate) const SCENES: [(&str, &[Kind], Scene); 1] =
    [("a_queue_is_shared", &[Kind::Kazoo], |kind, path| Box::pin(a_queue_is_shared(kind, path)))];

async fn a_queue_is_shared(kind: Kind, path: Path) {
    let client = kind.client().await;
    let queue = Queue::of_bytes(&client, &path).expect("short");
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
