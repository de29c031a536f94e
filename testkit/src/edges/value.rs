//! The arguments of the values.

use std::num::NonZeroU64;
use std::time::Duration;

use futures_util::future::join;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_recipes::lock::Lease;
use synod_recipes::value::{AtomicValue, Counter, Ids, Promotion, SharedCount, SharedValue};

use crate::recipe::edge::{Takes, accepted, check, first, ignore_panic, later, text, to};

pub(crate) const COUNTER: Takes = Takes {
    numbers: &[
        first("add", |client, path, number| {
            Box::pin(async move {
                let (counter, number) = (Counter::new(&client, &path), to(number)?);
                let update = counter.add(number).await?;
                let sum = update.before.checked_add(number);
                check(sum == Some(update.after), "adding a number", &path)?;
                accepted(counter.set(0)).await.map(drop)
            })
        }),
        first("subtract", |client, path, number| {
            Box::pin(async move {
                let (counter, number) = (Counter::new_i32(&client, &path), to(number)?);
                let update = counter.subtract(number).await?;
                let rest = update.before.checked_sub(number);
                check(rest == Some(update.after), "subtracting a number", &path)?;
                accepted(counter.set(0)).await.map(drop)
            })
        }),
        first("set", |client, path, number| {
            Box::pin(async move {
                let (counter, number) = (Counter::new_u64(&client, &path), to::<u64>(number)?);
                counter.set(number).await?;
                let added = counter.increment().await;
                let next = added.as_ref().ok().map(|update| update.after);
                check(next == number.checked_add(1), "counting on", &path)?;
                let now = accepted(counter.get()).await?;
                check(now == next.unwrap_or(number), "counting on", &path)?;
                accepted(counter.set(0)).await.map(drop)
            })
        }),
        first("compare_and_set", |client, path, number| {
            Box::pin(async move {
                let (counter, number) = (Counter::new(&client, &path), to(number)?);
                let before = counter.get().await?;
                let set = counter.compare_and_set(before, number).await?;
                check(set.is_ok(), "setting a number", &path)?;
                accepted(counter.set(0)).await.map(drop)
            })
        }),
        first("initialize", |client, path, number| {
            Box::pin(async move {
                let counter = Counter::new(&client, &path);
                counter.initialize(to(number)?).await?;
                accepted(counter.set(0)).await.map(drop)
            })
        }),
        first("promote", |client, path, tries| {
            Box::pin(async move {
                let counter = Counter::new(&client, path).promote(Promotion::after(to(tries)?));
                counter.increment().await.map(drop)
            })
        }),
    ],
    ..Takes::NONE
};

pub(crate) const ATOMIC_VALUE: Takes = Takes {
    data: &[
        first("set", |client, path, data| {
            Box::pin(async move {
                let value = AtomicValue::new(&client, &path);
                value.set(&text(&data)).await?;
                check_there(&value, &text(&data), &path).await
            })
        }),
        later("update", |client, path, data| {
            Box::pin(async move {
                let (value, large) = (AtomicValue::new(&client, &path), text(&data));
                let grown = move |_before| large.clone();
                // Another change in the same batch does not fail with it.
                let other = value.update(|before: Option<String>| before.unwrap_or_default());
                let (grown, other) = join(value.update(grown), other).await;
                accepted(async { other }).await?;
                grown?;
                check_there(&value, &text(&data), &path).await
            })
        }),
    ],
    values: &[
        first("swap", |client, path, number| {
            Box::pin(async move {
                let value = AtomicValue::new(&client, &path);
                value.swap(&number).await?;
                check_there(&value, &number, &path).await
            })
        }),
        first("compare_and_set", |client, path, number| {
            Box::pin(async move {
                let value = AtomicValue::new(&client, &path);
                let before = accepted(value.get()).await?;
                let set = value.compare_and_set(before, &number).await?;
                check(set.is_ok(), "setting a value", &path)?;
                check_there(&value, &number, &path).await
            })
        }),
        first("set", |client, path, number| {
            Box::pin(async move {
                let value = AtomicValue::new(&client, &path);
                value.set(&number).await?;
                check_there(&value, &number, &path).await
            })
        }),
        first("initialize", |client, path, number| {
            Box::pin(async move {
                let value = AtomicValue::new(&client, &path);
                value.initialize(&number).await?;
                accepted(value.get()).await.map(drop)
            })
        }),
        first("update", |client, path, number| {
            Box::pin(async move {
                let value = AtomicValue::new(&client, &path);
                value.update(move |_before| number).await?;
                check_there(&value, &number, &path).await
            })
        }),
    ],
    numbers: &[first("promote", |client, path, tries| {
        Box::pin(async move {
            let value = AtomicValue::new(&client, path).promote(Promotion::after(to(tries)?));
            value.update(|before: Option<u64>| before.unwrap_or_default()).await.map(drop)
        })
    })],
    functions: &[first("update", |client, path, trap| {
        Box::pin(async move {
            let value = AtomicValue::new(&client, path);
            let panics = move |before: Option<u64>| {
                trap.spring();
                before.unwrap_or_default()
            };
            let other = value.update(|before: Option<u64>| before.unwrap_or_default() + 1);
            let (_panicked, other) = join(ignore_panic(value.update(panics)), other).await;
            other?;
            value.set(&1).await.map(drop)
        })
    })],
    ..Takes::NONE
};

/// Fails if the value differs.
async fn check_there<T>(value: &AtomicValue<T>, it: &T, path: &Path) -> Result<()>
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Send + Sync + 'static,
{
    let there = accepted(value.get()).await?;
    check(there.as_ref() == Some(it), "reading a value", path)
}

pub(crate) const IDS: Takes = Takes {
    numbers: &[first("new", |client, path, block| {
        Box::pin(async move {
            let block = NonZeroU64::new(to(block)?)
                .ok_or_else(|| Error::new(ErrorKind::Invalid, "passing a zero"))?;
            let ids = Ids::new(&client, &path, block);
            let first = ids.next().await?;
            let second = ids.next().await;
            check(second.is_err() || second.ok() > Some(first), "drawing numbers", &path)?;
            // The store has a value from others.
            accepted(Counter::new_u64(&client, path).set(0)).await.map(drop)
        })
    })],
    ..Takes::NONE
};

pub(crate) const LEASE: Takes = Takes {
    texts: &[first("holder", |client, path, name| {
        Box::pin(async move {
            let lease = Lease::new(&client, &path, Duration::from_secs(60)).holder(&name);
            let term = lease.try_acquire().await?;
            check(term.is_ok_and(|term| term.holder == name), "taking a lease", &path)?;
            accepted(lease.release()).await.map(drop)
        })
    })],
    times: &[
        first("new", |client, path, term| {
            Box::pin(async move { take_and_release(&path, Lease::new(&client, &path, term)).await })
        }),
        first("clock_margin", |client, path, margin| {
            Box::pin(async move {
                let lease = Lease::new(&client, &path, Duration::from_secs(60));
                take_and_release(&path, lease.aligned().clock_margin(margin)).await
            })
        }),
    ],
    ..Takes::NONE
};

async fn take_and_release(path: &Path, lease: Lease) -> Result<()> {
    let taken = lease.try_acquire().await?;
    check(taken.is_ok(), "taking a lease", path)?;
    accepted(lease.release()).await.map(drop)
}

pub(crate) const SHARED_VALUE: Takes = Takes {
    data: &[later("set", |client, path, data| {
        Box::pin(async move {
            let value = SharedValue::open(&client, path, &String::new()).await?;
            value.set(&text(&data)).await?;
            accepted(value.set(&String::new())).await.map(drop)
        })
    })],
    values: &[
        first("open", |client, path, number| {
            Box::pin(async move {
                let value = SharedValue::open(&client, path, &number).await?;
                accepted(value.set(&1.5)).await.map(drop)
            })
        }),
        later("set", |client, path, number| {
            Box::pin(async move {
                let value = SharedValue::open(&client, &path, &0.5).await?;
                value.set(&number).await?;
                accepted(SharedValue::open(&client, &path, &0.5)).await?;
                accepted(value.set(&1.5)).await.map(drop)
            })
        }),
        later("try_set", |client, path, number| {
            Box::pin(async move {
                let value = SharedValue::open(&client, path, &0.5).await?;
                let _set = value.try_set(&value.get(), &number).await?.is_ok();
                accepted(value.set(&1.5)).await.map(drop)
            })
        }),
    ],
    ..Takes::NONE
};

pub(crate) const SHARED_COUNT: Takes = Takes {
    numbers: &[
        first("open", |client, path, number| {
            Box::pin(async move {
                let count = SharedCount::open(&client, path, to(number)?).await?;
                accepted(count.set(1)).await.map(drop)
            })
        }),
        later("set", |client, path, number| {
            Box::pin(async move {
                let number = to(number)?;
                let count = SharedCount::open(&client, path, 0).await?;
                count.set(number).await.map(drop)
            })
        }),
        later("try_set", |client, path, number| {
            Box::pin(async move {
                let number = to(number)?;
                let count = SharedCount::open(&client, path, 0).await?;
                count.try_set(&count.get(), number).await.map(drop)
            })
        }),
    ],
    ..Takes::NONE
};
