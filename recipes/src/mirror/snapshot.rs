//! [`Snapshot`]: the nodes of a mirror at one moment, and [`NodesByPath`], the sorted set that
//! holds them.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use synod_core::path::Path;
use synod_core::store::Node;

use crate::mirror::event::CacheState;

/// The character after `/`.
const AFTER_SLASH: char = '0';

/// The nodes of a [`Cache`](crate::cache::Cache) at one moment, with its state at that time. It
/// never changes.
///
/// A snapshot is cheap. If the cache changes while a snapshot exists, it copies its table of nodes
/// once.
#[derive(Clone)]
pub struct Snapshot {
    nodes: Arc<NodesByPath>,
    state: CacheState,
}

impl Snapshot {
    pub(super) fn new(nodes: Arc<NodesByPath>, state: CacheState) -> Self {
        Self { nodes, state }
    }

    /// The state of the cache compared with the store.
    pub fn state(&self) -> &CacheState {
        &self.state
    }

    /// The node at a path.
    pub fn get(&self, path: &Path) -> Option<&Node> {
        self.nodes.get(path.as_str())
    }

    /// The nodes directly below a path, sorted by path. A path without a node but with nodes below
    /// it is included, without a stat.
    pub fn children(&self, path: &Path) -> Vec<Node> {
        let prefix = if path.is_root() { "/".to_owned() } else { format!("{path}/") };
        let mut children: Vec<Node> = Vec::new();
        let mut next = self.nodes.first(Bound::Included(&prefix));
        while let Some(node) = next.filter(|node| node.path.as_str().starts_with(&prefix)) {
            let text = node.path.as_str();
            let Some(length) = text[prefix.len()..].find('/') else {
                children.push(node.clone());
                next = self.nodes.first(Bound::Excluded(text));
                continue;
            };
            let child = &text[..prefix.len() + length];
            if !self.nodes.has(child) {
                children.extend(Path::new(child).ok().map(Node::new));
            }
            // The nodes below a child are together, but need not follow the child: `/a-b` is
            // between `/a` and `/a/b`.
            next = self.nodes.first(Bound::Included(&format!("{child}{AFTER_SLASH}")));
        }
        children.sort_by(|a, b| a.path.cmp(&b.path));
        children
    }

    /// All nodes, sorted by path.
    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns `true` if there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns `true` only if both have the same nodes in the same versions, but not always then.
    pub(crate) fn has_same_nodes(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.nodes, &other.nodes)
    }

    /// The first node after one with this path.
    pub(super) fn following(&self, last: Option<&Path>) -> Option<&Node> {
        self.nodes.first(last.map_or(Bound::Unbounded, |last| Bound::Excluded(last.as_str())))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("nodes", &self.nodes.len())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Nodes, sorted by their paths. Each path is stored once: a map would store it again as its key.
#[derive(Clone, Debug, Default)]
pub(super) struct NodesByPath(BTreeSet<ByPath>);

/// A node that is compared by its path alone.
#[derive(Clone, Debug)]
struct ByPath(Node);

impl NodesByPath {
    pub(super) fn get(&self, path: &str) -> Option<&Node> {
        self.0.get(path).map(|ByPath(node)| node)
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.0.contains(path)
    }

    /// Adds a node, or replaces the node at its path.
    pub(super) fn put(&mut self, node: Node) {
        let _last = self.0.replace(ByPath(node));
    }

    pub(super) fn take(&mut self, path: &str) -> Option<Node> {
        self.0.take(path).map(|ByPath(node)| node)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().map(|ByPath(node)| node)
    }

    /// The first node from this bound on.
    pub(super) fn first(&self, from: Bound<&str>) -> Option<&Node> {
        self.0.range::<str, _>((from, Bound::Unbounded)).map(|ByPath(node)| node).next()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Node> for NodesByPath {
    /// Builds a tree without gaps from sorted nodes: with single inserts it would have twice the
    /// size.
    fn from_iter<I: IntoIterator<Item = Node>>(nodes: I) -> Self {
        Self(nodes.into_iter().map(ByPath).collect())
    }
}

impl Borrow<str> for ByPath {
    fn borrow(&self) -> &str {
        self.0.path.as_str()
    }
}

impl PartialEq for ByPath {
    fn eq(&self, other: &Self) -> bool {
        self.0.path == other.0.path
    }
}

impl Eq for ByPath {}

impl PartialOrd for ByPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByPath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.path.cmp(&other.0.path)
    }
}

#[cfg(test)]
mod tests {
    use synod_core::path;
    use synod_core::store::{Revision, Stat, Version};

    use super::*;

    fn snapshot(paths: &[&str]) -> Snapshot {
        let stat = Stat::new(Revision::ZERO, Revision::ZERO, Version::new(0), None);
        let paths = paths.iter().map(|path| Path::new(path).expect("valid"));
        let nodes = paths.map(|path| Node::new(path).with_stat(stat)).collect();
        Snapshot::new(Arc::new(nodes), CacheState::Syncing)
    }

    fn children(of: &Snapshot, path: &Path) -> Vec<String> {
        let shown = |node: Node| match node.stat {
            Some(_) => node.path.to_string(),
            None => format!("({})", node.path),
        };
        of.children(path).into_iter().map(shown).collect()
    }

    #[test]
    fn children_are_nodes_and_paths_with_nodes_below_them() {
        let paths = ["/a", "/a-b/x", "/a/b", "/a/b-c/x/y", "/a/b/c", "/a/b/d/e", "/a/f/g", "/ab"];
        let snapshot = snapshot(&paths);
        assert_eq!(children(&snapshot, &path!("/a")), ["/a/b", "(/a/b-c)", "(/a/f)"]);
        assert_eq!(children(&snapshot, &Path::root()), ["/a", "(/a-b)", "/ab"]);
        assert_eq!(children(&snapshot, &path!("/a/b")), ["/a/b/c", "(/a/b/d)"]);
        assert_eq!(children(&snapshot, &path!("/ab")), [""; 0]);
        assert_eq!(snapshot.iter().count(), snapshot.len());
    }

    #[test]
    fn nodes_follow_each_other_by_path() {
        let snapshot = snapshot(&["/a", "/b", "/c"]);
        let (mut last, mut seen) = (None, Vec::new());
        while let Some(node) = snapshot.following(last.as_ref()) {
            seen.push(node.path.to_string());
            last = Some(node.path.clone());
        }
        assert_eq!(seen, ["/a", "/b", "/c"]);
    }
}
