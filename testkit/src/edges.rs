//! The arguments of the recipes: a use for each function that takes an argument from its caller.
//! Each file has those of one kind of recipes, and the rows name them.

pub(crate) mod barrier;
pub(crate) mod crew;
pub(crate) mod discovery;
pub(crate) mod keeper;
pub(crate) mod lead;
pub(crate) mod lock;
pub(crate) mod mirror;
pub(crate) mod queue;
pub(crate) mod schedule;
pub(crate) mod transaction;
pub(crate) mod value;
