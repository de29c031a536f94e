//! [`Proof`]: what a created path turned out to be, when it was read after the event.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use synod_core::path::Path;
use synod_core::store::Node;
use zookeeper_client::{Error as ZkError, EventType};

use crate::catch_panic::catch_panic;
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

/// Reads paths that were created.
pub(super) async fn prove(wire: &Connection, doubtful: &BTreeSet<Path>) -> BTreeMap<Path, Proof> {
    if doubtful.is_empty() {
        return BTreeMap::new();
    }
    let Ok(client) = wire.client("observe") else { return BTreeMap::new() };
    let reads = doubtful.iter().map(|path| catch_panic(client.get_data(path.as_str())));
    let answers = join_all(reads.collect::<Vec<_>>()).await;
    let proofs = doubtful.iter().zip(answers).map(|(path, answer)| {
        let proof = match answer {
            Ok((data, stat)) if is_container(&data, &stat) => Proof::Container,
            Ok((data, stat)) if stat.mzxid == stat.czxid => {
                let node = Node::new(path.clone());
                let node = Box::new(node.with(data.into(), translate(&stat)));
                Proof::Node { node, echo: stat.version > 0 }
            }
            Err(ZkError::NoNode) => Proof::Gone,
            _ => Proof::Unclear,
        };
        (path.clone(), proof)
    });
    proofs.collect()
}
