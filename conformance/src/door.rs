//! The promises of the client over every store: the promises in the documentation of
//! `synod_core::client` and `synod_core::session`, one by one.
//!
//! Faults are injected between the client and the store under test, so that they are the same over
//! each store: a script of faults, a pause at every call, or a [`Gate`](gate::Gate).

use crate::case::Case;

mod client;
mod closing;
mod dropped;
mod exactly_once;
mod following;
pub(crate) mod gate;
mod generation;
mod handover;
mod limit;
mod namespace;
mod put;
mod recursive;
mod removal;
mod ticket;
mod value;
mod watch;
mod write;

pub(crate) use client::{answer, done, failure};

pub(crate) const ALL: &[&[Case]] = &[
    ticket::CASES,
    write::CASES,
    dropped::CASES,
    removal::CASES,
    limit::CASES,
    generation::CASES,
    watch::CASES,
    closing::CASES,
    handover::CASES,
    namespace::CASES,
    put::CASES,
    exactly_once::CASES,
    recursive::CASES,
    following::CASES,
    value::CASES,
];
