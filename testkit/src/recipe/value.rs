//! The rows of the values.

use std::num::NonZeroU64;

use futures_util::future::BoxFuture;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_recipes::{AtomicValue, Counter, Ids, Promotion, SharedCount, SharedValue};

use crate::recipe::row::{Leaves, Part, Row, made, opened};
use crate::recipe::usage::{Act, Call, Use, done};

/// What holds for a recipe with one node.
const CELL: Row = Row {
    name: "",
    module: "",
    cases: "",
    stair: Some("cell"),
    make: |_, _| made(()),
    shown: "",
    leaves: Leaves::Value,
    dirs: &[""],
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

pub(super) const COUNTER: Row = Row {
    name: "Counter",
    module: "counter",
    cases: "counter",
    make: |client, path| made(Counter::new(&client, path)),
    shown: "Counter { cell: /shown, .. }",
    dirs: &["", "-promotion"],
    uses: &[
        change("counter", |client, path| {
            let counter = Counter::new(&client, path);
            count(counter.clone(), counter)
        }),
        promoted("counter/promoted", |client, path| {
            let counter = Counter::new(&client, path);
            count(counter.clone(), counter.promote(Promotion::after(0)))
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

pub(super) const ATOMIC_VALUE: Row = Row {
    name: "AtomicValue",
    module: "atomic_value",
    cases: "atomic_value",
    make: |client, path| made(value(&client, &path)),
    shown: "AtomicValue { cell: /shown, .. }",
    dirs: &["", "-promotion"],
    uses: &[
        change("atomic_value", |client, path| {
            let value = value(&client, &path);
            replace(value.clone(), value)
        }),
        promoted("atomic_value/promoted", |client, path| {
            let value = value(&client, &path);
            replace(value.clone(), value.promote(Promotion::after(0)))
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

pub(super) const IDS: Row = Row {
    name: "Ids",
    module: "ids",
    cases: "ids",
    make: |client, path| made(Ids::new(&client, path, NonZeroU64::MIN)),
    shown: "Ids { cell: /shown, block: 1, .. }",
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

pub(super) const SHARED_VALUE: Row = Row {
    name: "SharedValue",
    module: "shared_value",
    cases: "shared_value",
    make: |client, path| opened(async move { SharedValue::open(&client, path, &1).await }),
    shown: "SharedValue { cell: /shown, .. }",
    uses: &[change("shared_value", |client, path| {
        done(async move { SharedValue::open(&client, path, &1).await?.set(&2).await })
    })],
    workloads: Part::Has(&["shared_value"]),
    interop: Part::Has(&["a_value_is_followed"]),
    bench: Part::Has(&["SharedValue"]),
    family: Some("copies"),
    ..CELL
};

pub(super) const SHARED_COUNT: Row = Row {
    name: "SharedCount",
    module: "shared_count",
    cases: "shared_count",
    make: |client, path| opened(async move { SharedCount::open(&client, path, 1).await }),
    shown: "SharedCount { cell: /shown, .. }",
    uses: &[change("shared_count", |client, path| {
        done(async move { SharedCount::open(&client, path, 1).await?.set(2).await })
    })],
    interop: Part::Has(&["a_count_is_followed"]),
    bench: Part::None("its calls are those of `SharedValue`"),
    ..SHARED_VALUE
};
