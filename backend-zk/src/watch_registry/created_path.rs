//! [`CreatedPath`]: the state of a created path, read after the event.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use synod_core::path::Path;
use synod_core::store::Node;

use crate::client::{Client, EventType, MultiReadResult, ZkError};
use crate::connection::Connection;
use crate::containers::{is_container, translate};

/// The state of a created path, read after the event.
#[derive(Clone, Debug)]
pub(super) enum CreatedPath {
    Container,
    /// Nothing, or another node in its place.
    Gone,
    /// The node as it was created. `duplicate`: by two writes of one transaction, so a second event
    /// follows.
    Node {
        node: Box<Node>,
        duplicate: bool,
    },
    /// A node that may not be the created one.
    Unclear,
}

impl CreatedPath {
    /// Interprets the response to a read of this path.
    fn of(path: Path, answer: MultiReadResult) -> Self {
        match answer {
            MultiReadResult::Data { data, stat } if is_container(&data, &stat) => Self::Container,
            MultiReadResult::Data { data, stat } if stat.mzxid == stat.czxid => {
                let node = Box::new(Node::new(path).with(data.into(), translate(&stat)));
                Self::Node { node, duplicate: stat.version > 0 }
            }
            MultiReadResult::Error { err: ZkError::NoNode } => Self::Gone,
            _ => Self::Unclear,
        }
    }

    /// The state, given the later events of the path that arrived before the path was read.
    pub(super) fn after(&self, later: &[EventType]) -> Self {
        match (self, later) {
            // One transaction may have created, deleted and created it again to check its absence,
            // or other clients may have done that. The two cases look alike, so the path is read
            // again.
            (Self::Node { .. } | Self::Unclear, [EventType::NodeDeleted, ..]) => Self::Gone,
            (Self::Node { duplicate: true, .. }, [EventType::NodeDataChanged]) => self.clone(),
            (Self::Node { .. }, [_, ..]) => Self::Unclear,
            _ => self.clone(),
        }
    }
}

/// The maximum number of paths per request.
const MAX_PATHS: usize = 50;

/// Reads paths that were created.
pub(super) async fn read_created(
    connection: &Connection,
    unverified: &BTreeSet<Path>,
) -> BTreeMap<Path, CreatedPath> {
    if unverified.is_empty() {
        return BTreeMap::new();
    }
    let Ok(client) = connection.client("watch") else { return BTreeMap::new() };
    let all: Vec<&Path> = unverified.iter().collect();
    let reads = all.chunks(MAX_PATHS).map(|some| read(&client, some)).collect::<Vec<_>>();
    let states = join_all(reads).await.into_iter().flatten();
    all.into_iter().cloned().zip(states).collect()
}

/// Reads several paths by one request. A path without an answer is unclear.
fn read(client: &Client, paths: &[&Path]) -> impl Future<Output = Vec<CreatedPath>> {
    let unclear = vec![CreatedPath::Unclear; paths.len()];
    let nodes: Vec<Path> = paths.iter().map(|path| (*path).clone()).collect();
    let mut reader = client.new_multi_reader();
    for path in paths {
        reader.add_get_data(path.as_str());
    }
    let request = reader.commit();
    async move {
        match request.await {
            Ok(responses) if responses.len() == nodes.len() => nodes
                .into_iter()
                .zip(responses)
                .map(|(path, answer)| CreatedPath::of(path, answer))
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

        let node =
            |duplicate| CreatedPath::Node { node: Box::new(Node::new(Path::root())), duplicate };
        let is_node = |state: &CreatedPath| matches!(state, CreatedPath::Node { .. });
        assert!(is_node(&node(false).after(&[])));
        assert!(is_node(&node(true).after(&[NodeDataChanged])), "its own");
        for later in [&[NodeDataChanged, NodeDataChanged][..], &[NodeDataChanged, NodeDeleted]] {
            assert!(matches!(node(true).after(later), CreatedPath::Unclear), "{later:?}");
        }
        assert!(matches!(node(false).after(&[NodeDataChanged]), CreatedPath::Unclear));
        assert!(matches!(node(true).after(&[NodeDeleted]), CreatedPath::Gone));
    }
}
