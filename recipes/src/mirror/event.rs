//! [`CacheEvent`] and [`CacheState`]: what readers of a mirror see of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use synod_core::clock::Instant;
use synod_core::error::Error;
use synod_core::path::Path;
use synod_core::store::{Node, Revision};

/// What changed in a [`Cache`](crate::Cache).
///
/// The events of a reader, applied in their order to an empty map, make the content of the cache: a node is created
/// only where there is none, and updated or deleted only where there is one.
#[derive(Clone, Debug)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a reader that forgets one of them has another content"
)]
pub enum CacheEvent {
    /// There is a node where there was none.
    Created(Node),
    /// A node was written. Or it was deleted and made again in the meantime: then `created` differs in the stats.
    Updated {
        /// What the cache had before.
        before: Node,
        /// What it has now.
        node: Node,
    },
    /// There is no node any more: this was the last.
    Deleted(Node),
    /// The content is complete: what the store had at this revision, or later. Once after the start, and once again after
    /// each [`CacheEvent::Stale`] and [`CacheEvent::Reset`].
    Complete(Revision),
    /// Changes may be missed from now on, until the content is complete again. The content stays.
    Stale,
    /// The reader has not taken so many events that it misses some: its content is empty again, and what the cache has
    /// follows as created.
    Reset,
}

impl CacheEvent {
    /// Applies it to the nodes that the events before it have made.
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

    /// How many bytes of data it keeps in memory.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Created(node) | Self::Deleted(node) => node.data.len(),
            Self::Updated { before, node } => before.data.len() + node.data.len(),
            Self::Complete(_) | Self::Stale | Self::Reset => 0,
        }
    }
}

/// How a [`Cache`](crate::Cache) compares with the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CacheState {
    /// It was not complete yet.
    Syncing,
    /// It is complete. Every later change will be reported, and this is the newest revision that it shows.
    Live(Revision),
    /// Since then changes may be missing, which the store cannot report: the session is not certain, or is lost, or
    /// what was missed is being read.
    Stale(Instant),
    /// The store refuses to be read.
    Refused(Arc<Error>),
}

impl CacheState {
    /// Whether it is [`CacheState::Live`].
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }
}
