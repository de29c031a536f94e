//! What a read asks, and what it answers.

use crate::error::{Error, ErrorKind, Result};
use crate::path::Path;
use crate::store::node::{Node, Revision, Sequence};
use crate::store::progress::Progress;
use crate::store::watching::Kind;

/// A question to a store.
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
    /// Where to look.
    pub path: Path,
    /// More nodes, in a query about [several](Query::nodes).
    pub more: Vec<Path>,
    /// How far below the path to look.
    pub scope: Scope,
    /// Whether data is wanted.
    pub detail: Detail,
    /// How old the answer may be.
    pub freshness: Freshness,
    /// Only children whose name starts so; empty for all.
    pub prefix: String,
    /// Only some of the sequential children.
    pub window: Option<Window>,
    /// Whether one event is enough for the observer.
    pub once: bool,
    /// Whether the observer finds out by itself what became of the paths in its events.
    pub hints: bool,
    /// Where the store reports how far it is with the view.
    pub progress: Option<Progress>,
}

/// How far below its path a query looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every store must answer each of them")]
pub enum Scope {
    /// The node itself.
    Node,
    /// Its children, not the node.
    Children,
    /// The node and all below it.
    Subtree,
}

/// Whether data is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every store must answer each of them")]
pub enum Detail {
    /// Data and stat of every node.
    Data,
    /// Names are enough. A node query still returns the stat; a listing may.
    Names,
}

/// How old an answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every store must answer each of them")]
pub enum Freshness {
    /// Not older than the call.
    Latest,
    /// Not older than what this session already knows.
    Local,
}

/// A part of the sequential children, sorted by sequence. Children without a sequence are not in it.
///
/// Create nothing below a sequential node that may be gone: a store may take the container that comes
/// of it for the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every store must answer each of them")]
pub enum Window {
    /// The `count` with the lowest sequences.
    Oldest {
        /// How many at most.
        count: usize,
    },
    /// The `count` with the highest sequences, all below `before` if that is given. In the look of
    /// a transaction that made a sequential child there, none above that child.
    Newest {
        /// How many at most.
        count: usize,
        /// Only sequences below this one.
        before: Option<Sequence>,
    },
}

impl Query {
    /// About how many nodes a query may be.
    pub const MAX_NODES: usize = 100;

    /// About one node, with its data, as it is now.
    pub fn node(path: impl Into<Path>) -> Self {
        Self::about(path.into(), Scope::Node)
    }

    /// About several nodes, with their data, all as of one moment. The view has those that exist, sorted by path. Such
    /// a query is read, or the look of a transaction; it is not observed.
    pub fn nodes(first: impl Into<Path>, more: impl IntoIterator<Item = Path>) -> Self {
        let mut all: Vec<Path> = std::iter::once(first.into()).chain(more).collect();
        all.sort();
        all.dedup();
        let first = all.remove(0);
        Self { more: all, ..Self::node(first) }
    }

    /// About the children of a node, with their data, as they are now.
    pub fn children(path: impl Into<Path>) -> Self {
        Self::about(path.into(), Scope::Children)
    }

    /// About a node and everything below it, with data, as they are now.
    pub fn subtree(path: impl Into<Path>) -> Self {
        Self::about(path.into(), Scope::Subtree)
    }

    /// Whether a node is there; an observer is notified when it goes, and of nothing else. The same as a node
    /// with [`names_only`](Query::names_only) and [`once`](Query::once).
    pub fn until_gone(path: impl Into<Path>) -> Self {
        Self::node(path).names_only().once()
    }

    fn about(path: Path, scope: Scope) -> Self {
        let (detail, freshness) = (Detail::Data, Freshness::Latest);
        let (more, prefix, window) = (Vec::new(), String::new(), None);
        let (once, hints, progress) = (false, false, None);
        Self { path, more, scope, detail, freshness, prefix, window, once, hints, progress }
    }

    /// Names are enough.
    pub fn names_only(mut self) -> Self {
        self.detail = Detail::Names;
        self
    }

    /// An answer may lag: see [`Freshness::Local`].
    pub fn local(mut self) -> Self {
        self.freshness = Freshness::Local;
        self
    }

    /// Only children whose names start with `prefix`.
    pub fn starting_with(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Only the `count` sequential children that were created first.
    pub fn oldest(mut self, count: usize) -> Self {
        self.window = Some(Window::Oldest { count });
        self
    }

    /// Only the `count` sequential children that were created last.
    pub fn newest(mut self, count: usize) -> Self {
        self.window = Some(Window::Newest { count, before: None });
        self
    }

    /// Only the `count` sequential children that were created last before `sequence`.
    pub fn newest_before(mut self, count: usize, sequence: Sequence) -> Self {
        self.window = Some(Window::Newest { count, before: Some(sequence) });
        self
    }

    /// One event is enough for the observer of this node: a store may end the watch after the first one with
    /// [`End::Delivered`](crate::store::End::Delivered), and at once if the view shows no node. Some stores are asked for
    /// less then. If names are enough, too, it is as with [`Query::until_gone`].
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// The observer finds out by itself what became of the paths in its events, so the store need not. An event may then be about
    /// a container, and a path may be reported as created and deleted although a transaction only checked that it is absent. What
    /// became of a path is known by a read after its last event. Some stores are asked for less then, and need not ask for a new
    /// read of everything when a node goes soon after it came.
    pub fn hints(mut self) -> Self {
        self.hints = true;
        self
    }

    /// How far the store is with the view can be seen there meanwhile.
    pub fn progress(mut self, progress: &Progress) -> Self {
        self.progress = Some(progress.clone());
        self
    }

    /// For stores: reports that so many nodes were read, and so many more are known to be there.
    pub fn report(&self, read: usize, left: usize) {
        if let Some(progress) = &self.progress {
            progress.report(read, left);
        }
    }

    /// The path, and those of [more nodes](Query::more).
    pub fn nodes_asked(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.path).chain(&self.more)
    }

    /// Whether the only event that is asked for is that a node goes: see [`Query::until_gone`].
    pub fn is_until_gone(&self) -> bool {
        self.once && self.detail == Detail::Names
    }

    /// Whether a change of this kind at `path` is one of what the query covers: for stores that find out by
    /// themselves which of their watches a change concerns. A window does not narrow it, a prefix does, and
    /// [`Detail::Names`] leaves out writes of children.
    pub fn covers(&self, path: &Path, kind: Kind) -> bool {
        let own = self.nodes_asked().any(|asked| asked == path);
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

    /// Refuses what no store can answer. Every store calls this before it sends anything.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if a prefix or a window is asked of anything but children, one event of anything
    /// but a node, or more nodes are named with anything else; [`ErrorKind::TooLarge`] if they are more than
    /// [`Query::MAX_NODES`].
    pub fn validate(&self) -> Result<()> {
        let narrowed = !self.prefix.is_empty() || self.window.is_some();
        if narrowed && self.scope != Scope::Children {
            return Err(Error::new(ErrorKind::Invalid, "query")
                .at(&self.path)
                .because("only a query about children takes a prefix or a window"));
        }
        if self.once && self.scope != Scope::Node {
            return Err(Error::new(ErrorKind::Invalid, "query")
                .at(&self.path)
                .because("only a query about one node is observed for one event"));
        }
        if !self.more.is_empty() && (self.scope != Scope::Node || self.once) {
            return Err(Error::new(ErrorKind::Invalid, "query")
                .at(&self.path)
                .because("only a query about nodes names more than one, and it is not observed"));
        }
        if self.more.len() >= Self::MAX_NODES {
            return Err(Error::new(ErrorKind::TooLarge, "query")
                .at(&self.path)
                .because(format!("a query is about {} nodes at most", Self::MAX_NODES)));
        }
        Ok(())
    }

    /// Refuses what no store can observe. Every store calls this before it sends anything.
    ///
    /// # Errors
    ///
    /// As [`Query::validate`], and [`ErrorKind::Invalid`] if it is about several nodes.
    pub fn validate_observed(&self) -> Result<()> {
        self.validate()?;
        if self.more.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Invalid, "query")
            .at(&self.path)
            .because("several nodes are read, and not observed"))
    }
}

/// The answer to a [`Query`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// The view reflects every commit up to this revision, and may reflect later ones.
    pub revision: Revision,
    /// What was found: at most one for a query about one node; sorted by path, or by sequence if a window
    /// was asked for.
    pub nodes: Vec<Node>,
}

impl View {
    /// A view of `nodes`.
    pub fn new(revision: Revision, nodes: Vec<Node>) -> Self {
        Self { revision, nodes }
    }

    /// The node that a node query found.
    pub fn node(&self) -> Option<&Node> {
        self.nodes.first()
    }

    /// [`View::node`] by value.
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
