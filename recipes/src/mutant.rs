//! Known-wrong variants of the recipes, for testing the tests: see [`synod_core::mutant`], which
//! has their list.

#[cfg(feature = "mutants")]
pub(crate) mod line;
#[cfg(feature = "mutants")]
pub(crate) mod recipe;

pub(crate) use synod_core::mutant::mistake;
#[cfg(feature = "mutants")]
pub(crate) use synod_core::mutant::{Mutant, is};
