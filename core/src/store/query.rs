//! Queries and their answers.

use crate::error::{Error, ErrorKind, Result};
use crate::path::Path;
use crate::store::node::{Node, Revision, Sequence};
use crate::store::progress::Progress;
use crate::store::watching::Kind;

/// A read of a node, of its children, or of a subtree.
///
/// # Examples
///
/// ```
/// use synod_core::store::Query;
///
/// # let dir = synod_core::path::Path::new("/q")?;
/// let whole = Query::children(dir.clone());
/// let names = Query::children(dir.clone()).names_only().local();
/// let last_two = Query::children(dir).newest(2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Query {
    /// The path at which the query starts.
    pub path: Path,
    /// Further nodes, in a query for [several](Query::nodes).
    pub more: Vec<Path>,
    /// The depth of the query.
    pub scope: Scope,
    /// The part of each node that is read.
    pub detail: Detail,
    /// The maximum age of the answer.
    pub freshness: Freshness,
    /// Only children whose name starts with this; empty for all.
    pub prefix: String,
    /// Only a part of the sequential children.
    pub window: Option<Window>,
    /// `true` if one event is enough for the observer.
    pub once: bool,
    /// `true` if the observer reads the paths of its events itself.
    pub hints: bool,
    /// The receiver of the store's progress reports.
    pub progress: Option<Progress>,
}

/// The depth of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every store must answer each of them")]
pub enum Scope {
    /// The node.
    Node,
    /// The children of the node, without the node.
    Children,
    /// The node and all nodes below it.
    Subtree,
}

/// The part of a node that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every store must answer each of them")]
pub enum Detail {
    /// Data and stat of every node.
    Data,
    /// Only names are required. A query for a node still returns the stat; a listing may.
    Names,
}

/// The maximum age of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every store must answer each of them")]
pub enum Freshness {
    /// Not older than the call.
    Latest,
    /// Not older than the state that this session has already seen.
    Local,
}

/// A part of the sequential children, sorted by sequence. Children without a sequence are excluded.
///
/// Create nothing below a sequential node that may have been deleted: a store may mistake the
/// container that results for the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every store must answer each of them")]
pub enum Window {
    /// The `count` children with the lowest sequences.
    Oldest {
        /// The maximum number of children.
        count: usize,
    },
    /// The `count` children with the highest sequences, all below `before` if that is given. In the
    /// follow-up query of a transaction that created a sequential child there, none above that
    /// child.
    Newest {
        /// The maximum number of children.
        count: usize,
        /// The exclusive upper limit of the sequences.
        before: Option<Sequence>,
    },
}

impl Query {
    /// The maximum number of nodes that a query can name.
    pub const MAX_NODES: usize = 100;

    /// Queries one node, with its data, in its latest state.
    pub fn node(path: impl Into<Path>) -> Self {
        Self::about(path.into(), Scope::Node)
    }

    /// Queries several nodes, with their data, as a consistent snapshot. The view has the nodes
    /// that exist, sorted by path. Such a query can be read, or be the follow-up query of a
    /// transaction; it cannot be observed.
    pub fn nodes(first: impl Into<Path>, more: impl IntoIterator<Item = Path>) -> Self {
        let mut all: Vec<Path> = std::iter::once(first.into()).chain(more).collect();
        all.sort();
        all.dedup();
        let first = all.remove(0);
        Self { more: all, ..Self::node(first) }
    }

    /// Queries the children of a node, with their data, in their latest state.
    pub fn children(path: impl Into<Path>) -> Self {
        Self::about(path.into(), Scope::Children)
    }

    /// Queries a node and all nodes below it, with their data, in their latest state.
    pub fn subtree(path: impl Into<Path>) -> Self {
        Self::about(path.into(), Scope::Subtree)
    }

    /// Queries whether a node exists; an observer is notified only of its deletion. The same as a
    /// query for a node with [`names_only`](Query::names_only) and [`once`](Query::once).
    pub fn until_gone(path: impl Into<Path>) -> Self {
        Self::node(path).names_only().once()
    }

    fn about(path: Path, scope: Scope) -> Self {
        let (detail, freshness) = (Detail::Data, Freshness::Latest);
        let (more, prefix, window) = (Vec::new(), String::new(), None);
        let (once, hints, progress) = (false, false, None);
        Self { path, more, scope, detail, freshness, prefix, window, once, hints, progress }
    }

    /// Requires only names.
    pub fn names_only(mut self) -> Self {
        self.detail = Detail::Names;
        self
    }

    /// Permits an answer that lags: see [`Freshness::Local`].
    pub fn local(mut self) -> Self {
        self.freshness = Freshness::Local;
        self
    }

    /// Restricts the query to children whose names start with `prefix`.
    pub fn starting_with(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Restricts the query to the `count` sequential children that were created first.
    pub fn oldest(mut self, count: usize) -> Self {
        self.window = Some(Window::Oldest { count });
        self
    }

    /// Restricts the query to the `count` sequential children that were created last.
    pub fn newest(mut self, count: usize) -> Self {
        self.window = Some(Window::Newest { count, before: None });
        self
    }

    /// Restricts the query to the `count` sequential children that were created last before
    /// `sequence`.
    pub fn newest_before(mut self, count: usize, sequence: Sequence) -> Self {
        self.window = Some(Window::Newest { count, before: Some(sequence) });
        self
    }

    /// Limits the observer of this node to one event: a store may end the watch with
    /// [`End::Delivered`](crate::store::End::Delivered) after the first event, or immediately if
    /// the view shows no node. This is cheaper on some stores. Together with
    /// [`names_only`](Query::names_only) it is [`Query::until_gone`].
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Declares that the observer itself reads the paths of its events. An event may then be about
    /// a container, and a path may be reported as created and deleted although a transaction only
    /// checked that it is absent. A read after the last event of a path shows its state. This is
    /// cheaper on some stores, which then need not request a new read of everything when a node is
    /// deleted soon after its creation.
    pub fn hints(mut self) -> Self {
        self.hints = true;
        self
    }

    /// Reports the progress of the store to `progress` while the query is read.
    pub fn progress(mut self, progress: &Progress) -> Self {
        self.progress = Some(progress.clone());
        self
    }

    /// For stores: reports the number of nodes read, and the number of nodes known to be left.
    pub fn report(&self, read: usize, left: usize) {
        if let Some(progress) = &self.progress {
            progress.report(read, left);
        }
    }

    /// Iterates over the path and the [further nodes](Query::more).
    pub fn nodes_asked(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.path).chain(&self.more)
    }

    /// Returns `true` if the observer is notified only of a deletion: see [`Query::until_gone`].
    pub fn is_until_gone(&self) -> bool {
        self.once && self.detail == Detail::Names
    }

    /// Returns `true` if the query covers a change of this kind at `path`: for stores that
    /// determine themselves which of their watches a change concerns. A window does not narrow it,
    /// a prefix does, and [`Detail::Names`] excludes writes of children.
    pub fn covers(&self, path: &Path, kind: Kind) -> bool {
        let own = self.nodes_asked().any(|queried| queried == path);
        match self.scope {
            Scope::Node => own && (kind == Kind::Deleted || !self.is_until_gone()),
            Scope::Children => {
                path.parent_str() == Some(self.path.as_str())
                    && path.name().starts_with(&self.prefix)
                    && (self.detail == Detail::Data || kind != Kind::Updated)
            }
            Scope::Subtree => own || path.is_below(&self.path),
        }
    }

    /// Rejects a query that no store can answer. Every store calls this before it sends anything.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for a prefix or a window with a scope other than children, for one
    /// event with a scope other than a node, and for further nodes with any of these;
    /// [`ErrorKind::TooLarge`] for more nodes than [`Query::MAX_NODES`].
    pub fn validate(&self) -> Result<()> {
        let narrowed = !self.prefix.is_empty() || self.window.is_some();
        if narrowed && self.scope != Scope::Children {
            return Err(Error::new(ErrorKind::Invalid, "query")
                .at(&self.path)
                .because("only a query for children can have a prefix or a window"));
        }
        if self.once && self.scope != Scope::Node {
            return Err(Error::new(ErrorKind::Invalid, "query")
                .at(&self.path)
                .because("only a query for a node can be observed for one event"));
        }
        if !self.more.is_empty() && (self.scope != Scope::Node || self.once) {
            return Err(Error::new(ErrorKind::Invalid, "query")
                .at(&self.path)
                .because("only a query for nodes can name several, and not for one event"));
        }
        if self.more.len() >= Self::MAX_NODES {
            return Err(Error::new(ErrorKind::TooLarge, "query")
                .at(&self.path)
                .because(format!("a query names at most {} nodes", Self::MAX_NODES)));
        }
        Ok(())
    }

    /// Rejects a query that no store can observe. Every store calls this before it sends anything.
    ///
    /// # Errors
    ///
    /// As [`Query::validate`], and [`ErrorKind::Invalid`] for a query of several nodes.
    pub fn validate_observed(&self) -> Result<()> {
        self.validate()?;
        if self.more.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Invalid, "query")
            .at(&self.path)
            .because("a query for several nodes cannot be observed"))
    }
}

/// The answer to a [`Query`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// The view reflects every commit up to this revision, and may reflect later ones.
    pub revision: Revision,
    /// The nodes: at most one for a query of one node; sorted by path, or by sequence if the query
    /// has a window.
    pub nodes: Vec<Node>,
}

impl View {
    /// Creates a view of `nodes`.
    pub fn new(revision: Revision, nodes: Vec<Node>) -> Self {
        Self { revision, nodes }
    }

    /// Returns the first node: the only one in the answer to a query of one node.
    pub fn node(&self) -> Option<&Node> {
        self.nodes.first()
    }

    /// Returns [`View::node`] by value.
    pub fn into_node(self) -> Option<Node> {
        self.nodes.into_iter().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn covers(query: &Query, changes: &[(&str, Kind, bool)]) {
        for (path, kind, expected) in changes {
            let path = Path::new(path).expect("valid");
            assert_eq!(query.covers(&path, *kind), *expected, "{kind:?} of {path} by {query:?}");
        }
    }

    #[test]
    fn a_query_covers_what_it_asks_for_and_nothing_else() {
        use Kind::{Created, Deleted, Updated};
        let dir = Path::new("/d").expect("valid");

        covers(
            &Query::node(&dir),
            &[("/d", Updated, true), ("/d/a", Created, false), ("/da", Created, false)],
        );
        covers(
            &Query::until_gone(&dir),
            &[("/d", Deleted, true), ("/d", Updated, false), ("/d", Created, false)],
        );
        covers(
            &Query::children(&dir).oldest(1),
            &[("/d/a", Updated, true), ("/d/a/b", Created, false), ("/d", Updated, false)],
        );
        covers(
            &Query::children(&dir).names_only().starting_with("a"),
            &[("/d/ab", Created, true), ("/d/ab", Updated, false), ("/d/b", Created, false)],
        );
        covers(
            &Query::subtree(&dir),
            &[("/d", Updated, true), ("/d/a/b", Deleted, true), ("/da/b", Created, false)],
        );
        covers(&Query::subtree(Path::root()), &[("/x", Created, true)]);
    }
}
