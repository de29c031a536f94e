//! The workloads that come with the simulator.

use synod_mem::cluster::Site;

use crate::setup::Sim;
use crate::workload::{
    Workload, barrier, count_down, election, ids, latch, multi, mutex, mutex_variants, register,
    revocable, rwlock, selector, semaphore, session, shared, ticket, transaction, transfer, value,
    watcher,
};

/// Every workload that comes with the simulator.
pub const ALL: &[&dyn Workload] = &[
    &register::Registers,
    &ticket::Tickets { clients: 3, rounds: 3 },
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
    &shared::SharedValues,
    &barrier::Barriers,
    &count_down::CountDowns,
    &ids::Numbers,
    &transaction::Transactions,
];

/// Worlds of two processes that are so small that every place in them can be reached: see
/// [`sweep`](crate::sweep). In the first one, all combinations with a fault take seconds only.
pub const SMALL: &[&dyn Workload] = &[
    &ticket::Tickets { clients: 2, rounds: 1 },
    &Small(&mutex::Mutexes),
    &Small(&rwlock::RwLocks),
    &Small(&semaphore::Semaphores),
    &Small(&multi::MultiLocks),
    &Small(&latch::Latches),
    &Small(&selector::Selectors),
    &Small(&election::Elections),
    &Small(&mutex_variants::REENTRANT),
    &Small(&mutex_variants::PASSING),
    &Small(&mutex_variants::UNFAIR),
    &Small(&revocable::Revocables),
    &Small(&value::COUNTER),
    &Small(&value::ATOMIC),
    &Small(&shared::SharedValues),
    &Small(&barrier::Barriers),
    &Small(&count_down::CountDowns),
    &Small(&ids::Numbers),
    &Small(&transaction::Transactions),
];

/// A workload with two processes and one round.
struct Small(&'static dyn Workload);

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
