//! [`Facts`]: what [`judge`](super::judge) needs to know of a tree.

use crate::path::Path;
use crate::store::node::Version;

/// The state of a tree that a transaction is judged against, before its first operation.
pub trait Facts {
    /// The node at `path`. A container is none.
    fn node(&self, path: &Path) -> Option<Found>;

    /// Whether there is a node below `path`, at any depth, other than those that are `gone`.
    fn occupied(&self, path: &Path, gone: &dyn Fn(&Path) -> bool) -> bool;
}

/// What matters of a node that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "stores build it, and it is all there is to know")]
pub struct Found {
    /// Its version.
    pub version: Version,
    /// Whether nothing may be created below it: it is ephemeral, or has a time to live.
    pub leased: bool,
}
