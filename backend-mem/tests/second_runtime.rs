//! Recipe values of one client on a second runtime that ends: its tasks are dropped at the await
//! where they are.

#![expect(
    clippy::disallowed_methods,
    reason = "a failure ends in real time: each runtime has its own clock"
)]

use std::future::Future;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use synod_core::client::{Client, ClientOptions};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_mem::MemBackend;
use synod_recipes::value::{Counter, Ids, SharedValue};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// The limit for operations that must end by themselves.
const LONG: Duration = Duration::from_secs(60);

/// A client on a runtime with its own thread, and another runtime.
struct Two {
    main: Runtime,
    second: Runtime,
    client: Client,
}

type Call<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

impl Two {
    fn new() -> Self {
        let main = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let main = main.expect("the operating system lets a runtime start");
        let second = Builder::new_current_thread().enable_all().build();
        let second = second.expect("the operating system lets a runtime start");
        let opened = main.block_on(Client::open(MemBackend::new(), ClientOptions::default()));
        Self { main, second, client: opened.expect("memory opens it") }
    }

    /// Polls a call once on the second runtime, which then ends. The tasks that the call has
    /// started are never polled. Before that, another call is made on the main one. Returns the
    /// results of both, on the main runtime.
    fn calls<T>(self, mut first: Call<T>, mut other: Call<T>) -> [T; 2] {
        let Self { main, second, client } = self;
        second.block_on(async { assert!((&mut first).now_or_never().is_none(), "it waits") });
        main.block_on(async { assert!((&mut other).now_or_never().is_none(), "it waits") });
        drop(second);
        let ended = main.block_on(async {
            let other = timeout(LONG, other).await.expect("the other call ends");
            let first = timeout(LONG, first).await.expect("the first call ends");
            [first, other].map(|called| called.expect("both are made"))
        });
        main.block_on(client.close()).expect("it closes");
        ended
    }
}

fn path() -> Path {
    Path::new("/value").expect("it is one")
}

fn ids(client: &Client) -> Ids {
    Ids::new(client, path(), NonZeroU64::MIN)
}

#[test]
fn a_change_is_written_although_the_runtime_of_its_writer_has_ended() {
    let two = Two::new();
    let counter = Counter::new(&two.client, path());
    let call = || -> Call<i64> {
        let counter = counter.clone();
        Box::pin(async move { Ok(counter.increment().await?.after) })
    };
    let (first, other) = (call(), call());
    let mut sums = two.calls(first, other);
    sums.sort_unstable();
    assert_eq!(sums, [1, 2]);
}

#[test]
fn a_number_is_handed_out_although_the_runtime_of_its_block_has_ended() {
    let two = Two::new();
    let ids = ids(&two.client);
    let call = || -> Call<u64> {
        let ids = ids.clone();
        Box::pin(async move { ids.next().await })
    };
    let (first, other) = (call(), call());
    let [first, other] = two.calls(first, other);
    assert_ne!(first, other);
}

#[test]
fn a_call_outside_of_a_runtime_leaves_the_value_as_it_was() {
    let Two { main, client, .. } = Two::new();
    let (counter, ids) = (Counter::new(&client, path()), ids(&client));
    let lonely = catch_unwind(AssertUnwindSafe(|| counter.increment().now_or_never()));
    assert!(lonely.is_err(), "nothing could run its task");
    let lonely = catch_unwind(AssertUnwindSafe(|| ids.next().now_or_never()));
    assert!(lonely.is_err(), "nothing could run its task");
    main.block_on(async {
        let sum = timeout(LONG, counter.increment()).await.expect("it ends");
        assert_eq!(sum.expect("it is written").after, 1);
        let number = timeout(LONG, ids.next()).await.expect("it ends");
        assert_eq!(number.expect("there is one"), 1, "the counter has taken 0");
    });
}

#[test]
fn a_copy_is_stale_when_the_runtime_that_followed_it_has_ended() {
    let Two { main, second, client } = Two::new();
    let opened = second.block_on(SharedValue::open(&client, path(), &1_u64));
    let value = opened.expect("memory takes it");
    assert!(value.get().is_current());
    drop(second);
    assert!(!value.get().is_current(), "nothing follows it any more");
    main.block_on(async {
        let all = value.changes().collect::<Vec<_>>();
        let last = timeout(LONG, all).await.expect("there will be no other").pop();
        assert!(last.is_some_and(|last| last.value == 1 && !last.is_current()));
        let set = timeout(LONG, value.set(&2)).await.expect("it ends");
        set.expect("it is written");
        let stored = client.get_value::<u64>(&path()).await.expect("memory answers");
        assert_eq!(stored.expect("it is there").value, 2);
    });
}
