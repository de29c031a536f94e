//! The rows of what keeps ephemeral nodes.

use synod_recipes::PersistentNode;

use crate::recipe::row::made;
use crate::recipe::row::{Leaves, Part, Row};
use crate::recipe::usage::{Act, Use, done};

pub(super) const PERSISTENT_NODE: Row = Row {
    name: "PersistentNode",
    module: "persistent_node",
    cases: "persistent_node",
    stair: Some("keeper"),
    make: |client, path| made(PersistentNode::new(&client, path)),
    shown: "path: /shown",
    leaves: Leaves::Nothing,
    // It is one node, and nothing can be below it.
    dirs: &[],
    uses: &[Use {
        name: "persistent_node",
        act: Act::Change {
            change: |client, path| {
                done(async move {
                    // The owner before may have ended without removing its node.
                    let kept = PersistentNode::new(&client, path).take_over().keep("1").await?;
                    kept.set("2").await?;
                    kept.close().await
                })
            },
            measured: false,
        },
        outlasts: false,
    }],
    workloads: Part::Has(&["presence"]),
    faults: Part::None("its owners hold nothing; the simulator has the same faults"),
    interop: Part::Has(&["a_node_of_ours_is_followed"]),
    bench: Part::None("it is one create, which is measured"),
    promised: "Persistent nodes: L-PE",
    example: "Persistent node",
};
