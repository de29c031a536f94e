//! The arguments of the recipes: a use for each function that takes something from its caller. Each file has those of one
//! kind of recipes, and the rows name them.

pub(super) mod barrier;
pub(super) mod crew;
pub(super) mod discovery;
pub(super) mod keeper;
pub(super) mod lead;
pub(super) mod lock;
pub(super) mod mirror;
pub(super) mod queue;
pub(super) mod transaction;
pub(super) mod value;
