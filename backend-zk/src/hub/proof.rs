//! [`Proof`]: what a created path turned out to be, when it was read after the event.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use synod_core::path::Path;
use synod_core::store::Node;

use crate::client::{Client, EventType, MultiReadResult, ZkError};
use crate::connection::Connection;
use crate::stat::{is_container, translate};

/// What a created path turned out to be.
#[derive(Clone, Debug)]
pub(super) enum Proof {
    Container,
    /// Nothing, or another node that took its place.
    Gone,
    /// The node as it was created; with `echo`, by two writes of one transaction.
    Node {
        node: Box<Node>,
        echo: bool,
    },
    /// A node, but perhaps not the one that was created.
    Unclear,
}

impl Proof {
    /// What the answer to a read of this path proves.
    fn of(path: Path, answer: MultiReadResult) -> Self {
        match answer {
            MultiReadResult::Data { data, stat } if is_container(&data, &stat) => Self::Container,
            MultiReadResult::Data { data, stat } if stat.mzxid == stat.czxid => {
                let node = Box::new(Node::new(path).with(data.into(), translate(&stat)));
                Self::Node { node, echo: stat.version > 0 }
            }
            MultiReadResult::Error { err: ZkError::NoNode } => Self::Gone,
            _ => Self::Unclear,
        }
    }

    /// The proof, given the events of the path that followed the one in question before the path
    /// was read.
    pub(super) fn weaken(&self, later: &[EventType]) -> Self {
        match (self, later) {
            // One transaction may have created, deleted and created it again to check that nothing
            // was there; or other clients did so. The two cases look alike, so the path is read
            // again.
            (Self::Node { .. } | Self::Unclear, [EventType::NodeDeleted, ..]) => Self::Gone,
            (Self::Node { echo: true, .. }, [EventType::NodeDataChanged]) => self.clone(),
            (Self::Node { .. }, [_, ..]) => Self::Unclear,
            _ => self.clone(),
        }
    }
}

/// How many paths are read at once.
const AT_ONCE: usize = 50;

/// Reads paths that were created.
pub(super) async fn prove(wire: &Connection, doubtful: &BTreeSet<Path>) -> BTreeMap<Path, Proof> {
    if doubtful.is_empty() {
        return BTreeMap::new();
    }
    let Ok(client) = wire.client("watch") else { return BTreeMap::new() };
    let all: Vec<&Path> = doubtful.iter().collect();
    let reads = all.chunks(AT_ONCE).map(|some| read(&client, some)).collect::<Vec<_>>();
    let proofs = join_all(reads).await.into_iter().flatten();
    all.into_iter().cloned().zip(proofs).collect()
}

/// Reads several paths by one request. What is not answered is unclear.
fn read(client: &Client, paths: &[&Path]) -> impl Future<Output = Vec<Proof>> {
    let unclear = vec![Proof::Unclear; paths.len()];
    let nodes: Vec<Path> = paths.iter().map(|path| (*path).clone()).collect();
    let mut reader = client.new_multi_reader();
    for path in paths {
        reader.add_get_data(path.as_str());
    }
    let asked = reader.commit();
    async move {
        match asked.await {
            Ok(answers) if answers.len() == nodes.len() => nodes
                .into_iter()
                .zip(answers)
                .map(|(path, answer)| Proof::of(path, answer))
                .collect(),
            _ => unclear,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_write_of_the_creating_transaction_changes_nothing() {
        use EventType::{NodeDataChanged, NodeDeleted};

        let node = |echo| Proof::Node { node: Box::new(Node::new(Path::root())), echo };
        let is_node = |proof: &Proof| matches!(proof, Proof::Node { .. });
        assert!(is_node(&node(false).weaken(&[])));
        assert!(is_node(&node(true).weaken(&[NodeDataChanged])), "its own");
        for later in [&[NodeDataChanged, NodeDataChanged][..], &[NodeDataChanged, NodeDeleted]] {
            assert!(matches!(node(true).weaken(later), Proof::Unclear), "{later:?}");
        }
        assert!(matches!(node(false).weaken(&[NodeDataChanged]), Proof::Unclear));
        assert!(matches!(node(true).weaken(&[NodeDeleted]), Proof::Gone));
    }
}
