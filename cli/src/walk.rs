//! [`PersistentNodes`]: the nodes of a subtree that belong to no session.

use synod::{Node, Path, Result, Session};
use synod_view::walk::Walk;

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
