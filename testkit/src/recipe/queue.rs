//! The rows of queues.

use synod_core::client::Client;
use synod_core::error::{ErrorKind, Result};
use synod_core::path::Path;
use synod_recipes::queue::{CompatQueue, Delivery, PutOptions, Queue, QueueLayout};

use crate::edges;
use crate::recipe::proof::held;
use crate::recipe::row::{Kind, Leaves, Part, Row, made};
use crate::recipe::usage::{Act, Use, done};

pub(super) const KIND: Kind = Kind {
    rows: &[QUEUE, COMPAT_QUEUE],
    laws: &[
        (
            "L-Q-1",
            "every item that was put was taken or acknowledged by a consumer, or is still in the queue",
        ),
        ("L-Q-2", "every delivered item was put"),
        (
            "L-Q-3",
            "a put stores one item, also if its answer is lost, and at most one item of an id is queued",
        ),
        ("L-Q-4", "an item whose consumer died is delivered again"),
        ("L-Q-5", "an item that was taken is never delivered again"),
        (
            "L-Q-6",
            "while a delivery is held no other consumer has the item, and a stale consumer acknowledges nothing",
        ),
        ("L-Q-7", "a single consumer gets items in the order of their puts"),
        ("L-Q-8", "an item of a higher priority is delivered earlier"),
        (
            "L-Q-9",
            "an item is not delivered before its time, and blocks no other item until then; items that are due are delivered by their dates",
        ),
        ("L-Q-10", "a producer puts no item into a bounded queue that is full"),
        (
            "L-Q-11",
            "an item that is rejected, delivered too often, or unreadable becomes a dead letter, and blocks no other item",
        ),
        (
            "L-Q-12",
            "a consumer gets the items that were put while it was cut off, or between two of its sessions",
        ),
        (
            "L-Q-13",
            "an item costs a bounded number of requests, independently of the number of items and consumers",
        ),
        (
            "L-Q-14",
            "a call that does not wait returns no item only if at some moment during it none could be delivered",
        ),
        (
            "L-Q-15",
            "a dead letter has its number of deliveries and the reasons of the last failures, and leaves nothing",
        ),
    ],
    kept: &[
        ("a_use_dropped_at_any_await_leaves_nothing", "L-Q-1"),
        ("a_process_that_ends_at_any_call_is_outlived", "L-Q-4"),
        ("what_a_lost_session_held_is_granted_to_the_next", "L-Q-4 L-Q-6"),
        ("a_wait_goes_on_in_the_next_session", "L-Q-12"),
        ("a_wait_whose_way_was_cleared_while_it_had_no_session_ends", "L-Q-12"),
    ],
};

const QUEUE: Row = Row {
    name: "Queue",
    module: "queue",
    cases: "queue",
    stair: Some("support::exactly_once"),
    make: |client, path| made(Queue::<u64>::new(&client, path)),
    shown: "Queue { path: /shown, .. }",
    leaves: Leaves::Nodes,
    dirs: &["items", "claimed", "claims", "consumers", "ids", "slots", "dead", "failures", "marks"],
    takes: edges::queue::QUEUE,
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

const COMPAT_QUEUE: Row = Row {
    name: "CompatQueue",
    module: "compat_queue",
    cases: "compat_queue",
    stair: Some("support::exactly_once"),
    make: |client, path| made(CompatQueue::new(&client, path, LAYOUT)),
    shown: "CompatQueue { path: /shown, layout: KazooLocking, .. }",
    leaves: Leaves::Nodes,
    dirs: &["entries", "taken"],
    takes: edges::queue::COMPAT_QUEUE,
    uses: &[Use {
        name: "compat_queue",
        act: Act::Change {
            change: |client, path| done(takes_two_of_theirs(client, path)),
            measured: false,
        },
        outlasts: true,
    }],
    workloads: Part::Has(&["compat_queue"]),
    faults: Part::None("the simulator has the same faults"),
    interop: Part::Has(&[
        "a_queue_of_curator_is_shared",
        "a_locking_queue_is_shared",
        "an_etcd_queue_is_shared",
    ]),
    bench: Part::None("the queue itself is measured against these libraries"),
    family: None,
};

/// A layout that has locks, too.
const LAYOUT: QueueLayout = QueueLayout::KazooLocking;

async fn takes_two_of_theirs(client: Client, path: Path) -> Result<()> {
    let queue = CompatQueue::new(&client, path, LAYOUT);
    for item in ["one", "two"] {
        queue.put(item).await?;
        queue.take().await?;
    }
    Ok(())
}

/// Claims the only item of a queue.
async fn claims_the_one(client: Client, path: Path) -> Result<Delivery<u64>> {
    let queue = Queue::new(&client, path);
    // An item with an id is put once, however often the put is repeated.
    while let Err(error) = queue.put_with(&1, PutOptions::default().id("one")).await {
        if !error.has_unknown_effect() || client.is_closed() {
            return Err(error);
        }
    }
    queue.claim().await
}

async fn takes_two(client: Client, path: Path) -> Result<()> {
    let queue = Queue::<u64>::new(&client, path);
    for item in [1, 2] {
        queue.put(&item).await?;
        queue.take().await?;
    }
    Ok(())
}

async fn acknowledges_two(client: Client, path: Path) -> Result<()> {
    let queue = Queue::<u64>::new(&client, path);
    for item in [1, 2] {
        queue.put(&item).await?;
        // A lost delivery is delivered again.
        while let Err(error) = queue.claim().await?.ack().await {
            if error.kind() != ErrorKind::SessionLost || client.is_closed() {
                return Err(error);
            }
        }
    }
    Ok(())
}
