//! [`Workload`]: the processes of a simulation, and the laws that they check.
//!
//! # To add a workload
//!
//! 1. A file here with a type that is a [`Workload`], whose processes are async functions of a
//!    [`Process`](crate::Process), and a line in [`ALL`]. Start from `mutex.rs` for a guard,
//!    `barrier.rs` for a wait, or a variant of `value.rs` for a value.
//!    - Calls go through `me.perhaps(..)`, so that they are dropped at their awaits; loops count by
//!      `me.rounds(..)`; pauses are `me.rest(..)`, choices `me.pick(..)`.
//!    - Written values are unique, through a [`Ledger`](crate::Ledger).
//!    - The claim of a process to hold a lock is checked when it begins, against a log that all
//!      processes share; `me.wrong(law, ..)` reports a violation immediately. A lasting state is
//!      `me.during(..)`.
//!    - `me.falls_silent(..)` drops the heartbeats of a holder that constantly checks whether it
//!      holds.
//!    - `.check(law, ..)`, `me.born(..)` and `me.removed_by(..)` use the true history; checks of
//!      the final state come after `me.mended()`.
//!    - Exceptions are explicit and narrow: a session ended by an operator, a ticket removed by a
//!      stranger.
//! 2. [`Workload::marks`] lists the events that must happen, as reported by `me.sometimes(..)`;
//!    [`Workload::unreached`] lists the faults that cannot happen.
//! 3. Mistakes that it must find, each with a row in `sim/src/known/table.rs`. If a mistake needs
//!    more than 20,000 seeds, the workload is weak. `dev/corpus NAME` saves a history of each.
//! 4. Its small world, unless its [`Workload::has_small_world`] returns false.

mod barrier;
mod belief;
mod cache;
mod compat_queue;
mod count_down;
mod crew;
mod crew_short_terms;
mod crew_told;
mod crew_truth;
mod definition;
mod discovery;
mod double_barrier;
mod election;
mod grant;
mod group;
mod hash_ring;
mod holding;
mod ids;
mod items;
mod latch;
mod lease;
mod left;
mod linear;
mod multi;
mod mutex;
mod mutex_variants;
mod partition;
mod presence;
mod promotion;
mod queue;
mod queue_worker;
mod register;
mod revocable;
mod rwlock;
mod schedule;
mod selector;
mod semaphore;
mod session;
mod shared;
mod small_world;
mod ticket;
mod transaction;
mod transfer;
mod value;
mod watcher;

use definition::WATCHED;
pub use definition::Workload;
pub use small_world::Small;

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
    &lease::Leases,
    &transaction::Transactions,
    &cache::Caches,
    &presence::EPHEMERAL,
    &presence::LASTING,
    &group::Groups,
    &hash_ring::Rings,
    &partition::Partitions,
    &queue::Queues,
    &compat_queue::CompatQueues,
    &crew::Crews,
    &schedule::Schedules,
    &discovery::Discoveries,
];

/// The small worlds: those of all workloads that [have one](Workload::has_small_world).
pub fn small() -> impl Iterator<Item = Small> {
    ALL.iter().copied().filter(|workload| workload.has_small_world()).map(Small)
}

/// The workload with this name.
pub fn by_name(name: &str) -> Option<&'static dyn Workload> {
    ALL.iter().copied().find(|workload| workload.name() == name)
}
