//! [`Extent`]: the nodes that a mirror contains.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use synod_core::path::Path;
use synod_core::store::{Kind, Node, Query};

/// The nodes that a [`Cache`](crate::cache::Cache) contains: one node, its children, or the node
/// and all nodes below it.
///
/// A depth and a filter reduce the content, but not the reads: the store still returns the whole
/// extent.
///
/// # Examples
///
/// ```
/// # use synod_core::path;
/// use synod_recipes::cache::Extent;
///
/// let all = Extent::subtree(path!("/services"));
/// let instances = Extent::subtree(path!("/services")).depth(2).names_only();
/// let drafts = Extent::children(path!("/pages")).filtered(|path| path.name().ends_with(".draft"));
/// ```
#[derive(Clone)]
pub struct Extent {
    /// The query that is sent to the store.
    query: Query,
    depth: Option<usize>,
    filter: Option<Filter>,
    /// The limit of bytes of data that are kept of a node.
    max_data: usize,
    /// True if a reported deletion is applied without a read.
    deletions_as_reported: bool,
    /// Names that are sufficient without a read of the node.
    by_name: Option<fn(&str) -> bool>,
}

type Filter = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

impl Extent {
    /// The node at `path`.
    pub fn node(path: impl Into<Path>) -> Self {
        Self::of(Query::node(path))
    }

    /// The children of the node at `path`, and not the node.
    pub fn children(path: impl Into<Path>) -> Self {
        Self::of(Query::children(path))
    }

    /// The node at `path` and all nodes below it.
    pub fn subtree(path: impl Into<Path>) -> Self {
        Self::of(Query::subtree(path))
    }

    fn of(query: Query) -> Self {
        Self {
            query,
            depth: None,
            filter: None,
            max_data: usize::MAX,
            deletions_as_reported: false,
            by_name: None,
        }
    }

    /// Narrows a subtree to the nodes that are at most this number of levels below its path.
    pub fn depth(mut self, levels: usize) -> Self {
        self.depth = Some(levels);
        self
    }

    /// Narrows the extent to nodes whose path passes. The filter is called again for each change,
    /// and must always return the same. It may read the cache, which shows its content before the
    /// change. A panic in the filter ends the cache, whose state then reports it.
    pub fn filtered(mut self, keep: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(match self.filter.take() {
            Some(first) => Arc::new(move |path| first(path) && keep(path)),
            None => Arc::new(keep),
        });
        self
    }

    /// Drops the data of the nodes: it is read, but not kept.
    pub fn names_only(self) -> Self {
        self.data_up_to(0)
    }

    /// Drops the data of nodes that have more than this number of bytes.
    pub(crate) fn data_up_to(mut self, bytes: usize) -> Self {
        self.max_data = bytes;
        self
    }

    /// Applies deletions as they are reported, without a read. Some stores do not report the
    /// revision of a deletion, so that each deletion would otherwise cost part of a read. If names
    /// are reused, the content may go back for a moment: a node that was created again and read
    /// before its events arrive is removed by the first event and added by the last.
    pub(crate) fn deletions_as_reported(mut self) -> Self {
        self.deletions_as_reported = true;
        self
    }

    /// Keeps a new node whose name passes `is_known` without reading it: it has no data and no
    /// stat, unless the store reports them. The path may also be a container, or a path whose
    /// absence a transaction checked.
    pub(crate) fn known_by_name(mut self, is_known: fn(&str) -> bool) -> Self {
        self.by_name = Some(is_known);
        self
    }

    /// Returns `true` if the event of its create is sufficient for the node at a path.
    pub(super) fn is_known_by_name(&self, path: &Path) -> bool {
        self.by_name.is_some_and(|is_known| is_known(path.name()))
    }

    pub(super) fn takes_deletions_as_reported(&self) -> bool {
        self.deletions_as_reported
    }

    pub(crate) fn path(&self) -> &Path {
        &self.query.path
    }

    /// The query that covers it. Names alone are not enough: a listing of names does not always
    /// show which of them are nodes. Hints are enough, because incomplete events cause reads.
    pub(super) fn query(&self) -> Query {
        self.query.clone().hints()
    }

    /// Returns `true` if a node at this path belongs to it.
    pub(super) fn has(&self, path: &Path) -> bool {
        let reached = self.query.covers(path, Kind::Updated);
        let near = self.depth.is_none_or(|levels| self.level(path) <= levels);
        reached && near && self.filter.as_ref().is_none_or(|keep| keep(path))
    }

    fn level(&self, path: &Path) -> usize {
        path.segments().count().saturating_sub(self.query.path.segments().count())
    }

    /// The node in the form in which it is kept. `None` if it is outside the extent, and for a
    /// container. Calls the filter.
    pub(super) fn kept(&self, node: Node) -> Option<Node> {
        if node.stat.is_none() || !self.has(&node.path) {
            return None;
        }
        self.narrowed(node)
    }

    /// A node in the extent, in the form in which it is kept. `None` for a container. Calls no code
    /// of the application.
    pub(super) fn narrowed(&self, mut node: Node) -> Option<Node> {
        node.stat?;
        if node.data.len() > self.max_data {
            node.data = Bytes::new();
        }
        // Views have a sequence, and events do not.
        node.sequence = None;
        Some(node)
    }
}

impl From<Path> for Extent {
    /// The subtree at the path.
    fn from(path: Path) -> Self {
        Self::subtree(path)
    }
}

impl From<&Path> for Extent {
    /// The subtree at the path.
    fn from(path: &Path) -> Self {
        Self::subtree(path)
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extent")
            .field("path", &self.query.path)
            .field("scope", &self.query.scope)
            .field("depth", &self.depth)
            .field("filtered", &self.filter.is_some())
            .field("data", &(self.max_data > 0))
            .field("deletions_as_reported", &self.deletions_as_reported)
            .field("by_name", &self.by_name.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use synod_core::path;
    use synod_core::store::{Revision, Stat, Version};

    use super::*;

    #[test]
    fn a_path_belongs_to_an_extent_by_its_position_its_depth_and_the_filter() {
        let dir = path!("/a");
        let at = |path: &str| Path::new(path).expect("valid");
        let has = |extent: &Extent| {
            let all = ["/a", "/a/b", "/a/b/c", "/ab", "/a/.d"];
            all.into_iter().filter(|path| extent.has(&at(path))).collect::<Vec<_>>()
        };
        assert_eq!(has(&Extent::node(&dir)), ["/a"]);
        assert_eq!(has(&Extent::children(&dir)), ["/a/b", "/a/.d"]);
        assert_eq!(has(&Extent::subtree(&dir)), ["/a", "/a/b", "/a/b/c", "/a/.d"]);
        assert_eq!(has(&Extent::subtree(&dir).depth(1)), ["/a", "/a/b", "/a/.d"]);
        assert_eq!(has(&Extent::subtree(Path::root()).depth(1)), ["/a", "/ab"]);
        let is_visible = |path: &Path| !path.name().starts_with('.');
        let few = Extent::from(&dir).filtered(is_visible).filtered(|path| path.name() != "a");
        assert_eq!(has(&few), ["/a/b", "/a/b/c"]);
    }

    #[test]
    fn a_node_is_kept_without_its_data_and_a_container_is_not() {
        let stat = Stat::new(Revision::new(1), Revision::new(2), Version::new(3), None);
        let node = Node::new(path!("/a/b")).with(Bytes::from_static(b"x"), stat);
        let dir = Extent::children(path!("/a"));
        assert_eq!(dir.kept(node.clone()), Some(node.clone()));
        let bare = dir.clone().names_only().kept(node).expect("it is one");
        assert!(bare.data.is_empty() && bare.stat == Some(stat));
        assert_eq!(dir.kept(Node::new(path!("/a/c"))), None, "a container");
    }
}
