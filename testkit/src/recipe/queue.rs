//! The rows of queues.

use std::future::ready;

use synod_core::client::Client;
use synod_core::error::{ErrorKind, Result};
use synod_core::path::Path;
use synod_recipes::{Delivery, ForeignQueue, PutOptions, Queue, QueueLayout};

use crate::recipe::proof::held;
use crate::recipe::row::{Leaves, Part, Row, opened};
use crate::recipe::usage::{Act, Use, done};

pub(super) const QUEUE: Row = Row {
    name: "Queue",
    module: "queue",
    cases: "queue",
    stair: Some("stamped"),
    make: |client, path| opened(ready(Queue::<u64>::new(&client, path))),
    shown: "Queue { path: /shown, .. }",
    leaves: Leaves::Nodes,
    dirs: &["items", "claims", "ids", "slots", "dead", "marks"],
    uses: &[
        Use {
            name: "queue",
            act: Act::Hold {
                take: |client, path| held(claims_the_one(client, path)),
                rival: |client, path| held(claims_the_one(client, path)),
                measured: true,
            },
            outlasts: true,
        },
        Use {
            name: "queue_take",
            act: Act::Change {
                change: |client, path| done(takes_two(client, path)),
                measured: false,
            },
            outlasts: true,
        },
        Use {
            name: "queue_ack",
            act: Act::Change {
                change: |client, path| done(acknowledges_two(client, path)),
                measured: false,
            },
            outlasts: true,
        },
    ],
    workloads: Part::Has(&["queue"]),
    faults: Part::None("the simulator has the same faults"),
    interop: Part::Has(&["a_queue_is_shared"]),
    bench: Part::Has(&["QueueTake", "QueueAck", "QueueBunches"]),
    family: None,
};

pub(super) const FOREIGN_QUEUE: Row = Row {
    name: "ForeignQueue",
    module: "foreign_queue",
    cases: "foreign_queue",
    stair: Some("stamped"),
    make: |client, path| opened(ready(ForeignQueue::new(&client, path, LAYOUT))),
    shown: "ForeignQueue { path: /shown, layout: KazooLocking, .. }",
    leaves: Leaves::Nodes,
    dirs: &["entries", "taken"],
    uses: &[Use {
        name: "foreign_queue",
        act: Act::Change {
            change: |client, path| done(takes_two_of_theirs(client, path)),
            measured: false,
        },
        outlasts: true,
    }],
    workloads: Part::Has(&["foreign_queue"]),
    faults: Part::None("the simulator has the same faults"),
    interop: Part::Has(&[
        "a_queue_of_curator_is_shared",
        "a_locking_queue_is_shared",
        "an_etcd_queue_is_shared",
    ]),
    bench: Part::None("the queue itself is measured against these libraries"),
    family: None,
};

/// It has locks, too.
const LAYOUT: QueueLayout = QueueLayout::KazooLocking;

async fn takes_two_of_theirs(client: Client, path: Path) -> Result<()> {
    let queue = ForeignQueue::new(&client, path, LAYOUT)?;
    for item in ["one", "two"] {
        queue.put(item).await?;
        queue.take().await?;
    }
    Ok(())
}

/// Claims the only item of a queue.
async fn claims_the_one(client: Client, path: Path) -> Result<Delivery<u64>> {
    let queue = Queue::new(&client, path)?;
    // By its id an item is put once, however often that is tried.
    while let Err(error) = queue.put_with(&1, PutOptions::default().id("one")).await {
        if !error.is_ambiguous() || client.is_closed() {
            return Err(error);
        }
    }
    queue.claim().await
}

async fn takes_two(client: Client, path: Path) -> Result<()> {
    let queue = Queue::<u64>::new(&client, path)?;
    for item in [1, 2] {
        queue.put(&item).await?;
        queue.take().await?;
    }
    Ok(())
}

async fn acknowledges_two(client: Client, path: Path) -> Result<()> {
    let queue = Queue::<u64>::new(&client, path)?;
    for item in [1, 2] {
        queue.put(&item).await?;
        // What was lost is delivered again.
        while let Err(error) = queue.claim().await?.ack().await {
            if error.kind() != ErrorKind::SessionLost || client.is_closed() {
                return Err(error);
            }
        }
    }
    Ok(())
}
