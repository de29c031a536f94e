//! The rows of the recipes that are waited for without being held.

use std::num::NonZeroU32;

use synod_core::client::Client;
use synod_core::path::Path;
use synod_core::store::Expect;
use synod_recipes::barrier::{Barrier, CountDown, DoubleBarrier};

use crate::edges;
use crate::recipe::edge::Takes;
use crate::recipe::row::{Kind, Leaves, Part, Row, made};
use crate::recipe::usage::{Act, Call, Use, done};

pub(super) const KIND: Kind = Kind {
    rows: &[BARRIER, COUNT_DOWN, DOUBLE_BARRIER],
    laws: &[
        ("L-BAR-1", "no waiter passes a barrier that is set during its whole wait"),
        ("L-BAR-2", "every waiter passes a barrier that is lifted and not set again"),
        (
            "L-BAR-3",
            "a call that sets or lifts a barrier reports a change only if it made one, and none only if it made none",
        ),
        ("L-CD-1", "no waiter passes a count-down before all parties have counted"),
        ("L-CD-2", "every waiter passes a count-down when all parties have counted"),
        ("L-CD-3", "a party counts once, even if it counts down several times"),
        (
            "L-DB-1",
            "no member enters a double barrier before all members of its round were present at the same time",
        ),
        ("L-DB-2", "no member leaves a double barrier before all live members leave"),
        (
            "L-DB-3",
            "a round of a double barrier consists of the members that were present when it began",
        ),
        ("L-DB-4", "the members of a double barrier do not wait for a member that died"),
        ("L-DB-5", "a surplus member of a double barrier waits for the next round"),
        ("L-DB-6", "a member that cancelled its entry into a double barrier does not count"),
        (
            "L-DB-7",
            "a member that requires the same number of parties fails while an earlier one has another",
        ),
    ],
    kept: &[
        ("a_wait_goes_on_in_the_next_session", "L-BAR-1 L-CD-1"),
        ("a_wait_whose_way_was_cleared_while_it_had_no_session_ends", "L-BAR-2 L-CD-2"),
        ("a_foreign_node_next_to_it_is_ignored", "L-BAR-2 L-CD-2"),
    ],
};

const fn change(name: &'static str, change: Call<()>) -> Use {
    Use { name, act: Act::Change { change, measured: false }, outlasts: false }
}

const LIFT: Call<()> = |client, path| done(async move { Barrier::new(&client, path).lift().await });
const COUNT: Call<()> =
    |client, path| done(async move { latch(&client, &path).count_down("a").await });

const BARRIER: Row = Row {
    name: "Barrier",
    module: "barrier",
    cases: "barrier",
    stair: Some("support"),
    make: |client, path| made(Barrier::new(&client, path)),
    shown: "path: /shown",
    leaves: Leaves::Nothing,
    // A node with children is a directory, and not a barrier.
    dirs: &[],
    takes: Takes::NONE,
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

const COUNT_DOWN: Row = Row {
    name: "CountDown",
    module: "count_down",
    cases: "count_down",
    make: |client, path| made(latch(&client, &path)),
    shown: "path: /shown, parties: 1",
    leaves: Leaves::Nodes,
    dirs: &[""],
    takes: edges::barrier::COUNT_DOWN,
    uses: &[
        Use {
            name: "count_down",
            act: Act::Pass {
                wait: |client, path| done(async move { latch(&client, &path).wait().await }),
                // A party is missing until it has counted.
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

const DOUBLE_BARRIER: Row = Row {
    name: "DoubleBarrier",
    module: "double_barrier",
    cases: "double_barrier",
    stair: None,
    make: |client, path| made(both(&client, &path)),
    shown: "path: /shown, parties: 1",
    leaves: Leaves::Nodes,
    dirs: &[""],
    takes: edges::barrier::DOUBLE_BARRIER,
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
