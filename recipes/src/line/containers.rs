//! Which entries of a line are no tickets but containers: nodes that are there because something is below them.

use std::time::SystemTime;

use synod_core::path::Path;
use synod_core::store::{Query, View};

use crate::line::order::{Entry, Tickets};
use crate::line::ticket_name;
use crate::mutant::mistake;

impl Tickets {
    /// Removes these paths, which are no tickets.
    pub(crate) fn without(mut self, paths: &[Path]) -> Self {
        if !paths.is_empty() {
            self.entries.retain(|one| !paths.contains(&one.path));
        }
        self
    }

    /// Whether any of the tickets may be a container: a listing of names does not always show that.
    pub(crate) fn is_unsure(&self) -> bool {
        self.entries.iter().any(|one| one.created.is_none())
    }

    /// Whether any of those has a name that no ticket of this library was given lately. A check of the other names,
    /// too, would cost a request for each lock that is held.
    pub(crate) fn has_suspects(&self, now: SystemTime) -> bool {
        self.entries.iter().any(|one| one.is_suspect(now))
    }
}

impl Entry {
    /// Whether it may be a container, and its name is not one that this library gave to a ticket lately. A name that
    /// it gave longer ago may be a container's: somebody wrote below the path of a ticket that was gone.
    fn is_suspect(&self, now: SystemTime) -> bool {
        self.created.is_none() && !ticket_name::is_recent(self.path.name(), now)
    }
}

/// A query that shows which names are those of containers: they have no stat.
pub(crate) fn with_stats(dir: &Path) -> Query {
    Query::children(dir.clone())
}

/// The containers in a listing with stats.
pub(crate) fn containers(view: &View) -> impl Iterator<Item = Path> + '_ {
    let nodes = view.nodes.as_slice();
    mistake!(ContainerIsTicket: let nodes = &nodes[..0]);
    nodes.iter().filter(|node| node.stat.is_none()).map(|node| node.path.clone())
}
