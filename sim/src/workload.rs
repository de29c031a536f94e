//! [`Workload`]: the processes of a simulation, and the laws that they check.
//!
//! Each recipe adds its own here: what its processes do, and what must be true of it.

mod belief;
mod election;
mod grant;
mod kin;
mod latch;
mod multi;
mod mutex;
mod register;
mod revocable;
mod rwlock;
mod selector;
mod semaphore;
mod session;
mod stay;
mod ticket;
mod transfer;
mod watcher;

use synod_mem::cluster::Site;

use crate::setup::Sim;

/// What processes do, and what must be true of it.
pub trait Workload: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What the processes do, in a sentence.
    fn about(&self) -> &'static str;

    /// The ids of the laws that it checks.
    fn laws(&self) -> &'static [&'static str];

    /// The marks that must be reached in one history of a thousand, once there are 20,000;
    /// otherwise they test less than they seem to.
    fn marks(&self) -> &'static [&'static str];

    /// The faults that happen elsewhere and never here, because their sites are not reached. All
    /// others must happen in 20,000 seeds.
    fn unreached(&self) -> Vec<Site> {
        Vec::new()
    }

    /// Adds the processes and the checks to a simulation.
    fn prepare(&self, sim: Sim) -> Sim;
}

/// The faults that need a watch.
const WATCHED: &[Site] = &[
    Site::EventLate,
    Site::EventsJoined,
    Site::ResyncForNothing,
    Site::Compacted,
    Site::SmallBuffer,
    Site::EventAhead,
];

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
    &kin::REENTRANT,
    &kin::PASSING,
    &kin::UNFAIR,
    &revocable::Revocables,
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
    &Small(&kin::REENTRANT),
    &Small(&kin::PASSING),
    &Small(&kin::UNFAIR),
    &Small(&revocable::Revocables),
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
