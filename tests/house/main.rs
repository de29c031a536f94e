//! The rules of this code that a compiler does not check.
//!
//! A rule is a function from a file to its offences. Each is first applied to a file that breaks it
//! and to a file that does not, so that a rule that no longer works fails too, and then to the
//! whole tree.

mod arrows;
mod circles;
mod crates;
mod edges;
mod limits;
mod links;
mod manners;
mod mistakes;
mod names;
mod promises;
mod recipes;
mod traps;
mod tree;
mod words;
