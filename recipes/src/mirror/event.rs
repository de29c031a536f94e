//! [`CacheEvent`] and [`CacheState`]: the events and the states that a mirror shows to its readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use synod_core::clock::Instant;
use synod_core::error::Error;
use synod_core::path::Path;
use synod_core::store::{Node, Revision};

/// A change of a [`Cache`](crate::cache::Cache).
///
/// The events of a reader, applied in their order to an empty map, make the content of the cache: a
/// node is created only where there is none, and updated or deleted only where there is one.
#[derive(Clone, Debug)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a reader that forgets one of them has another content"
)]
pub enum CacheEvent {
    /// There is a node where there was none.
    Created(Node),
    /// A node was written. Or it was deleted and created again in the meantime: then `created`
    /// differs in the stats.
    Updated {
        /// The node that the cache had before.
        before: Node,
        /// The node that it has now.
        node: Node,
    },
    /// There is no node any more: this was the last.
    Deleted(Node),
    /// The content is complete: the content of the store at this revision, or later. Once after the
    /// start, and once after each [`CacheEvent::Stale`] and [`CacheEvent::Reset`].
    Complete(Revision),
    /// Changes may be missed from now on, until the content is complete again. The content stays.
    Stale,
    /// The reader was so slow that it missed events: its content is empty again, and the nodes of
    /// the cache follow as created.
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
    /// The cache was not complete yet.
    Syncing,
    /// The cache is complete. Every later change will be reported, and this is the newest revision
    /// that it shows.
    Live(Revision),
    /// Changes may be missing since this time, which the store cannot report: the session is not
    /// certain, or is lost, or a read after missed events is in progress.
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
