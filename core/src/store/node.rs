//! What a node is, and the numbers that a store orders things by.

use std::fmt;
use std::num::NonZeroU64;

use bytes::Bytes;

use crate::path::Path;

/// A node as a view or an event reports it.
///
/// A view that was asked for names only leaves `data` empty, and a store may then leave out
/// `stat` too. A container has neither, ever.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// Where it is.
    pub path: Path,
    /// What it holds.
    pub data: Bytes,
    /// Its place among the sequential nodes of its directory, in views of children only. A store
    /// may give one to other nodes too: filter by name.
    pub sequence: Option<Sequence>,
    /// Which incarnation and which version of the path this is.
    pub stat: Option<Stat>,
}

impl Node {
    /// A node with nothing known but its path.
    pub fn new(path: Path) -> Self {
        Self { path, data: Bytes::new(), sequence: None, stat: None }
    }

    /// Adds what it holds and what it is.
    pub fn with(mut self, data: Bytes, stat: Stat) -> Self {
        self.data = data;
        self.stat = Some(stat);
        self
    }

    /// Adds its stat alone.
    pub fn with_stat(mut self, stat: Stat) -> Self {
        self.stat = Some(stat);
        self
    }

    /// Adds its place among its siblings.
    pub fn with_sequence(mut self, sequence: Option<Sequence>) -> Self {
        self.sequence = sequence;
        self
    }
}

/// Which incarnation of a path, and which version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stat {
    /// When this incarnation was created: its identity, and a fencing token. Of all nodes that a
    /// path ever had, no two share it.
    pub created: Revision,
    /// When it was last written.
    pub modified: Revision,
    /// Which of its versions this is.
    pub version: Version,
    /// The session that it lives and dies with; `None` if it is not ephemeral.
    pub owner: Option<SessionId>,
}

impl Stat {
    /// A stat of its four facts.
    pub fn new(
        created: Revision,
        modified: Revision,
        version: Version,
        owner: Option<SessionId>,
    ) -> Self {
        Self { created, modified, version, owner }
    }
}

/// A moment in a store's history. Revisions order all commits of one store, and never repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// Before the first commit.
    pub const ZERO: Self = Self(0);

    /// A revision by the number that its store gave it.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Which version of one incarnation of a node. Only equality means anything, and only within one
/// incarnation: a node made again may start with the versions of the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(u64);

impl Version {
    /// A version by whatever number its store distinguishes versions by.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The store's number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The place of a sequential node among its siblings: a lower one was created earlier.
///
/// Only for nodes that live together: a directory that was empty may start again. A sequence is no
/// fencing token; [`Stat::created`] is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(
    // One more than the number: so a node without a sequence needs no memory to say so.
    NonZeroU64,
);

impl Sequence {
    /// A sequence by its number. No store has `u64::MAX`, which counts as the number before it.
    pub const fn new(number: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(number))
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get() - 1
    }
}

/// A session, as its store calls it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u64);

impl SessionId {
    /// A session by its store's number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
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
