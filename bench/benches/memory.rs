//! The memory backend on one core, used through its `Store` trait: no client, no retries, no
//! layers.
//!
//! `cargo bench -p synod-bench --bench memory`. A whole run is one thread with one runtime, so
//! "items/s" are those of one core.

use std::time::Duration;

use divan::Bencher;
use divan::counter::ItemsCount;
use synod::Path;
use synod::mem::MemBackend;
use synod_core::store::{
    Backend as _, Event, Expect, Lifetime, Query, SessionOptions, Store, Txn, Watch,
};
use tokio::runtime::Runtime;

const ROUND: usize = 1_000;

fn main() {
    divan::main();
}

/// A runtime on this thread, a store, a session and a node.
struct Stage {
    runtime: Runtime,
    backend: MemBackend,
    store: Box<dyn Store>,
    node: Path,
}

impl Stage {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("a runtime");
        let backend = MemBackend::new();
        let options = SessionOptions::new(Duration::from_secs(3_600));
        let store = runtime.block_on(backend.open(&options)).expect("a session");
        let node = path("/bench/node");
        let stage = Self { runtime, backend, store, node: node.clone() };
        stage.commit(Txn::new().create(node, "0", Lifetime::Persistent));
        stage
    }

    fn commit(&self, txn: Txn) {
        let outcome = self.runtime.block_on(self.store.commit(txn)).expect("answered");
        outcome.required().expect("committed");
    }

    /// A thousand commits by one task that does nothing else.
    fn commits(&self, txn: impl Fn(usize) -> Txn) {
        self.runtime.block_on(async {
            for index in 0..ROUND {
                let outcome = self.store.commit(txn(index)).await.expect("answered");
                outcome.required().expect("committed");
            }
        });
    }

    fn watchers(&self, count: usize) -> Vec<Watch> {
        let observe = || self.runtime.block_on(self.store.watch(Query::node(&self.node)));
        (0..count).map(|_| observe().expect("answered").1).collect()
    }
}

fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

#[divan::bench]
fn set_one_node(bencher: Bencher) {
    let stage = Stage::new();
    bencher
        .counter(ItemsCount::new(ROUND))
        .bench_local(|| stage.commits(|_| Txn::new().set(&stage.node, "data", Expect::Any)));
}

#[divan::bench]
fn create_and_delete(bencher: Bencher) {
    let stage = Stage::new();
    let node = path("/bench/dir/other");
    bencher.counter(ItemsCount::new(ROUND)).bench_local(|| {
        stage.commits(|index| match index % 2 {
            0 => Txn::new().create(&node, "data", Lifetime::Session),
            _ => Txn::new().delete(&node, Expect::Any),
        });
    });
}

#[divan::bench(args = [0, 10_000])]
fn create_sequential_with_look(bencher: Bencher, waiting: usize) {
    let stage = Stage::new();
    let (ticket, dir) = (path("/bench/line/ticket-"), path("/bench/line"));
    for _ in 0..waiting {
        stage.commit(Txn::new().create_sequential(&ticket, "", Lifetime::Session));
    }
    bencher.counter(ItemsCount::new(ROUND)).bench_local(|| {
        stage.commits(|_| {
            Txn::new()
                .create_sequential(&ticket, "", Lifetime::Session)
                .look(Query::children(&dir).newest(2))
        });
    });
}

#[divan::bench]
fn read_one_node(bencher: Bencher) {
    let stage = Stage::new();
    bencher.counter(ItemsCount::new(ROUND)).bench_local(|| {
        stage.runtime.block_on(async {
            for _ in 0..ROUND {
                let view = stage.store.read(Query::node(&stage.node)).await.expect("answered");
                assert!(view.node().is_some(), "it was made");
            }
        });
    });
}

/// Changes of one node, each reported to every watcher; fails if one is missing.
#[divan::bench(args = [1, 1_000])]
fn change_with_watchers(bencher: Bencher, watchers: usize) {
    const CHANGES: usize = 20;
    let stage = Stage::new();
    let mut all = stage.watchers(watchers);
    assert_eq!(stage.backend.census().watches, watchers, "every watcher is known");
    bencher.counter(ItemsCount::new(CHANGES * watchers)).bench_local(|| {
        for _ in 0..CHANGES {
            stage.commit(Txn::new().set(&stage.node, "data", Expect::Any));
        }
        for watch in &mut all {
            let told = std::iter::from_fn(|| watch.try_next());
            let changes = told.filter(|event| matches!(event, Event::Changed(_))).count();
            assert_eq!(changes, CHANGES, "every watcher sees every change");
        }
    });
}
