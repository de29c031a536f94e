//! A ticket of a writer that became a reader's: its data says so, its name does not.

use synod_core::path::Path;
use synod_core::store::Node;

use crate::line::marks::Claim;
use crate::line::order::Tickets;
use crate::mutant::mistake;

/// What a writer writes to its ticket, in front of its label, when it downgrades. A ticket that contains this since
/// it was created is still a writer's.
pub(crate) const SHARES: &[u8] = b"__READ__";

impl Tickets {
    /// Marks these tickets as shared: they were downgraded.
    pub(crate) fn sharing(mut self, paths: &[Path]) -> Self {
        for one in self.entries.iter_mut().filter(|one| paths.contains(&one.path)) {
            one.claim = Claim::Shared;
        }
        self
    }
}

/// Whether this is the ticket of a writer that downgraded.
pub(crate) fn shares(node: &Node) -> bool {
    // On any other ticket the data is a label, and a label may be anything.
    let is_writers = node.path.name().contains("__WRIT__");
    let written = node.stat.is_some_and(|stat| stat.modified != stat.created);
    let says_so = node.data.starts_with(SHARES);
    mistake!(LabelIsMode: return says_so);
    is_writers && written && says_so
}
