//! The laws of stores, kept by memory.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use synod_conformance::harness::{Ability, Harness, Link, Profile};
use synod_conformance::run::Suite;
use synod_core::store::{Backend, SessionId};
use synod_mem::{MemBackend, Weather};

#[derive(Debug, Default)]
struct Memory(MemBackend);

#[async_trait]
impl Harness for Memory {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.0.clone())
    }

    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(10), Duration::from_secs(60))
            .offers(&[Ability::Expiry, Ability::TtlNodes, Ability::Links, Ability::WatchCount])
            .lacks(Ability::Truth, "memory keeps no log")
    }

    async fn expire(&self, session: SessionId) {
        self.0.expire(session);
    }

    async fn link(&self, session: SessionId, link: Link) {
        self.0.set_weather(
            session,
            match link {
                Link::Cut => Weather::CUT,
                Link::Deaf => Weather::DEAF,
                Link::Slow { there, back } => Weather { there: Some(there), back: Some(back) },
                _ => Weather::CLEAR,
            },
        );
    }

    async fn watches(&self) -> usize {
        self.0.census().watches
    }
}

fn main() -> ExitCode {
    Suite::new(Memory::default).on_paused_time().main()
}
