//! [`Isolation`]: how transactions may interfere with each other.

/// How the transactions of several clients may interfere. The levels are those of etcd's package `concurrency`.
///
/// | level | one run sees | a commit needs |
/// |---|---|---|
/// | `SerializableSnapshot` | one moment | what was read is unchanged, and what is written was not written since |
/// | `Serializable` | one moment | what was read is unchanged |
/// | `RepeatableReads` | each node as it was when it was first read | what was read is unchanged |
/// | `ReadCommitted` | each node as it was when it was first read | nothing |
///
/// What is committed is serializable at the first three, as far as versions distinguish a node from the next one at its path:
/// [`Transaction`](crate::Transaction) has the exception on ZooKeeper under *Not promised*. They differ in what a run of the
/// function sees that is not committed: at the first two never a mixture of two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isolation {
    /// Each run sees the store as of one moment. A node that is written without being read must not have been written by
    /// another client since the first read; that it was deleted is not noticed.
    #[default]
    SerializableSnapshot,
    /// Each run sees the store as of one moment. A node that is written without being read is replaced, whatever it is.
    Serializable,
    /// A node that is read twice in one run is the same. Two nodes may be of two moments, of which either may lag; then
    /// the run is not committed.
    RepeatableReads,
    /// Every node that is read was committed at some time, and nothing is checked. Writes happen together.
    ReadCommitted,
}

impl Isolation {
    /// Whether all that one run sees is of one moment.
    pub(super) fn is_of_one_moment(self) -> bool {
        matches!(self, Self::SerializableSnapshot | Self::Serializable)
    }

    /// Whether what was read must be unchanged.
    pub(super) fn checks_reads(self) -> bool {
        self != Self::ReadCommitted
    }
}
