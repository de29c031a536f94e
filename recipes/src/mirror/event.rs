//! [`CacheEvent`] and [`CacheState`]: the events and the states that a mirror shows to its readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use synod_core::clock::Instant;
use synod_core::error::Error;
use synod_core::path::Path;
use synod_core::store::{Node, Revision};

/// A change of a [`Cache`](crate::cache::Cache).
///
/// The events of a reader, applied in their order to an empty map, produce the content of the
/// cache: a node is created only where there is none, and updated or deleted only where there is
/// one.
#[derive(Clone, Debug)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a reader that forgets one of them has another content"
)]
pub enum CacheEvent {
    /// There is a node where there was none.
    Created(Node),
    /// A node was written, or was deleted and created again: then `created` differs in the stats.
    Updated {
        /// The node that the cache had before.
        before: Node,
        /// The node that it has now.
        node: Node,
    },
    /// The node was deleted. Has its last known state.
    Deleted(Node),
    /// The content is complete: it reflects the store at this revision, or later. Reported once
    /// after the start, and once after each [`CacheEvent::Stale`] and [`CacheEvent::Reset`].
    Complete(Revision),
    /// Changes may be missed from now on, until the content is complete again. The content is kept.
    Stale,
    /// The reader was too slow and missed events. It starts again with empty content, and gets all
    /// nodes of the cache as created.
    Reset,
}

impl CacheEvent {
    /// Applies the event to the nodes that the events before it produced.
    pub fn apply(self, nodes: &mut BTreeMap<Path, Node>) {
        match self {
            Self::Created(node) | Self::Updated { node, .. } => {
                let _last = nodes.insert(node.path.clone(), node);
            }
            Self::Deleted(node) => {
                let _last = nodes.remove(&node.path);
            }
            Self::Reset => nodes.clear(),
            Self::Complete(_) | Self::Stale => {}
        }
    }

    /// The number of bytes of data that it keeps in memory.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Created(node) | Self::Deleted(node) => node.data.len(),
            Self::Updated { before, node } => before.data.len() + node.data.len(),
            Self::Complete(_) | Self::Stale | Self::Reset => 0,
        }
    }
}

/// The state of a [`Cache`](crate::cache::Cache) compared with the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CacheState {
    /// The cache is not complete yet.
    Syncing,
    /// The cache is complete. Every later change will be reported, and this is the newest revision
    /// that it shows.
    Live(Revision),
    /// Changes since this time may be missing: the session is not certain, or is lost, or a read
    /// after missed events is in progress.
    Stale(Instant),
    /// The store rejects reads.
    Refused(Arc<Error>),
}

impl CacheState {
    /// Returns `true` if it is [`CacheState::Live`].
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }
}
