//! Two clients that alternate at one lock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use synod_core::client::{Client, ClientOptions};
use synod_core::random::Random;
use synod_core::store::SessionOptions;
use synod_etcd::EtcdBackend;
use synod_recipes::lock::{Mutex as Lock, MutexGuard};
use tokio::time::{sleep, timeout};

use crate::judge::Judge;
use crate::world::{TTL, path};

/// All guards that one of them reports as held.
type Held = Arc<Mutex<Vec<Arc<MutexGuard>>>>;

/// Runs both of them until they have had their turns.
pub(crate) fn two(
    random: &Random,
    judge: &Judge,
    backends: [EtcdBackend; 2],
) -> impl Future<Output = ()> + use<> {
    let held = Held::default();
    let each = backends.into_iter().zip(0_u64..).map(|(backend, part)| {
        Locker { random: random.fork(part), judge: judge.clone(), held: held.clone() }.act(backend)
    });
    let both = join_all(each.collect::<Vec<_>>());
    async move {
        both.await;
    }
}

struct Locker {
    random: Random,
    judge: Judge,
    held: Held,
}

impl Locker {
    async fn act(self, backend: EtcdBackend) {
        let options =
            ClientOptions::default().session(SessionOptions::new(TTL)).random(self.random.fork(1));
        let Ok(Ok(client)) = timeout(TTL * 3, Client::open(backend, options)).await else { return };
        let lock = Lock::new(&client, path("/lock"));
        for _ in 0..3 {
            // A dropped call leaves nothing that delays the next one.
            let limit = Duration::from_millis(1 + self.random.below(20_000));
            if let Ok(Ok(guard)) = timeout(limit, lock.lock()).await {
                self.hold(guard).await;
            }
        }
        let _closed = timeout(TTL * 3, client.close()).await.is_ok();
    }

    async fn hold(&self, guard: MutexGuard) {
        let guard = Arc::new(guard);
        self.held().push(guard.clone());
        for _ in 0..4 {
            let holders = self.held().iter().filter(|guard| guard.is_held()).count();
            if holders > 1 {
                self.judge.breach(format!("{holders} hold the lock"));
            }
            if guard.is_held() {
                self.judge.saw("a lock that was held");
            }
            sleep(Duration::from_millis(self.random.below(1_500))).await;
        }
        self.held().retain(|other| !Arc::ptr_eq(other, &guard));
        if let Some(guard) = Arc::into_inner(guard) {
            let _released = timeout(TTL * 3, guard.release()).await.is_ok();
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Vec<Arc<MutexGuard>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
