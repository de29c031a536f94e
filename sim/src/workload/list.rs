//! The workloads that come with the simulator.

use std::fmt;

use synod_mem::cluster::Site;

use crate::setup::Sim;
use crate::workload::{
    Workload, barrier, cache, count_down, crew, discovery, double_barrier, election, foreign_queue,
    group, hash_ring, ids, latch, multi, mutex, mutex_variants, partition, presence, queue,
    register, revocable, rwlock, selector, semaphore, session, shared, ticket, transaction,
    transfer, value, watcher,
};

/// Every workload that comes with the simulator.
pub const ALL: &[&dyn Workload] = &[
    &register::Registers,
    &ticket::Tickets,
    &watcher::Watchers,
    &session::Sessions,
    &transfer::Transfers,
    &mutex::Mutexes,
    &rwlock::RwLocks,
    &semaphore::Semaphores,
    &multi::MultiLocks,
    &latch::Latches,
    &selector::Selectors,
    &election::Elections,
    &mutex_variants::REENTRANT,
    &mutex_variants::PASSING,
    &mutex_variants::UNFAIR,
    &revocable::Revocables,
    &value::COUNTER,
    &value::ATOMIC,
    &value::PROMOTED,
    &shared::SharedValues,
    &barrier::Barriers,
    &count_down::CountDowns,
    &double_barrier::DoubleBarriers,
    &ids::Numbers,
    &transaction::Transactions,
    &cache::Caches,
    &presence::EPHEMERAL,
    &presence::LASTING,
    &group::Groups,
    &hash_ring::Rings,
    &partition::Partitions,
    &queue::Queues,
    &foreign_queue::ForeignQueues,
    &crew::Crews,
    &discovery::Discoveries,
];

/// The small worlds: those of all workloads that [have one](Workload::has_small_world).
pub fn small() -> impl Iterator<Item = Small> {
    ALL.iter().copied().filter(|workload| workload.has_small_world()).map(Small)
}

/// A workload with two processes and one round: so small that every place in it can be reached, see
/// [`sweep`](crate::sweep).
#[derive(Clone, Copy)]
pub struct Small(&'static dyn Workload);

impl fmt::Debug for Small {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Small").field(&self.0.name()).finish()
    }
}

impl Workload for Small {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn about(&self) -> &'static str {
        self.0.about()
    }

    fn laws(&self) -> &'static [&'static str] {
        self.0.laws()
    }

    fn marks(&self) -> &'static [&'static str] {
        self.0.marks()
    }

    fn unreached(&self) -> Vec<Site> {
        self.0.unreached()
    }

    fn prepare(&self, sim: Sim) -> Sim {
        self.0.prepare(sim).rounds(1).absent([3])
    }
}

/// The workload with this name.
pub fn by_name(name: &str) -> Option<&'static dyn Workload> {
    ALL.iter().copied().find(|workload| workload.name() == name)
}
