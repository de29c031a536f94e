//! The promises of the recipes over every store: those of `synod_recipes`, sentence by
//! sentence.

use crate::case::Case;

mod atomic_value;
mod barrier;
mod container;
mod count_down;
mod counter;
mod doubt;
mod election;
mod guard;
mod handing;
mod ids;
mod latch;
mod leading;
mod losing;
mod multi;
mod mutex;
mod naming;
mod passing;
mod reentrant;
mod rwlock;
mod selector;
mod semaphore;
mod ticket;
mod waiting;

pub(crate) use waiting::{Waiting, line, many};

pub(crate) const ALL: &[&[Case]] = &[
    mutex::CASES,
    naming::CASES,
    container::CASES,
    doubt::CASES,
    ticket::CASES,
    losing::CASES,
    handing::CASES,
    guard::CASES,
    rwlock::CASES,
    semaphore::CASES,
    latch::CASES,
    leading::CASES,
    selector::CASES,
    election::CASES,
    reentrant::CASES,
    multi::CASES,
    passing::CASES,
    counter::CASES,
    atomic_value::CASES,
    barrier::CASES,
    count_down::CASES,
    ids::CASES,
];
