//! The names of tickets, and how often they are reused: the server keeps every name until
//! compaction.

use std::collections::BTreeSet;
use std::time::Duration;

use synod_core::client::{Client, ClientOptions};
use synod_core::path::Path;
use synod_core::store::SessionOptions;
use synod_etcd::EtcdBackend;
use synod_recipes::lock::{Mutex, MutexGuard, inspect};

use crate::world::{World, path};

const TTL: Duration = Duration::from_secs(10);

/// The name of the only ticket, as other clients see it.
async fn name(client: &Client, lock: &Path) -> Path {
    let line = inspect(client, lock).await.expect("answered");
    assert_eq!(line.len(), 1, "{line:?}");
    line[0].path.clone()
}

pub(crate) async fn a_client_that_locks_again_uses_the_same_name() {
    let world = World::alone();
    let client = async || {
        let options = ClientOptions::default().session(SessionOptions::new(TTL));
        let backend = EtcdBackend::new(world.options()).expect("valid");
        Client::open(backend, options).await.expect("a server runs")
    };
    let (ann, bob) = (client().await, client().await);
    let lock = path("/named/lock");
    let lock_of = async |client: &Client| -> MutexGuard {
        Mutex::new(client, lock.clone()).lock().await.expect("answered")
    };

    let mut names = BTreeSet::new();
    let mut tokens = Vec::new();
    let mut again = [false; 2];
    // A name contains the second of its creation, so there is another name in the next.
    while again != [true; 2] {
        for (client, again) in [&ann, &bob].into_iter().zip(&mut again) {
            let guard = lock_of(client).await;
            *again |= !names.insert(name(client, &lock).await);
            tokens.push(guard.token());
            guard.release().await.expect("answered");
        }
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");

    // Code that knows the name may use it later.
    let told = lock_of(&ann).await;
    let earlier = told.path().clone();
    told.release().await.expect("answered");
    let later = lock_of(&ann).await;
    assert_ne!(name(&ann, &lock).await, earlier);
    later.release().await.expect("answered");
}
