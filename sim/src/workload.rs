//! [`Workload`]: something that processes do, and the laws that it checks.
//!
//! Each recipe puts its own here: what its processes do, and what must be so of it.

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

/// Something that processes do, and what must be so of it.
pub trait Workload: Sync {
    /// What it is called on the command line.
    fn name(&self) -> &'static str;

    /// What the processes do, in a sentence.
    fn about(&self) -> &'static str;

    /// The laws that it checks, by their ids.
    fn laws(&self) -> &'static [&'static str];

    /// What must happen in one history of a thousand, once there are 20,000, or they test less than they
    /// seem to: every mark that its processes speak of.
    fn marks(&self) -> &'static [&'static str];

    /// What can go wrong elsewhere and never does here, as nobody comes to where it is decided. All else
    /// must happen in 20,000 seeds.
    fn unreached(&self) -> Vec<Site> {
        Vec::new()
    }

    /// Puts the processes and the checks into a simulation.
    fn prepare(&self, sim: Sim) -> Sim;
}

/// What can only go wrong where somebody watches.
const WATCHED: &[Site] = &[
    Site::EventLate,
    Site::EventsJoined,
    Site::ResyncForNothing,
    Site::Compacted,
    Site::SmallBuffer,
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

/// Worlds of two processes that are so small that every place in them can be come to: see
/// [`sweep`](crate::sweep). In the first every way with a fault can be gone in seconds, too.
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

/// A workload in which two processes make one round.
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
