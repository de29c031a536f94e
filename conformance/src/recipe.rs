//! The promises of the recipes, checked on every store one by one, as the documentation of
//! `synod_recipes` gives them.

use crate::case::Case;

mod atomic_value;
mod barrier;
mod cache;
mod cache_edges;
mod cache_typed;
mod cohort_mutex;
mod compat_queue;
mod container;
mod count_down;
mod counter;
mod crew;
mod crew_crowd;
mod crew_edges;
mod crew_ends;
mod crew_guard;
mod crew_history;
mod crew_members;
mod crew_steps;
mod crew_stop;
mod crew_terms;
mod crew_waits;
mod discovery;
mod double_barrier;
mod double_barrier_members;
mod doubt;
mod election;
mod group;
mod guard;
mod handover;
mod hash_ring;
mod ids;
mod lead_loss;
mod leader_latch;
mod leader_selector;
mod lease;
mod lost_answer;
mod multi_lock;
mod mutex;
mod naming;
mod partition;
mod persistent_data;
mod persistent_node;
mod persistent_owners;
mod persistent_ttl;
mod promotion;
mod queue;
mod queue_batches;
mod queue_crowd;
mod queue_dead;
mod queue_doubt;
mod queue_edges;
mod queue_items;
mod queue_room;
mod queue_several;
mod queue_try;
mod queue_work;
mod reentrant_mutex;
mod rwlock;
mod schedule;
mod semaphore;
mod session_loss;
mod shared_count;
mod shared_value;
mod ticket;
mod transaction;
mod transaction_levels;
mod waiting;
mod watched;

pub(crate) use waiting::{Waiting, line, many};

pub(crate) const ALL: &[&[Case]] = &[
    mutex::CASES,
    naming::CASES,
    container::CASES,
    doubt::CASES,
    ticket::CASES,
    transaction::CASES,
    transaction_levels::CASES,
    session_loss::CASES,
    lost_answer::CASES,
    handover::CASES,
    guard::CASES,
    rwlock::CASES,
    semaphore::CASES,
    leader_latch::CASES,
    lead_loss::CASES,
    leader_selector::CASES,
    election::CASES,
    reentrant_mutex::CASES,
    multi_lock::CASES,
    cohort_mutex::CASES,
    counter::CASES,
    atomic_value::CASES,
    promotion::CASES,
    shared_value::CASES,
    shared_count::CASES,
    barrier::CASES,
    count_down::CASES,
    double_barrier::CASES,
    double_barrier_members::CASES,
    ids::CASES,
    lease::CASES,
    cache::CASES,
    cache_edges::CASES,
    cache_typed::CASES,
    watched::CASES,
    persistent_node::CASES,
    persistent_data::CASES,
    persistent_owners::CASES,
    persistent_ttl::CASES,
    group::CASES,
    hash_ring::CASES,
    partition::CASES,
    queue::CASES,
    compat_queue::CASES,
    queue_crowd::CASES,
    queue_batches::CASES,
    queue_dead::CASES,
    queue_doubt::CASES,
    queue_edges::CASES,
    queue_items::CASES,
    queue_room::CASES,
    queue_several::CASES,
    queue_try::CASES,
    queue_work::CASES,
    crew::CASES,
    crew_crowd::CASES,
    crew_edges::CASES,
    crew_ends::CASES,
    crew_guard::CASES,
    crew_history::CASES,
    crew_steps::CASES,
    crew_stop::CASES,
    crew_terms::CASES,
    crew_waits::CASES,
    schedule::CASES,
    discovery::CASES,
];
