//! Differential tests find differences: memory compared with memory in a wrapper that makes one
//! mistake.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use synod_conformance::differential::{Comparison, Found, Tally};
use synod_conformance::harness::{Ability, Harness, Profile};
use synod_conformance::wrong::{Mistake, Wrong};
use synod_core::store::{Backend, SessionId};
use synod_mem::MemBackend;

/// Mistakes that show without concurrency and with intact links.
const SHOWN: &[Mistake] = &[
    Mistake::EmptyIsAbsent,
    Mistake::CreateOverwrites,
    Mistake::CasIgnoresVersion,
    Mistake::DeleteIgnoresVersion,
    Mistake::CheckIgnoresVersion,
    Mistake::SetCreates,
    Mistake::DeleteOfMissingSucceeds,
    Mistake::VersionStays,
    Mistake::WriteMovesCreated,
    Mistake::StatOfBefore,
    Mistake::NoImplicitParents,
    Mistake::ListingLeavesOutContainers,
    Mistake::ParentGoesWithLastChild,
    Mistake::DeleteIgnoresChildren,
    Mistake::EphemeralMayHaveChildren,
    Mistake::EphemeralMayHaveGrandchildren,
    Mistake::AppliesOneByOne,
    Mistake::AppliesHalf,
    Mistake::RejectedNamesLast,
    Mistake::WatchMissesDelete,
    Mistake::WatchFiresOnce,
    Mistake::EventTwice,
    Mistake::SpuriousChange,
];

#[derive(Debug)]
struct Memory {
    memory: MemBackend,
    wrong: Wrong,
}

impl Memory {
    fn making(mistake: Option<Mistake>) -> Arc<dyn Harness> {
        let memory = MemBackend::default();
        let inner = Arc::new(memory.clone());
        let wrong = match mistake {
            Some(mistake) => Wrong::new(inner, mistake),
            None => Wrong::transparent(inner),
        };
        Arc::new(Self { memory, wrong })
    }
}

#[async_trait]
impl Harness for Memory {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.wrong.clone())
    }

    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(10), Duration::from_secs(60))
            .offers(&[Ability::Expiry, Ability::TtlNodes])
    }

    async fn expire(&self, session: SessionId) {
        self.memory.expire(session);
    }
}

async fn compared(mistake: Option<Mistake>) -> Result<Tally, Box<Found>> {
    let stores = [Memory::making(None), Memory::making(mistake)];
    Comparison::new(&stores, 0x5EED).programs(400).run().await
}

#[tokio::test(start_paused = true)]
async fn stores_without_a_mistake_do_the_same() {
    let tally = compared(None).await.unwrap_or_else(|found| panic!("{found}"));
    assert!(tally.whole > tally.part, "{tally}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_makes_a_mistake_is_found_and_so_is_a_short_program() {
    let mut missed = Vec::new();
    for mistake in SHOWN {
        match compared(Some(*mistake)).await {
            Ok(_) => missed.push(*mistake),
            Err(found) => println!("{mistake:?}: {found}\n"),
        }
    }
    assert_eq!(missed, [], "not found");
}
