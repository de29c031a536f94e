//! [`NodesByPath`]: nodes, sorted by their paths.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use synod_core::store::Node;

/// Nodes, sorted by their paths. Each has its path once: a map would keep another one as its key.
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

    /// Adds a node, in place of the one that had its path.
    pub(super) fn put(&mut self, node: Node) {
        let _last = self.0.replace(ByPath(node));
    }

    pub(super) fn take(&mut self, path: &str) -> Option<Node> {
        self.0.take(path).map(|ByPath(node)| node)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().map(|ByPath(node)| node)
    }

    /// The first node from there on.
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
    /// Of what is sorted this makes a tree without gaps: put one by one, it would have twice the size.
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
