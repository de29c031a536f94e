//! A harness for a simulated store without faults.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use synod_conformance::harness::{Ability, Harness, Profile};
use synod_core::path::Path;
use synod_core::store::{Backend, Change, SessionId};
use synod_core::task::{self, Task};
use synod_sim::cluster::{Cluster, ClusterOptions, Personality};

/// A simulated store, with controls for tests.
#[derive(Debug)]
pub(crate) struct Simulated {
    cluster: Cluster,
    personality: Personality,
    /// Runs the store, from the first session on.
    life: Mutex<Option<Task>>,
}

impl Simulated {
    /// A store of this personality.
    pub(crate) fn new(personality: Personality) -> Self {
        let cluster = Cluster::new(ClusterOptions::new(personality));
        Self { cluster, personality, life: Mutex::new(None) }
    }
}

#[async_trait]
impl Harness for Simulated {
    fn backend(&self) -> Arc<dyn Backend> {
        let cluster = self.cluster.clone();
        let start = || task::spawn(async move { cluster.run().await });
        self.life
            .lock()
            .expect("no thread panics while it holds the lock")
            .get_or_insert_with(start);
        Arc::new(self.cluster.backend(1))
    }

    fn profile(&self) -> Profile {
        let offers = [Ability::Expiry, Ability::TtlNodes, Ability::WatchCount, Ability::Truth];
        let profile = Profile::new(Duration::from_secs(10), Duration::from_secs(60))
            .offers(&offers)
            .lacks(Ability::Links, "a simulation makes its own weather");
        match self.personality {
            Personality::Etcd => profile.lacks(Ability::SequenceEnd, "revisions have no end"),
            _ => profile.offers(&[Ability::SequenceEnd]),
        }
    }

    async fn expire(&self, session: SessionId) {
        self.cluster.expire(session);
    }

    async fn watches(&self) -> usize {
        self.cluster.census().watches
    }

    async fn truth(&self) -> Vec<Change> {
        self.cluster.log().into_iter().flat_map(|entry| entry.changes).collect()
    }

    async fn near_sequence_end(&self, dir: &Path) {
        self.cluster.skip_sequences(dir, NEAR_THE_END);
    }
}

/// Ten before the last sequence of ZooKeeper.
const NEAR_THE_END: u64 = i32::MAX as u64 - 10;
