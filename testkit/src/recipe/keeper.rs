//! The rows of the recipes that keep ephemeral nodes.

use std::time::Duration;

use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_recipes::discovery::{Discovery, Instance};
use synod_recipes::presence::{Group, PersistentNode};

use crate::edges;
use crate::recipe::row::{Kind, Leaves, Part, Row, made};
use crate::recipe::usage::{Act, Use, done};

pub(super) const KIND: Kind = Kind {
    rows: &[PERSISTENT_NODE, GROUP, DISCOVERY],
    laws: &[
        (
            "L-PE-1",
            "after any fault a kept node exists again, owned by the session that created it, with the last data",
        ),
        ("L-PE-2", "an owner has at most one node, and a path at most one owner"),
        ("L-PE-3", "data that is set without a session is the data in the next session"),
        ("L-PE-4", "a kept node whose end was reported does not appear again"),
        ("L-PE-5", "an owner removes no node of another client, except to take it over"),
        ("L-PE-6", "an outage shorter than the session changes nothing for other clients"),
        (
            "L-PE-7",
            "a kept TTL node outlives the sessions of its owner, and is removed once its owner was silent for the TTL",
        ),
        ("L-GM-1", "after any fault every client lists the current members of a group"),
        ("L-GM-2", "a program considers itself a member only while the store lists it"),
        ("L-GM-3", "joins and leaves of a member are reported alternately, by its incarnations"),
        (
            "L-SD-1",
            "the view of an instance is one version of it, and never older than the view before",
        ),
        ("L-SD-2", "an instance that cannot be read is reported, and does not affect the others"),
        (
            "L-SD-3",
            "an outage removes no instance from a view, and the view reports that it may be outdated",
        ),
        (
            "L-SD-4",
            "a provider selects by its strategy among the current instances, and none that is marked as down",
        ),
        ("L-SD-5", "the creates of many owners after a loss are spread over time"),
        (
            "L-SD-6",
            "a published instance outlives its program until it is withdrawn, and replaces no registered one",
        ),
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
    // It is a single node, and nothing can be below it.
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
                            // If the store has no such nodes, there is nothing else to do.
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
    // The previous owner may have ended without removing its node.
    let kept = node.take_over().keep("1").await?;
    kept.set("2").await?;
    kept.close().await
}

/// Registers an instance with two successive values, and reads it.
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
