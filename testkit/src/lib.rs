//! What drives and disturbs stores and clients in tests: of a backend, of a recipe, of a program.
//!
//! | module | what it does |
//! |---|---|
//! | [`fault`] | a layer that loses, delays, refuses and holds calls, by a seed or by a script |
//! | [`hesitant`] | a layer that pauses around every call, so that a call can be dropped at each of them |
//! | [`cancel`] | drops a future at each of its awaits |
//! | [`choice`] | decides what goes wrong, by a seed, a record or a tape |

pub mod cancel;
pub mod choice;
pub mod fault;
pub mod hesitant;

#[cfg(test)]
mod fake;
