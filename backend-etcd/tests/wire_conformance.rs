//! The laws of stores, checked on the etcd backend with a cluster in memory.
//!
//! All of the backend's own code runs here as it does on real servers, under paused time.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use synod_conformance::harness::{Ability, Harness, Link, Profile};
use synod_conformance::run::Suite;
use synod_core::error::Error;
use synod_core::path::Path;
use synod_core::random::Random;
use synod_core::store::{Backend, Change, Kind, Revision, SessionId, SessionOptions, Store};

use crate::peer::Peer;
use crate::peer::network::Network;
use crate::peer::shared::Shared;

#[path = "wire/peer/mod.rs"]
#[expect(dead_code, reason = "the cases need no script")]
mod peer;

/// A cluster for one case. Every session has its own network.
#[derive(Clone, Debug)]
struct Scripted {
    peer: Arc<Peer>,
    links: Arc<Mutex<BTreeMap<SessionId, Network>>>,
    opened: Arc<AtomicU64>,
}

impl Scripted {
    fn of(members: usize) -> Self {
        Self { peer: Arc::new(Peer::new(members)), links: Arc::default(), opened: Arc::default() }
    }
}

#[async_trait]
impl Backend for Scripted {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>, Error> {
        let network = self.peer.network();
        let random = Random::seeded(self.opened.fetch_add(1, Ordering::Relaxed));
        let store = network.backend(self.peer.options(), random)?.open(options).await?;
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.insert(store.session().id, network);
        Ok(store)
    }
}

#[async_trait]
impl Harness for Scripted {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.clone())
    }

    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(10), Duration::from_secs(60))
            .crowd(5_000)
            .offers(Ability::ALL)
            .lacks(Ability::Openings, "a link exists only once its session does")
            .lacks(
                Ability::SequenceEnd,
                "a sequence is a revision of etcd, of which there are 2^63",
            )
    }

    async fn expire(&self, session: SessionId) {
        let lease = i64::from_ne_bytes(session.get().to_ne_bytes());
        self.peer.shared.state().end(lease).expect("it lives");
        self.peer.shared.moved();
    }

    async fn link(&self, session: SessionId, link: Link) {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links[&session].set(link);
    }

    async fn watches(&self) -> usize {
        Shared::count(&self.peer.shared.watches)
    }

    async fn truth(&self) -> Vec<Change> {
        let state = self.peer.shared.state();
        let all = state.keys.since(0, i64::MAX).iter().flat_map(|commit| &commit.events);
        let changes = all.map(|event| {
            let kv = event.kv.as_ref().expect("an event is of a key");
            let kind = match event.kind {
                1 => Kind::Deleted,
                _ if kv.version == 1 => Kind::Created,
                _ => Kind::Updated,
            };
            let at = u64::try_from(kv.mod_revision).expect("positive");
            Change::new(path(&kv.key), kind).at(Revision::new(at))
        });
        changes.collect()
    }
}

/// The path of the node that a key belongs to: `/a/b//c` is `/a/b/c`.
fn path(key: &[u8]) -> Path {
    let key = std::str::from_utf8(key).expect("only nodes are here");
    let (dir, name) = key.rsplit_once("//").expect("only nodes are here");
    Path::new(&format!("{dir}/{name}")).expect("only nodes are here")
}

fn main() -> ExitCode {
    let suite = |members| Suite::new(move || Scripted::of(members)).on_paused_time();
    Suite::main_of(vec![("one", suite(1)), ("three", suite(3))])
}
