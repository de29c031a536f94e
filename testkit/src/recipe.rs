//! The table of the recipes: [`rows`]. A [`Row`] has the facts about a recipe that tests and tools
//! need: its uses, the nodes that it leaves in the store, its tests and its page. Each file has the
//! rows of one kind, their [laws], and the laws that the common cases [check][kept].
//!
//! The common cases of all recipes, the tests of metrics, of spans and of debug output, and the
//! tests that no recipe lacks a part read this table. No other place repeats it.

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
mod schedule;
mod transaction;
mod usage;
mod value;

pub use crate::recipe::edge::{Edge, Pass, Takes, Trap};
pub use crate::recipe::proof::Proof;
use crate::recipe::row::Kind;
pub use crate::recipe::row::{Leaves, Part, Row};
pub use crate::recipe::usage::{Act, Call, LABEL, Obstacle, Use};

/// The files of the table. Not a constant: every user of a constant compiles its contents again.
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
    schedule::KIND,
];

/// Every recipe of `synod-recipes`.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    KINDS.iter().flat_map(|kind| kind.rows)
}

/// The laws that are promises of recipes, each an id and a sentence.
pub fn laws() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().flat_map(|kind| kind.laws).copied()
}

/// Returns the laws of recipes that the common cases check: the name of a case, and the ids of
/// laws.
pub fn kept() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().flat_map(|kind| kind.kept).copied()
}
