//! The rows of what keeps ephemeral nodes.

use std::time::Duration;

use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_recipes::{Discovery, Group, Instance, PersistentNode};

use crate::edges;
use crate::recipe::row::{Kind, Leaves, Part, Row, made};
use crate::recipe::usage::{Act, Use, done};

pub(super) const KIND: Kind = Kind {
    rows: &[PERSISTENT_NODE, GROUP, DISCOVERY],
    laws: &[
        (
            "L-PE-1",
            "a node that is kept is there again after any fault, owned by the session that lives, with the last data",
        ),
        ("L-PE-2", "an owner has one node at most, and a path one owner"),
        ("L-PE-3", "what is set while there is no session is the data of the next one"),
        ("L-PE-4", "when the end of a node that was kept is reported, it does not come back"),
        ("L-PE-5", "an owner removes no node of another client, unless it takes over"),
        ("L-PE-6", "an outage that the session outlives changes nothing that others see"),
        (
            "L-PE-7",
            "a node that is kept with a time to live outlives its owner's sessions, and goes after its owner was silent for so long",
        ),
        ("L-GM-1", "after any fault every client lists the members of a group that there are"),
        ("L-GM-2", "a program takes itself for a member only while the store lists it"),
        ("L-GM-3", "joins and leaves of a member are reported in turn, by its incarnations"),
        (
            "L-SD-1",
            "what is shown of an instance is one version of it, and never one that is older than the one before",
        ),
        ("L-SD-2", "an instance that cannot be read is reported, and leaves the others"),
        ("L-SD-3", "an outage removes no instance of a view, and the view says that it may be old"),
        (
            "L-SD-4",
            "a provider chooses by its strategy among the instances that there are, and none that is marked down",
        ),
        ("L-SD-5", "what many owners make again after a loss is spread over time"),
    ],
    kept: &[
        ("a_use_dropped_at_any_await_leaves_nothing", "L-PE-4"),
        ("a_process_that_ends_at_any_call_is_outlived", "L-PE-4 L-GM-1"),
    ],
};

const PERSISTENT_NODE: Row = Row {
    name: "PersistentNode",
    module: "persistent_node",
    cases: "persistent_node",
    stair: Some("keeper"),
    make: |client, path| made(PersistentNode::new(&client, path)),
    shown: "path: /shown",
    leaves: Leaves::Nothing,
    // It is one node, and nothing can be below it.
    dirs: &[],
    takes: edges::keeper::PERSISTENT_NODE,
    uses: &[
        Use {
            name: "persistent_node",
            act: Act::Change {
                change: |client, path| done(keeps(PersistentNode::new(&client, path))),
                measured: false,
            },
            outlasts: false,
        },
        Use {
            name: "persistent_node/ttl",
            act: Act::Change {
                change: |client, path| {
                    let node = PersistentNode::new(&client, path).ttl(Duration::from_secs(1));
                    done(async move {
                        match keeps(node).await {
                            // Where the store has no such nodes, this is all that there is of it.
                            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
                            kept => kept,
                        }
                    })
                },
                measured: false,
            },
            outlasts: false,
        },
    ],
    workloads: Part::Has(&["presence", "presence_ttl"]),
    faults: Part::None("its owners hold nothing; the simulator has the same faults"),
    interop: Part::Has(&["a_group_is_shared"]),
    bench: Part::None("it is one create, which is measured"),
    family: None,
};

const GROUP: Row = Row {
    name: "Group",
    module: "group",
    cases: "group",
    make: |client, path| made(Group::new(&client, path)),
    dirs: &[""],
    takes: edges::keeper::GROUP,
    uses: &[Use {
        name: "group",
        act: Act::Change {
            change: |client, path| {
                done(async move {
                    let group = Group::new(&client, path);
                    let member = group.join("1").await?;
                    member.set("2").await?;
                    group.members().await?;
                    member.leave().await
                })
            },
            measured: false,
        },
        outlasts: false,
    }],
    workloads: Part::Has(&["group"]),
    interop: Part::Has(&["a_group_is_shared"]),
    ..PERSISTENT_NODE
};

const DISCOVERY: Row = Row {
    name: "Discovery",
    module: "discovery",
    cases: "discovery",
    make: |client, path| made(Discovery::<u64>::new(&client, path)),
    shown: "base: /shown",
    dirs: &["web"],
    takes: edges::discovery::DISCOVERY,
    uses: &[
        Use {
            name: "discovery",
            act: Act::Change {
                change: |client, path| done(async move { registers(&client, &path).await }),
                measured: false,
            },
            outlasts: false,
        },
        Use {
            name: "discovery/open",
            act: Act::Change {
                change: |client, path| {
                    done(async move { Discovery::<u64>::new(&client, path).open("web").await })
                },
                measured: false,
            },
            outlasts: true,
        },
    ],
    workloads: Part::Has(&["discovery"]),
    interop: Part::Has(&["a_service_is_shared", "an_endpoint_is_shared"]),
    ..PERSISTENT_NODE
};

/// Keeps a node with two data one after the other.
async fn keeps(node: PersistentNode) -> Result<()> {
    // The owner before may have ended without removing its node.
    let kept = node.take_over().keep("1").await?;
    kept.set("2").await?;
    kept.close().await
}

/// Registers an instance that says two things one after the other, and looks at it.
async fn registers(client: &Client, base: &Path) -> Result<()> {
    let discovery = Discovery::<u64>::new(client, base);
    let instance = |payload| Instance::new("web", "10.0.0.7").payload(payload);
    let registration = discovery.register(instance(1)).await?;
    registration.update(instance(2)).await?;
    let all = discovery.instances("web").await?;
    let payload = all.get(registration.id()).and_then(|it| it.instance.payload);
    registration.unregister().await?;
    match payload {
        Some(2) => Ok(()),
        _ => Err(Error::new(ErrorKind::Backend, "looking at an instance").at(base)),
    }
}
