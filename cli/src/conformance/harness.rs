//! How stores let themselves be tried from the command line.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use synod::Path;
use synod::mem::{MemBackend, Weather};
use synod::store::{Backend, Change, SessionId};
use synod_conformance::harness::{Ability, Harness, Link, Profile};

/// Any store, as it is: nothing is done to it but through its own floor.
#[derive(Debug)]
pub(crate) struct AnyStore(pub(crate) Arc<dyn Backend>);

/// A store in memory, and everything that can be done to it.
#[derive(Debug)]
pub(crate) struct Memory(MemBackend);

/// Ten before the last sequence of memory.
const NEAR_THE_END: u64 = i32::MAX as u64 - 10;

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
        self.0.clone()
    }

    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(4), Duration::from_secs(30))
            .offers(&[Ability::TtlNodes])
            .crowd(2_000)
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
        let weather = match link {
            Link::Cut => Weather::CUT,
            Link::Deaf => Weather::DEAF,
            Link::Slow { there, back } => Weather { there: Some(there), back: Some(back) },
            _ => Weather::CLEAR,
        };
        self.0.set_weather(session, weather);
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
