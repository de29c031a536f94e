//! Known mistakes of stores, of the client and of recipes, under the simulator: with the feature
//! `mutants`. A simulation that never finds a mistake proves little.

#[cfg(feature = "mutants")]
mod active;
#[cfg(not(feature = "mutants"))]
mod inactive;
#[cfg(feature = "mutants")]
mod table;

#[cfg(feature = "mutants")]
pub use active::Known;
#[cfg(feature = "mutants")]
pub(crate) use active::run;
#[cfg(not(feature = "mutants"))]
pub(crate) use inactive::run;
#[cfg(feature = "mutants")]
pub use table::{NUMBERED, Row, TABLE};
