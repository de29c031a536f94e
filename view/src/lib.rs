//! Recognises what recipes keep in a store, and who holds, waits and works there: for operators of
//! systems that use this library, Curator, kazoo or etcd's packages.
//!
//! - [`survey`]: a [`Survey`](survey::Survey) of a subtree finds one [`Item`](item::Item) after the
//!   other. It only reads, and holds one directory at a time.
//! - [`item`]: an item is a recipe at a path with its current state.
//! - [`recognition`]: the pure part. It decides from the names of the nodes in a directory which
//!   recipe it belongs to, and how certain that is.
//! - [`trouble`]: what is wrong with an item, as a pure function of its state, the date and
//!   [`Thresholds`](trouble::Thresholds).
//! - [`walk`]: the nodes of a subtree one after the other.
//!
//! # Cost
//!
//! The directories of a subtree are read once, by names only. Data is read of nodes whose names are
//! recognised, and of one child of each other directory, to find out whether its nodes belong to
//! sessions.
//!
//! # Limits
//!
//! A recipe that keeps a value in a single node, such as a counter, has no name that would show it.
//! A recipe that nobody uses leaves no node or an empty directory: nobody can see that it is
//! missing.

pub mod item;
pub mod recognition;
pub mod survey;
pub mod trouble;
pub mod walk;
