//! The laws of stores, kept by memory.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use synod_conformance::harness::{Ability, Harness, Link, Profile};
use synod_conformance::run::Suite;
use synod_core::path::Path;
use synod_core::store::{Backend, Change, SessionId};
use synod_mem::{MemBackend, Weather};

#[derive(Debug)]
struct Memory(MemBackend);

impl Memory {
    fn new() -> Self {
        let backend = MemBackend::new();
        backend.keep_log();
        Self(backend)
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

    async fn truth(&self) -> Vec<Change> {
        self.0.log()
    }

    async fn near_sequence_end(&self, dir: &Path) {
        self.0.skip_sequences(dir, NEAR_THE_END);
    }
}

/// Ten before the last sequence of memory, and of ZooKeeper.
const NEAR_THE_END: u64 = i32::MAX as u64 - 10;

fn main() -> ExitCode {
    Suite::new(Memory::new).on_paused_time().main()
}
