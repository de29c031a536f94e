//! A store that was restored from a backup, under a cache: its revisions and versions begin again
//! where the backup was made.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use synod_core::client::{Client, ClientOptions};
use synod_core::clock::{sleep, timeout};
use synod_core::error::Result;
use synod_core::path;
use synod_core::path::Path;
use synod_core::store::{Backend, Node, SessionOptions, Store};
use synod_mem::MemBackend;
use synod_recipes::cache::{Cache, CacheEvent};

/// Opens sessions on the current store.
#[derive(Clone, Debug)]
struct Restorable(Arc<Mutex<MemBackend>>);

impl Restorable {
    fn now(&self) -> MemBackend {
        self.0.lock().expect("it is not poisoned").clone()
    }
}

#[async_trait]
impl Backend for Restorable {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        self.now().open(options).await
    }
}

async fn client(backend: impl Backend) -> Client {
    Client::open(backend, ClientOptions::default()).await.expect("memory is there")
}

/// A store after this number of writes.
async fn written(times: u32) -> MemBackend {
    let store = MemBackend::new();
    let writer = client(store.clone()).await;
    for number in 0..times {
        writer.put(&path!("/tree/n"), number.to_string()).await.expect("it is written");
    }
    store
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let held = async {
        while !holds() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(60), held).await.unwrap_or_else(|_late| panic!("{what}"));
}

fn text(node: Option<Node>) -> Option<String> {
    node.map(|node| String::from_utf8_lossy(&node.data).into_owned())
}

#[tokio::test(start_paused = true)]
async fn a_cache_shows_what_a_restored_store_has() {
    let node: Path = path!("/tree/n");
    // The last one has as many writes as were lost, so that the revision is the same again.
    for (before, after) in [(20, 3), (20, 19), (20, 20)] {
        let backend = Restorable(Arc::new(Mutex::new(written(before).await)));
        let ann = client(backend.clone()).await;
        let cache = Cache::open(&ann, path!("/tree")).await.expect("it is complete");
        let mut events = Box::pin(cache.events());
        let last = text(cache.get(&node));
        assert_eq!(last, Some((before - 1).to_string()));
        while !matches!(events.next().await, Some(CacheEvent::Complete(_))) {}

        let restored = written(after - 1).await;
        let writer = client(restored.clone()).await;
        writer.put(&node, "restored").await.expect("it is written");
        let old = std::mem::replace(&mut *backend.0.lock().expect("no panic"), restored);
        old.expire(ann.session().await.expect("there is one").info().id);

        until("the cache has what the store has", || {
            cache.state().is_live() && text(cache.get(&node)).as_deref() == Some("restored")
        })
        .await;
        let begins_anew =
            async { while !matches!(events.next().await, Some(CacheEvent::Reset)) {} };
        timeout(Duration::from_secs(1), begins_anew).await.expect("readers begin anew");
        writer.put(&node, "newer").await.expect("it is written");
        until("it goes on", || text(cache.get(&node)).as_deref() == Some("newer")).await;
    }
}
