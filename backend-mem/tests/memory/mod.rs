//! A harness for a store in memory.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use synod_conformance::harness::{Ability, Harness, Link, Profile};
use synod_core::path::Path;
use synod_core::store::{Backend, Change, SessionId};
use synod_mem::{MemBackend, Weather};

/// A store in memory, with all of its faults.
#[derive(Debug)]
pub(crate) struct Memory {
    store: MemBackend,
    shown: Arc<dyn Backend>,
    profile: Profile,
}

impl Memory {
    /// A store in memory inside the wrapper that `wrap` makes, at this pace.
    pub(crate) fn behind(
        profile: Profile,
        wrap: impl FnOnce(Arc<MemBackend>) -> Arc<dyn Backend>,
    ) -> Self {
        Self::of(MemBackend::new(), profile, wrap)
    }

    /// [`Memory::behind`] for this store.
    pub(crate) fn of(
        store: MemBackend,
        profile: Profile,
        wrap: impl FnOnce(Arc<MemBackend>) -> Arc<dyn Backend>,
    ) -> Self {
        store.keep_log();
        let shown = wrap(Arc::new(store.clone()));
        Self { store, shown, profile }
    }
}

#[async_trait]
impl Harness for Memory {
    fn backend(&self) -> Arc<dyn Backend> {
        self.shown.clone()
    }

    fn profile(&self) -> Profile {
        let all = self.profile.clone().offers(Ability::ALL);
        if self.store.is_minimal() {
            return all
                .lacks(Ability::TtlNodes, "the minimal store keeps none with a time to live");
        }
        all
    }

    async fn expire(&self, session: SessionId) {
        self.store.expire(session);
    }

    async fn link(&self, session: SessionId, link: Link) {
        self.store.set_weather(session, weather(link));
    }

    async fn link_next(&self, link: Link) {
        self.store.set_next_weather(weather(link));
    }

    async fn watches(&self) -> usize {
        self.store.census().watches
    }

    async fn truth(&self) -> Vec<Change> {
        self.store.log()
    }

    async fn near_sequence_end(&self, dir: &Path) {
        self.store.skip_sequences(dir, NEAR_THE_END);
    }
}

/// The pace of virtual time, where waiting costs nothing.
pub(crate) fn unhurried() -> Profile {
    Profile::new(Duration::from_secs(10), Duration::from_secs(60))
}

/// Ten before the last sequence of memory, and of ZooKeeper.
const NEAR_THE_END: u64 = i32::MAX as u64 - 10;

fn weather(link: Link) -> Weather {
    match link {
        Link::Cut => Weather::CUT,
        Link::Deaf => Weather::DEAF,
        Link::Slow { there, back } => Weather { there: Some(there), back: Some(back) },
        _ => Weather::CLEAR,
    }
}
