//! [`ROWS`]: the table of the recipes. A [`Row`] has what a test or a tool needs to know of a recipe to use it as any
//! other: how it is used, what it leaves in the store, and where it is tested and described.
//!
//! The cases that are the same for every recipe, the tests of metrics, of spans and of debug output, and the tests
//! that no recipe lacks a part read this table. Nothing else repeats it.

mod barrier;
mod crew;
mod keeper;
mod lead;
mod lock;
mod mirror;
mod partition;
mod proof;
mod queue;
mod row;
mod transaction;
mod usage;
mod value;

pub use crate::recipe::proof::Proof;
pub use crate::recipe::row::{Leaves, Part, Row};
pub use crate::recipe::usage::{Act, Call, LABEL, Obstacle, Use};

/// Every recipe of `synod-recipes`.
pub const ROWS: &[Row] = &[
    lock::MUTEX,
    lock::RW_LOCK,
    lock::SEMAPHORE,
    lead::LEADER_LATCH,
    lead::LEADER_SELECTOR,
    lead::ELECTION,
    lock::REENTRANT_MUTEX,
    lock::PASSING_MUTEX,
    lock::UNFAIR_LOCK,
    lock::MULTI_LOCK,
    value::COUNTER,
    value::ATOMIC_VALUE,
    value::SHARED_VALUE,
    value::SHARED_COUNT,
    barrier::BARRIER,
    barrier::COUNT_DOWN,
    barrier::DOUBLE_BARRIER,
    value::IDS,
    transaction::TRANSACTION,
    mirror::CACHE,
    mirror::WATCHED,
    mirror::HASH_RING,
    keeper::PERSISTENT_NODE,
    keeper::GROUP,
    partition::PARTITION,
    queue::QUEUE,
    queue::FOREIGN_QUEUE,
    crew::CREW,
    keeper::DISCOVERY,
];
