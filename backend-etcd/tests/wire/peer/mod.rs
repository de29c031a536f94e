//! [`Peer`]: an etcd cluster in memory that follows a script.
//!
//! It implements the protocol: HTTP/2, gRPC and etcd's messages, of which this crate declares those
//! that the backend needs. Below the script is a small correct cluster: several members with one
//! state, kept as etcd keeps it. Time is tokio's, so a test on paused time waits for nothing.

use std::sync::Arc;

use synod_core::random::Random;
use synod_core::task::{Task, spawn};
use synod_etcd::{EtcdBackend, EtcdOptions};

use self::network::Network;
use self::script::{Kind, Rule};
use self::shared::Shared;

pub(crate) mod answer;
mod frame;
pub(crate) mod keys;
mod leases;
pub(crate) mod message;
pub(crate) mod network;
pub(crate) mod random;
pub(crate) mod refusal;
mod request;
pub(crate) mod script;
mod serve;
pub(crate) mod shared;
mod shown;
pub(crate) mod state;
mod streams;
mod users;

/// A cluster.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) shared: Arc<Shared>,
    _expiring: Task,
}

impl Peer {
    /// A cluster of this many members, within a tokio runtime.
    pub(crate) fn new(members: usize) -> Self {
        let shared = Arc::new(Shared::new(members));
        let expiring = spawn(shared.clone().expire());
        Self { shared, _expiring: expiring }
    }

    pub(crate) fn hosts(&self) -> Vec<String> {
        let members = self.shared.members().len();
        (0..members).map(|member| format!("m{member}:2379")).collect()
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        EtcdOptions::new(self.hosts())
    }

    pub(crate) fn network(&self) -> Network {
        Network::new(self.shared.clone())
    }

    /// A new backend on its own network.
    pub(crate) fn backend(&self, seed: u64) -> EtcdBackend {
        let backend = self.network().backend(self.options(), Random::seeded(seed));
        backend.expect("the members are named well")
    }

    /// Adds a rule for a fault.
    pub(crate) fn script(&self, rule: Rule) {
        self.shared.script().add(rule);
    }

    /// The number of requests of a kind.
    pub(crate) fn met(&self, kind: Kind) -> usize {
        let script = self.shared.script();
        script.met.iter().find(|(met, _)| *met == kind).map_or(0, |(_, count)| *count)
    }
}
