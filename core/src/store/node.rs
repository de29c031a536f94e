//! Nodes, and the numbers by which a store orders them.

use std::fmt;
use std::num::NonZeroU64;

use bytes::Bytes;

use crate::path::Path;

/// A node as a view or an event reports it.
///
/// A query for names only leaves `data` empty, and a store may then omit `stat` too. A container
/// never has either.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// The path of the node.
    pub path: Path,
    /// The data of the node.
    pub data: Bytes,
    /// The position among the sequential nodes of its directory, in views of children only. A store
    /// may give one to other nodes too: filter by name.
    pub sequence: Option<Sequence>,
    /// The incarnation and version of the node.
    pub stat: Option<Stat>,
}

impl Node {
    /// Creates a node that has only a path.
    pub fn new(path: Path) -> Self {
        Self { path, data: Bytes::new(), sequence: None, stat: None }
    }

    /// Adds the data and the stat.
    pub fn with(mut self, data: Bytes, stat: Stat) -> Self {
        self.data = data;
        self.stat = Some(stat);
        self
    }

    /// Adds the stat.
    pub fn with_stat(mut self, stat: Stat) -> Self {
        self.stat = Some(stat);
        self
    }

    /// Adds the position among the siblings.
    pub fn with_sequence(mut self, sequence: Option<Sequence>) -> Self {
        self.sequence = sequence;
        self
    }
}

/// An incarnation of a path and a version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stat {
    /// The revision at which this incarnation was created: its identity, and a fencing token. No
    /// two incarnations of a path share it.
    pub created: Revision,
    /// The revision of the last write.
    pub modified: Revision,
    /// The version of the data.
    pub version: Version,
    /// The session that owns the node, whose end removes it; `None` if the node is not ephemeral.
    pub owner: Option<SessionId>,
}

impl Stat {
    /// Creates a stat of the four values.
    pub fn new(
        created: Revision,
        modified: Revision,
        version: Version,
        owner: Option<SessionId>,
    ) -> Self {
        Self { created, modified, version, owner }
    }
}

/// A point in the history of a store. Revisions order all commits of one store, and never repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// The revision before the first commit.
    pub const ZERO: Self = Self(0);

    /// Creates a revision from the number of the store.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A version of one incarnation of a node. Versions can only be compared for equality, and only
/// within one incarnation: a node that is created again may start with the versions of the previous
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(u64);

impl Version {
    /// Creates a version from a number that distinguishes versions in the store.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of the store.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The position of a sequential node among its siblings: a lower one was created earlier.
///
/// Comparable only between nodes that exist at the same time: sequences may start again after a
/// directory was empty. A sequence is not a fencing token; [`Stat::created`] is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(
    // One more than the number, so that a node without a sequence takes no extra memory.
    NonZeroU64,
);

impl Sequence {
    /// Creates a sequence. `u64::MAX` is reserved and is replaced by `u64::MAX - 1`.
    pub const fn new(number: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(number))
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0.get() - 1
    }
}

/// The id of a session in its store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u64);

impl SessionId {
    /// Creates an id from the number of the store.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sequence").field(&self.get()).finish()
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.get(), f)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_is_its_number_and_needs_no_more_memory_if_there_is_none() {
        for number in [0, 1, 2_147_483_647, u64::MAX - 1] {
            let sequence = Sequence::new(number);
            assert_eq!(sequence.get(), number);
            assert_eq!(sequence.to_string(), number.to_string());
            assert_eq!(format!("{sequence:?}"), format!("Sequence({number})"));
            assert!(number == 0 || Sequence::new(number - 1) < sequence);
        }
        assert_eq!(size_of::<Option<Sequence>>(), size_of::<u64>());
    }
}
