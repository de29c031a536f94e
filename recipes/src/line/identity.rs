//! How a ticket is distinguished from other nodes at its path: by its name alone, or by the version in which it was
//! last seen. A store that keeps the name as it was given may still receive a request of the create.

use synod_core::error::{ErrorKind, Result};
use synod_core::session::Requests;
use synod_core::store::Outcome;

use crate::line::Line;
use crate::line::marks::Capacity;
use crate::line::ticket_node::TicketNode;
use crate::mutant::mistake;

impl Line {
    /// The ticket with the way in which it is distinguished from other nodes at its path. That depends on whether the
    /// store kept the name as it was given, and on whether a request of the create may still take effect.
    pub(super) fn counted(
        &self,
        node: TicketNode,
        as_given: bool,
        requests: Requests,
    ) -> TicketNode {
        let in_doubt = as_given && !requests.is_settled();
        mistake!(LateTwinTrusted: if in_doubt { return node });
        if in_doubt || self.form.changes {
            node.counting_by_version()
        } else if as_given && self.form.renews {
            node.renewable()
        } else {
            node
        }
    }

    /// A ticket for permits is written to when it is granted, in the background, to notify later waiters. A ticket
    /// whose create is in doubt is checked by its version, so it is written to at once: the ticket after it then looks
    /// at the whole line. Returns false if the ticket is gone already.
    pub(super) async fn is_settled(&self, node: &TicketNode) -> Result<bool> {
        if self.form.capacity == Capacity::One || !node.counts_by_version() {
            return Ok(true);
        }
        mistake!(DoubtUntold: return Ok(true));
        match node.write(self.label.clone()).await {
            Err(error) if error.kind() == ErrorKind::SessionLost => Ok(false),
            written => Ok(matches!(written?, Outcome::Committed(_))),
        }
    }
}
