//! [`Walk`]: the nodes of a subtree one after the other, for trees that do not fit into memory.
//! [`PersistentNodes`]: those that belong to no session.

use std::collections::VecDeque;

use futures_util::future::{try_join, try_join_all};
use synod::Session;
use synod::{Node, Path, Query, Result};

/// Number of siblings that are read at once.
const AT_ONCE: usize = 32;

/// The nodes of a subtree: each before the nodes below it, siblings by name.
///
/// It holds the names of each directory between the root and the current node, and the data of up
/// to [`AT_ONCE`] siblings in each. The nodes are read at different times, but none is older than
/// the start of the walk.
#[derive(Debug)]
pub(crate) struct Walk {
    session: Session,
    root: Path,
    levels: Vec<Level>,
    with_data: bool,
}

/// The siblings that are left.
#[derive(Debug, Default)]
struct Level {
    unread: VecDeque<Path>,
    read: VecDeque<Visit>,
}

/// A place in the tree.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) path: Path,
    /// The node; `None` for a container, for a removed node, and in a walk of names only.
    pub(crate) node: Option<Node>,
    /// The names of its children, sorted.
    pub(crate) children: Vec<Node>,
}

impl Walk {
    /// Starts at this path, which need not be a node.
    pub(crate) fn new(session: Session, root: &Path) -> Self {
        let first = Level { unread: [root.clone()].into(), read: VecDeque::new() };
        Self { session, root: root.clone(), levels: vec![first], with_data: true }
    }

    /// Starts at this path, and does not read data.
    pub(crate) fn names_only(session: Session, root: &Path) -> Self {
        Self { with_data: false, ..Self::new(session, root) }
    }

    /// The next place. [`Walk::descend`] adds the places below it.
    pub(crate) async fn next(&mut self) -> Result<Option<Visit>> {
        while let Some(level) = self.levels.last_mut() {
            if let Some(visit) = level.read.pop_front() {
                return Ok(Some(visit));
            }
            if level.unread.is_empty() {
                self.levels.pop();
                continue;
            }
            let some = level.unread.drain(..level.unread.len().min(AT_ONCE));
            let some: Vec<Path> = some.collect();
            let visits = some.into_iter().map(|path| self.visit(path));
            let visits = try_join_all(visits).await?;
            if let Some(level) = self.levels.last_mut() {
                level.read = visits.into();
            }
        }
        Ok(None)
    }

    /// Visits these children of the current place next.
    pub(crate) fn descend(&mut self, children: Vec<Path>) {
        if !children.is_empty() {
            self.levels.push(Level { unread: children.into(), read: VecDeque::new() });
        }
    }

    async fn visit(&self, path: Path) -> Result<Visit> {
        // After the first read a session does not see an older state.
        let is_first = path == self.root;
        let read = |query: Query| self.session.read(if is_first { query } else { query.local() });
        let node = async {
            if !self.with_data || path.is_root() {
                return Ok(None);
            }
            read(Query::node(&path)).await.map(synod::View::into_node)
        };
        let (node, view) = try_join(node, read(Query::children(&path).names_only())).await?;
        let mut children = view.nodes;
        children.sort_by(|one, other| one.path.name().cmp(other.path.name()));
        Ok(Visit { path, node, children })
    }
}

/// The nodes of a subtree that belong to no session, in the order of a [`Walk`].
#[derive(Debug)]
pub(crate) struct PersistentNodes {
    walk: Walk,
    ephemeral: u64,
}

impl PersistentNodes {
    pub(crate) fn new(session: Session, root: &Path) -> Self {
        Self { walk: Walk::new(session, root), ephemeral: 0 }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Node>> {
        while let Some(visit) = self.walk.next().await? {
            self.walk.descend(visit.children.into_iter().map(|child| child.path).collect());
            match &visit.node {
                Some(node) if node.stat.is_some_and(|stat| stat.owner.is_some()) => {
                    self.ephemeral += 1;
                }
                Some(_) => return Ok(visit.node),
                None => {}
            }
        }
        Ok(None)
    }

    /// The number of ephemeral nodes that were omitted so far.
    pub(crate) fn ephemeral(&self) -> u64 {
        self.ephemeral
    }
}
