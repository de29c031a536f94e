//! The same programs on memory and on the scripted servers, compared.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use synod_conformance::differential::Comparison;
use synod_conformance::harness::{Ability, Harness, Profile};
use synod_core::store::{Backend, SessionId};
use synod_mem::MemBackend;

use crate::peer::Peer;
use crate::scene::{LONG, peer};

const PROGRAMS: usize = 50;

/// The outcome that is compared.
#[derive(Debug)]
enum Side {
    Memory(MemBackend),
    Servers(Peer),
}

#[async_trait]
impl Harness for Side {
    fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Self::Memory(memory) => Arc::new(memory.clone()),
            Self::Servers(peer) => Arc::new(peer.backend()),
        }
    }

    /// No program waits for a session to expire, and no session should expire on a busy machine.
    fn profile(&self) -> Profile {
        Profile::new(LONG, Duration::from_secs(10)).offers(&[Ability::Expiry, Ability::TtlNodes])
    }

    async fn expire(&self, session: SessionId) {
        match self {
            Self::Memory(memory) => memory.expire(session),
            Self::Servers(peer) => peer.expire(session),
        }
    }
}

pub(crate) async fn programs_do_the_same_as_on_memory() {
    let stores: [Arc<dyn Harness>; 2] =
        [Arc::new(Side::Memory(MemBackend::new())), Arc::new(Side::Servers(peer(3)))];
    let comparison = Comparison::new(&stores, 1).programs(PROGRAMS);
    let tally = comparison.from_environment().run().await.unwrap_or_else(|found| panic!("{found}"));
    // Programs that end early prove little.
    assert!(tally.whole > tally.part, "{tally}");
}
