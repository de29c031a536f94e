//! [`rows`]: the table of the recipes. A [`Row`] has what a test or a tool needs to know of a recipe to use it as any
//! other: how it is used, what it leaves in the store, and where it is tested and described. Each file has the rows of
//! one kind, the [laws] that are their promises, and which of them are [kept] in the cases that are the same for all.
//!
//! The cases that are the same for every recipe, the tests of metrics, of spans and of debug output, and the tests
//! that no recipe lacks a part read this table. Nothing else repeats it.

mod barrier;
mod crew;
pub(crate) mod edge;
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

pub use crate::recipe::edge::{Edge, Pass, Takes, Trap};
pub use crate::recipe::proof::Proof;
use crate::recipe::row::Kind;
pub use crate::recipe::row::{Leaves, Part, Row};
pub use crate::recipe::usage::{Act, Call, LABEL, Obstacle, Use};

/// The files of the table. No constant: whoever reads one builds all that it refers to, once more.
static KINDS: &[Kind] = &[
    lock::KIND,
    lead::KIND,
    value::KIND,
    barrier::KIND,
    transaction::KIND,
    mirror::KIND,
    keeper::KIND,
    partition::KIND,
    queue::KIND,
    crew::KIND,
];

/// Every recipe of `synod-recipes`.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    KINDS.iter().flat_map(|kind| kind.rows)
}

/// The laws that are promises of recipes, each an id and a sentence.
pub fn laws() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().flat_map(|kind| kind.laws).copied()
}

/// What recipes keep of their laws in the cases that are the same for all: the name of a case, and the ids of laws.
pub fn kept() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().flat_map(|kind| kind.kept).copied()
}
