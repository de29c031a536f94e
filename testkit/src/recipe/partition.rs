//! The row of partitions.

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_recipes::Partition;

use crate::recipe::row::{Leaves, Part, Row, made};
use crate::recipe::usage::{Act, Use};

pub(super) const PARTITION: Row = Row {
    name: "Partition",
    module: "partition",
    cases: "partition",
    stair: None,
    make: |client, path| made(Partition::new(&client, path, ["a"])),
    shown: "path: /shown",
    leaves: Leaves::Nothing,
    // Its containers may stay for a while.
    dirs: &["members", "claims"],
    uses: &[Use {
        name: "partition",
        act: Act::Change {
            change: |client, path| Box::pin(async move { has_all(&client, &path).await }),
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
async fn has_all(client: &Client, path: &Path) -> Result<()> {
    let share = Partition::new(client, path, ["a", "b/c", "d"]).join("ann").await?;
    share.settled().await?;
    share.leave().await
}
