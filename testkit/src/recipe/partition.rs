//! The row of partitions.

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_recipes::partition::Partition;

use crate::edges;
use crate::recipe::row::{Kind, Leaves, Part, Row, made};
use crate::recipe::usage::{Act, Use};

pub(super) const KIND: Kind = Kind {
    rows: &[PARTITION],
    laws: &[
        ("L-SP-1", "no two members hold one item of a partition at the same time"),
        ("L-SP-2", "after the last change and the last fault every item has an owner"),
        (
            "L-SP-3",
            "an item is requested from a live member, which stops its work before another member gets the item",
        ),
        (
            "L-SP-4",
            "the number of items of a member differs by less than one from its share by weight",
        ),
        ("L-SP-5", "when a member joins or leaves, only as many items move as it gets or had"),
        ("L-SP-6", "a member without a certain session holds no item, and is notified of the loss"),
        (
            "L-SP-7",
            "a member that left has no node in the store, even if requests were in flight when it left",
        ),
    ],
    kept: &[
        ("a_use_dropped_at_any_await_leaves_nothing", "L-SP-7"),
        ("a_process_that_ends_at_any_call_is_outlived", "L-SP-2 L-SP-7"),
    ],
};

const PARTITION: Row = Row {
    name: "Partition",
    module: "partition",
    cases: "partition",
    stair: None,
    make: |client, path| made(Partition::new(&client, path, ["a"])),
    shown: "path: /shown",
    leaves: Leaves::Nothing,
    // Its containers may stay for a while.
    dirs: &["members", "claims"],
    takes: edges::keeper::PARTITION,
    uses: &[Use {
        name: "partition",
        act: Act::Change {
            change: |client, path| Box::pin(async move { check_has_all(&client, &path).await }),
            measured: false,
        },
        outlasts: true,
    }],
    workloads: Part::Has(&["partition"]),
    faults: Part::None("the simulator has the same faults, and judges each item"),
    interop: Part::None("no other library has these nodes: kazoo's partitioner uses its own locks"),
    bench: Part::None("its calls are counted by its cases"),
    family: None,
};

/// Joins, waits for its items, and leaves.
async fn check_has_all(client: &Client, path: &Path) -> Result<()> {
    let share = Partition::new(client, path, ["a", "b/c", "d"]).join("ann").await?;
    share.settled().await?;
    share.leave().await
}
