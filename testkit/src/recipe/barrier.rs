//! The rows of what is waited for without being held.

use std::num::NonZeroU32;

use synod_core::client::Client;
use synod_core::path::Path;
use synod_core::store::Expect;
use synod_recipes::{Barrier, CountDown, DoubleBarrier};

use crate::recipe::row::{Leaves, Part, Row, made};
use crate::recipe::usage::{Act, Call, Use, done};

const fn change(name: &'static str, change: Call<()>) -> Use {
    Use { name, act: Act::Change { change, measured: false }, outlasts: false }
}

const LIFT: Call<()> = |client, path| done(async move { Barrier::new(&client, path).lift().await });
const COUNT: Call<()> =
    |client, path| done(async move { latch(&client, &path).count_down("a").await });

pub(super) const BARRIER: Row = Row {
    name: "Barrier",
    module: "barrier",
    cases: "barrier",
    stair: Some("cell"),
    make: |client, path| made(Barrier::new(&client, path)),
    shown: "path: /shown",
    leaves: Leaves::Nothing,
    // What has nodes below is a directory, and no barrier.
    dirs: &[],
    uses: &[
        Use {
            name: "barrier",
            act: Act::Pass {
                wait: |client, path| done(async move { Barrier::new(&client, path).wait().await }),
                bar: |client, path| done(async move { Barrier::new(&client, path).set().await }),
                lift: LIFT,
            },
            outlasts: true,
        },
        change("barrier/lift", LIFT),
    ],
    workloads: Part::Has(&["barrier"]),
    faults: Part::None("its waiters hold nothing; the simulator has the same faults"),
    interop: Part::Has(&["a_barrier_is_shared"]),
    bench: Part::None("a wait is one watch, which is measured"),
    family: None,
};

pub(super) const COUNT_DOWN: Row = Row {
    name: "CountDown",
    module: "count_down",
    cases: "count_down",
    make: |client, path| made(latch(&client, &path)),
    shown: "path: /shown, parties: 1",
    leaves: Leaves::Nodes,
    dirs: &[""],
    uses: &[
        Use {
            name: "count_down",
            act: Act::Pass {
                wait: |client, path| done(async move { latch(&client, &path).wait().await }),
                // A party is missing as long as it has not counted.
                bar: |_, _| done(async { Ok(()) }),
                lift: COUNT,
            },
            outlasts: true,
        },
        change("count_down/count", COUNT),
    ],
    workloads: Part::Has(&["count_down"]),
    interop: Part::None("kazoo and Curator have no count-down whose parties count once"),
    family: None,
    ..BARRIER
};

pub(super) const DOUBLE_BARRIER: Row = Row {
    name: "DoubleBarrier",
    module: "double_barrier",
    cases: "double_barrier",
    stair: None,
    make: |client, path| made(both(&client, &path)),
    shown: "path: /shown, parties: 1",
    leaves: Leaves::Nodes,
    dirs: &[""],
    uses: &[Use {
        name: "double_barrier",
        act: Act::Pass {
            wait: |client, path| {
                done(async move { both(&client, &path).enter().await?.leave().await })
            },
            // A member of an earlier round that does not leave.
            bar: |client, path| {
                done(async move {
                    client.put(&path.join(STAYS)?, "").await?;
                    client.put(&path.join("ready")?, format!("synod\n{STAYS}")).await
                })
            },
            lift: |client, path| {
                done(async move {
                    let _outcome = client.delete(&path.join("ready")?, Expect::Any).await?;
                    client.delete(&path.join(STAYS)?, Expect::Any).await
                })
            },
        },
        outlasts: true,
    }],
    workloads: Part::Has(&["double_barrier"]),
    interop: Part::Has(&["a_double_barrier_is_shared"]),
    bench: Part::Has(&["DoubleBarrier"]),
    family: None,
    ..BARRIER
};

/// A member of a double barrier.
const STAYS: &str = "member-stays";

fn both(client: &Client, path: &Path) -> DoubleBarrier {
    DoubleBarrier::new(client, path, NonZeroU32::MIN)
}

fn latch(client: &Client, path: &Path) -> CountDown {
    CountDown::new(client, path, NonZeroU32::MIN)
}
