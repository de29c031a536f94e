//! [`Facts`]: what [`judge`](super::judge) needs to know of a tree.

use std::convert::Infallible;

use crate::path::Path;
use crate::store::node::Version;

/// The state of a tree that a transaction is judged against, before its first operation.
pub trait Facts {
    /// The node at `path`. A container is none.
    fn node(&self, path: &Path) -> Option<Found>;

    /// Whether there is a node below `path`, at any depth, other than those that are `gone`.
    fn occupied(&self, path: &Path, gone: &dyn Fn(&Path) -> bool) -> bool;
}

/// [`Facts`] that are asked of something that may fail, like a database: for
/// [`try_judge`](super::try_judge). Whatever has [`Facts`] has these.
pub trait TryFacts {
    /// Why a fact cannot be found out.
    type Error;

    /// As [`Facts::node`].
    ///
    /// # Errors
    ///
    /// If that cannot be found out.
    fn node(&self, path: &Path) -> Result<Option<Found>, Self::Error>;

    /// As [`Facts::occupied`].
    ///
    /// # Errors
    ///
    /// If that cannot be found out.
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

/// What matters of a node that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "stores build it, and it is all there is to know")]
pub struct Found {
    /// Its version.
    pub version: Version,
    /// Whether nothing may be created below it: it is ephemeral, or has a time to live.
    pub leased: bool,
}
