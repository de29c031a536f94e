//! The rows of the values.

use std::num::NonZeroU64;
use std::time::Duration;

use futures_util::future::BoxFuture;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_recipes::lock::Lease;
use synod_recipes::value::{AtomicValue, Counter, Ids, Promotion, SharedCount, SharedValue};

use crate::edges;
use crate::recipe::edge::Takes;
use crate::recipe::row::{Kind, Leaves, Part, Row, made, opened};
use crate::recipe::usage::{Act, Call, Use, done};

pub(super) const KIND: Kind = Kind {
    rows: &[COUNTER, ATOMIC_VALUE, SHARED_VALUE, SHARED_COUNT, IDS, LEASE],
    laws: &[
        (
            "L-CNT-1",
            "a number is the sum of its first value and exactly the changes that were applied",
        ),
        (
            "L-CNT-2",
            "every change returns the value before and after it, in one order of all changes",
        ),
        (
            "L-CNT-3",
            "a change whose answer is lost is applied once, or its effect is reported as unknown",
        ),
        ("L-CNT-4", "a sum that does not fit is an error and changes nothing"),
        ("L-CNT-5", "data that is not a number is an error, and does not read as zero"),
        ("L-CNT-6", "every concurrent change of a value completes"),
        (
            "L-CNT-7",
            "a change that lost the given number of races is served next, and later ones yield",
        ),
        ("L-SV-1", "a copy of a shared value never goes back, and eventually is the last value"),
        (
            "L-SV-2",
            "a conditional write of a shared value fails if, and only if, the value was written since",
        ),
        (
            "L-SV-3",
            "a copy that may be outdated reports it, and keeps the last value that could be read",
        ),
        (
            "L-ID-1",
            "numbers are unique over all clients, restarts and lost answers, and increase for each client",
        ),
        (
            "L-LS-1",
            "the term of a lease ends at its date or when its holder releases it, and no other holder has one before",
        ),
        ("L-LS-2", "each term of a lease has a higher number than all terms before it"),
        (
            "L-LS-3",
            "a term of a lease outlives its session, and every process with the name of its holder extends it",
        ),
    ],
    kept: &[
        ("a_foreign_node_next_to_it_is_ignored", "L-CNT-1"),
        ("foreign_bytes_in_its_node_are_an_error", "L-CNT-5"),
    ],
};

/// The common parts of recipes with one node.
const CELL: Row = Row {
    name: "",
    module: "",
    cases: "",
    stair: Some("cell"),
    make: |_, _| made(()),
    shown: "",
    leaves: Leaves::Value,
    dirs: &[""],
    takes: Takes::NONE,
    uses: &[],
    workloads: Part::Has(&[]),
    faults: Part::None("its processes hold nothing; the simulator has the same faults"),
    interop: Part::None("no other library stores the same bytes"),
    bench: Part::None("its calls are those of `Counter`"),
    family: Some("values"),
};

const fn change(name: &'static str, change: Call<()>) -> Use {
    Use { name, act: Act::Change { change, measured: true }, outlasts: false }
}

/// A change that is made under the lock of a promotion.
const fn promoted(name: &'static str, change: Call<()>) -> Use {
    Use { name, act: Act::Change { change, measured: false }, outlasts: false }
}

const COUNTER: Row = Row {
    name: "Counter",
    module: "counter",
    cases: "counter",
    make: |client, path| made(Counter::new(&client, path)),
    shown: "Counter { path: /shown, .. }",
    dirs: &["", "-promotion"],
    takes: edges::value::COUNTER,
    uses: &[
        change("counter", |client, path| {
            let counter = Counter::new(&client, path);
            count(counter.clone(), counter)
        }),
        promoted("counter/promoted", |client, path| {
            let counter = Counter::new(&client, path);
            count(counter.clone().promote(Promotion::after(0)), counter)
        }),
    ],
    workloads: Part::Has(&["counter", "promotion"]),
    interop: Part::Has(&["a_number_is_shared", "a_promoted_number_is_shared"]),
    bench: Part::Has(&["Increment", "IncrementTasks"]),
    ..CELL
};

fn count(first: Counter, second: Counter) -> BoxFuture<'static, Result<()>> {
    done(async move {
        first.increment().await?;
        second.increment().await
    })
}

const ATOMIC_VALUE: Row = Row {
    name: "AtomicValue",
    module: "atomic_value",
    cases: "atomic_value",
    make: |client, path| made(value(&client, &path)),
    shown: "AtomicValue { path: /shown, .. }",
    dirs: &["", "-promotion"],
    takes: edges::value::ATOMIC_VALUE,
    uses: &[
        change("atomic_value", |client, path| {
            let value = value(&client, &path);
            replace(value.clone(), value)
        }),
        promoted("atomic_value/promoted", |client, path| {
            let value = value(&client, &path);
            replace(value.clone().promote(Promotion::after(0)), value)
        }),
    ],
    workloads: Part::Has(&["atomic_value"]),
    interop: Part::Has(&["a_text_is_shared", "a_number_in_text_is_shared"]),
    ..CELL
};

fn replace(
    first: AtomicValue<String>,
    second: AtomicValue<String>,
) -> BoxFuture<'static, Result<()>> {
    done(async move {
        first.update(|text| text.unwrap_or_default() + "x").await?;
        second.set(&"x".to_owned()).await
    })
}

fn value(client: &Client, path: &Path) -> AtomicValue<String> {
    AtomicValue::new(client, path)
}

const IDS: Row = Row {
    name: "Ids",
    module: "ids",
    cases: "ids",
    make: |client, path| made(Ids::new(&client, path, NonZeroU64::MIN)),
    shown: "Ids { path: /shown, block: 1, .. }",
    takes: edges::value::IDS,
    uses: &[change("ids", |client, path| {
        done(async move {
            let ids = Ids::new(&client, path, NonZeroU64::MIN);
            ids.next().await?;
            ids.next().await
        })
    })],
    workloads: Part::Has(&["ids"]),
    bench: Part::Has(&["Ids"]),
    ..CELL
};

const LEASE: Row = Row {
    name: "Lease",
    module: "lease",
    cases: "lease",
    make: |client, path| made(lease(&client, &path)),
    shown: "Lease { path: /shown, .. }",
    takes: edges::value::LEASE,
    uses: &[change("lease", |client, path| {
        done(async move {
            let lease = lease(&client, &path);
            let _taken = lease.try_acquire().await?;
            lease.release().await
        })
    })],
    workloads: Part::Has(&["lease"]),
    family: None,
    ..CELL
};

fn lease(client: &Client, path: &Path) -> Lease {
    Lease::new(client, path, Duration::from_secs(60)).holder("ann")
}

const SHARED_VALUE: Row = Row {
    name: "SharedValue",
    module: "shared_value",
    cases: "shared_value",
    make: |client, path| opened(async move { SharedValue::open(&client, path, &1).await }),
    shown: "SharedValue { path: /shown, .. }",
    takes: edges::value::SHARED_VALUE,
    uses: &[change("shared_value", |client, path| {
        done(async move { SharedValue::open(&client, path, &1).await?.set(&2).await })
    })],
    workloads: Part::Has(&["shared_value"]),
    interop: Part::Has(&["a_value_is_followed"]),
    bench: Part::Has(&["SharedValue"]),
    family: Some("copies"),
    ..CELL
};

const SHARED_COUNT: Row = Row {
    name: "SharedCount",
    module: "shared_count",
    cases: "shared_count",
    make: |client, path| opened(async move { SharedCount::open(&client, path, 1).await }),
    shown: "SharedCount { path: /shown, .. }",
    takes: edges::value::SHARED_COUNT,
    uses: &[change("shared_count", |client, path| {
        done(async move { SharedCount::open(&client, path, 1).await?.set(2).await })
    })],
    interop: Part::Has(&["a_count_is_followed"]),
    bench: Part::None("its calls are those of `SharedValue`"),
    ..SHARED_VALUE
};
