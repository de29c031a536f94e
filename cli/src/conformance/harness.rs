//! The harnesses that the command has for stores.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use synod::mem::{MemBackend, Weather};
use synod::{Error, Lifetime, Path, Txn};
use synod_conformance::harness::{Ability, Harness, Link, Profile};
use synod_core::store::{Backend, Change, Feature, SessionId, SessionOptions, Store};
use tokio::runtime::Builder;

use crate::failure::Failure;

/// Any store, used through its `Store` trait only.
#[derive(Clone, Debug)]
pub(crate) struct AnyStore {
    backend: Arc<dyn Backend>,
    /// The reason why the store does not support nodes with a time to live, if it does not.
    no_ttl_nodes: Option<String>,
}

/// A store in memory, with all of its faults.
#[derive(Debug)]
pub(crate) struct Memory(MemBackend);

/// The sequence that is ten before the last one of the store in memory.
const NEAR_THE_END: u64 = i32::MAX as u64 - 10;

impl AnyStore {
    /// Queries the limits of the store. Must not be called within a runtime.
    ///
    /// # Errors
    ///
    /// If no session can be opened: no case could run.
    pub(crate) fn of(backend: Arc<dyn Backend>) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let no_ttl_nodes = runtime.block_on(async {
            let session = backend.open(&SessionOptions::default()).await?;
            let no_ttl_nodes = why_no_ttl_nodes(&*session).await;
            session.close().await?;
            Ok::<_, Error>(no_ttl_nodes)
        })?;
        Ok(Self { backend, no_ttl_nodes })
    }
}

/// The error with which a store refuses nodes with a time to live. It rejects them before it sends
/// anything.
async fn why_no_ttl_nodes(session: &dyn Store) -> Option<String> {
    if !session.session().limits.missing_features.contains(&Feature::TtlNodes) {
        return None;
    }
    let probe = Path::new("/synod-conformance/ttl").ok()?;
    let mortal = Lifetime::Ttl(Duration::from_secs(60));
    let refused = session.commit(Txn::new().create(probe, "", mortal)).await.err();
    let why = refused.as_ref().and_then(Error::detail);
    Some(why.unwrap_or("the store keeps no nodes with a time to live").to_owned())
}

impl Memory {
    pub(crate) fn new() -> Self {
        let backend = MemBackend::new();
        backend.keep_log();
        Self(backend)
    }
}

#[async_trait]
impl Harness for AnyStore {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    fn profile(&self) -> Profile {
        let profile = Profile::new(Duration::from_secs(4), Duration::from_secs(30))
            .offers(&[Ability::TtlNodes])
            .crowd(2_000);
        match &self.no_ttl_nodes {
            Some(why) => profile.lacks(Ability::TtlNodes, why.clone()),
            None => profile,
        }
    }
}

#[async_trait]
impl Harness for Memory {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.0.clone())
    }

    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(10), Duration::from_secs(60)).offers(Ability::ALL)
    }

    async fn expire(&self, session: SessionId) {
        self.0.expire(session);
    }

    async fn link(&self, session: SessionId, link: Link) {
        self.0.set_weather(session, weather(link));
    }

    async fn link_next(&self, link: Link) {
        self.0.set_next_weather(weather(link));
    }

    async fn watches(&self) -> usize {
        self.0.census().watches
    }

    async fn truth(&self) -> Vec<Change> {
        self.0.log()
    }

    async fn near_sequence_end(&self, dir: &Path) {
        self.0.skip_sequences(dir, NEAR_THE_END);
    }
}

fn weather(link: Link) -> Weather {
    match link {
        Link::Cut => Weather::CUT,
        Link::Deaf => Weather::DEAF,
        Link::Slow { there, back } => Weather { there: Some(there), back: Some(back) },
        _ => Weather::CLEAR,
    }
}
