//! The contract of stores in `synod_core::store`, sentence by sentence.

use crate::case::Case;

mod input;
mod keyvalue;
mod listing;
mod outage;
mod outcome;
mod random;
mod reading;
mod sequence;
mod session;
mod threads;
mod tree;
mod ttl;
mod txn;
mod watch;
mod watch_end;

pub(crate) const ALL: &[&[Case]] = &[
    keyvalue::CASES,
    tree::CASES,
    txn::CASES,
    reading::CASES,
    listing::CASES,
    sequence::CASES,
    watch::CASES,
    watch_end::CASES,
    session::CASES,
    threads::CASES,
    ttl::CASES,
    outcome::CASES,
    outage::CASES,
    input::CASES,
    random::CASES,
];
