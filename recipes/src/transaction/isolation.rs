//! [`Isolation`]: the isolation levels of transactions.

/// The isolation level of transactions. The levels are those of etcd's package `concurrency`.
///
/// | level | one run sees | a commit needs |
/// |---|---|---|
/// | `SerializableSnapshot` | one snapshot | the nodes that were read are unchanged, and those that are written were not written since |
/// | `Serializable` | one snapshot | the nodes that were read are unchanged |
/// | `RepeatableReads` | each node as it was when it was first read | the nodes that were read are unchanged |
/// | `ReadCommitted` | each node as it was when it was first read | nothing |
///
/// Commits are serializable at the first three levels, as far as versions distinguish a node from
/// the next one at its path: [`Transaction`](crate::transaction::Transaction) describes the
/// exception on ZooKeeper. The levels differ in the nodes that an uncommitted run sees: at the
/// first two, always one snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isolation {
    /// Each run sees one consistent snapshot of the store. A node that is written without being
    /// read must not have been written by another client since the first read; a delete of the node
    /// is not noticed.
    #[default]
    SerializableSnapshot,
    /// Each run sees one consistent snapshot of the store. A node that is written without being
    /// read is replaced, whatever its version is.
    Serializable,
    /// A node that is read twice in one run is the same. Two nodes may belong to different
    /// snapshots, and each may lag; such a run is not committed.
    RepeatableReads,
    /// Every node that is read was committed at some time, and nothing is checked. The writes of a
    /// run are applied together.
    ReadCommitted,
}

impl Isolation {
    /// Returns `true` if a run sees one consistent snapshot.
    pub(super) fn has_snapshot(self) -> bool {
        matches!(self, Self::SerializableSnapshot | Self::Serializable)
    }

    /// Returns `true` if a commit requires that the nodes that were read are unchanged.
    pub(super) fn checks_reads(self) -> bool {
        self != Self::ReadCommitted
    }
}
