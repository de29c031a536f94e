//! The state of a tree that [`judge`](super::judge) reads, [`Facts`].

use std::convert::Infallible;

use crate::path::Path;
use crate::store::node::Version;

/// The state of a tree against which a transaction is judged, before its first operation.
pub trait Facts {
    /// Returns the node at `path`. `None` for a container.
    fn node(&self, path: &Path) -> Option<Found>;

    /// Returns `true` if there is a node below `path`, at any depth, other than the nodes that are
    /// `gone`.
    fn occupied(&self, path: &Path, gone: &dyn Fn(&Path) -> bool) -> bool;
}

/// [`Facts`] that are read from a source that may fail, like a database: for
/// [`try_judge`](super::try_judge). All [`Facts`] are also `TryFacts`.
pub trait TryFacts {
    /// The error of the source.
    type Error;

    /// As [`Facts::node`].
    ///
    /// # Errors
    ///
    /// If the source fails.
    fn node(&self, path: &Path) -> Result<Option<Found>, Self::Error>;

    /// As [`Facts::occupied`].
    ///
    /// # Errors
    ///
    /// If the source fails.
    fn occupied(&self, path: &Path, gone: &dyn Fn(&Path) -> bool) -> Result<bool, Self::Error>;
}

impl<F: Facts> TryFacts for F {
    type Error = Infallible;

    fn node(&self, path: &Path) -> Result<Option<Found>, Infallible> {
        Ok(Facts::node(self, path))
    }

    fn occupied(&self, path: &Path, gone: &dyn Fn(&Path) -> bool) -> Result<bool, Infallible> {
        Ok(Facts::occupied(self, path, gone))
    }
}

/// The properties of an existing node that decide whether an operation succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "stores build it, and it is all there is to know")]
pub struct Found {
    /// The version of the node.
    pub version: Version,
    /// `true` if nothing may be created below the node: it is ephemeral, or has a TTL.
    pub leased: bool,
}
