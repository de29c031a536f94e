//! [`Walk`]: the nodes of a subtree one after the other, for trees that do not fit into memory.

use std::collections::VecDeque;

use futures_util::future::{try_join, try_join_all};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Node, Query, View};

/// Number of siblings that are read at once.
const AT_ONCE: usize = 32;

/// The nodes of a subtree: each before the nodes below it, siblings by name.
///
/// It holds the names of each directory between the root and the current node, and the data of
/// some siblings in each. The nodes are read at different times, but none is older than
/// the start of the walk.
#[derive(Debug)]
pub struct Walk {
    session: Session,
    root: Path,
    levels: Vec<Level>,
    with_data: bool,
    skips_denied: bool,
}

/// The siblings that are left.
#[derive(Debug, Default)]
struct Level {
    unread: VecDeque<Path>,
    read: VecDeque<Visit>,
}

/// A place in the tree.
#[derive(Debug)]
#[non_exhaustive]
pub struct Visit {
    /// The path of the node.
    pub path: Path,
    /// The node; `None` for a container, for a removed node, and in a walk of names only.
    pub node: Option<Node>,
    /// The names of its children, sorted.
    pub children: Vec<Node>,
    /// The error, if the place must not be read, in a walk that [skips](Walk::skipping_denied)
    /// such places.
    pub denied: Option<Error>,
}

impl Walk {
    /// Starts at this path, which need not be a node.
    pub fn new(session: Session, root: &Path) -> Self {
        let first = Level { unread: [root.clone()].into(), read: VecDeque::new() };
        Self {
            session,
            root: root.clone(),
            levels: vec![first],
            with_data: true,
            skips_denied: false,
        }
    }

    /// Starts at this path, and does not read data.
    pub fn names_only(session: Session, root: &Path) -> Self {
        Self { with_data: false, ..Self::new(session, root) }
    }

    /// Continues after a place that must not be read with these credentials. Without this such a
    /// place ends the walk with an error.
    pub fn skipping_denied(self) -> Self {
        Self { skips_denied: true, ..self }
    }

    /// The next place. [`Walk::descend`] adds the places below it.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`](synod_core::client::Client).
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have skipped places.
    pub async fn next(&mut self) -> Result<Option<Visit>> {
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
    pub fn descend(&mut self, children: Vec<Path>) {
        if !children.is_empty() {
            self.levels.push(Level { unread: children.into(), read: VecDeque::new() });
        }
    }

    async fn visit(&self, path: Path) -> Result<Visit> {
        match self.read(path.clone()).await {
            Err(error) if self.skips_denied && error.kind() == ErrorKind::Denied => {
                Ok(Visit { path, node: None, children: Vec::new(), denied: Some(error) })
            }
            visit => visit,
        }
    }

    async fn read(&self, path: Path) -> Result<Visit> {
        // After the first read a session does not see an older state.
        let is_first = path == self.root;
        let read = |query: Query| self.session.read(if is_first { query } else { query.local() });
        let node = async {
            if !self.with_data || path.is_root() {
                return Ok(None);
            }
            read(Query::node(&path)).await.map(View::into_node)
        };
        let (node, view) = try_join(node, read(Query::children(&path).names_only())).await?;
        let mut children = view.nodes;
        children.sort_by(|one, other| one.path.name().cmp(other.path.name()));
        Ok(Visit { path, node, children, denied: None })
    }
}
