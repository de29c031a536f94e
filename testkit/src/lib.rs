//! Tools that drive and disturb stores and clients in tests: of a backend, of a recipe, of a
//! program.
//!
//! | module | contents |
//! |---|---|
//! | [`fault`] | a layer that loses, delays, rejects and holds calls, by a seed or by a script |
//! | [`hesitant`] | a layer that pauses around every call, so that a call can be dropped at each of them |
//! | [`cancel`] | drops a future at each of its awaits |
//! | [`choice`] | decides which faults fire, by a seed, a record or a tape |
//! | [`history`], [`check`] | records of calls and answers, and checks whether a correct store could have given them |
//! | [`limit`] | a limit of real time for a test, and the last step that the test waited for |
//! | [`link`] | the state of the connection between a session and its server |
//!
//! With the feature `recipes`: `law`, every law in a sentence, and `recipe`, the table of the
//! recipes, with a row for each.

pub mod cancel;
pub mod check;
pub mod choice;
pub mod fault;
pub mod hesitant;
pub mod history;
pub mod limit;
pub mod link;
// It has no tests here, and takes as long to build as everything else.
#[cfg(all(feature = "recipes", not(test)))]
mod edges;
#[cfg(all(feature = "recipes", not(test)))]
pub mod law;
#[cfg(all(feature = "recipes", not(test)))]
pub mod recipe;

#[cfg(test)]
mod fake;
