//! The adoption of a ticket that another client created in the same session, before the session was
//! [handed over](synod_core::client::Client::hand_over).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Node, OpResult, Query};

use crate::line::order::Entry;
use crate::line::ticket::Ticket;
use crate::line::ticket_name;
use crate::line::ticket_node::TicketNode;
use crate::line::{Form, Line};

/// The tickets that were adopted in a session. Each has one owner.
#[derive(Debug, Default)]
struct Adopted(Mutex<BTreeSet<Path>>);

impl Line {
    /// The granted ticket of the former client of a session that was resumed; `None` if there is
    /// none, or it was adopted already. Its tickets that wait are removed, because nobody waits for
    /// them.
    pub(crate) async fn resume(&self) -> Result<Option<(Ticket, Node)>> {
        let session = self.client.session().await?;
        let Some(resumed_at) = session.resumed_at() else { return Ok(None) };
        let view = session.read(Query::children(self.dir.clone())).await?;
        let adopted = session.local::<Adopted>();
        let mut granted = None;
        for node in view.nodes {
            let Some(stat) = node.stat else { continue };
            let is_former = stat.owner == Some(session.info().id) && stat.created < resumed_at;
            if !is_former || !self.form.is_of(&node) || !adopted.add(&node.path) {
                continue;
            }
            let created = OpResult::new(node.path.clone()).with_stat(stat);
            let created = node.sequence.into_iter().fold(created, OpResult::with_sequence);
            // Whether a request of the former client may still create the node again is unknown:
            // only the version identifies the ticket.
            let owned = TicketNode::new(session.clone(), created)?.versioned();
            let mut ticket = Ticket::new(self.clone(), owned, None);
            if granted.is_none() && ticket.is_granted_to_former().await? {
                granted = Some((ticket, node));
            } else {
                ticket.leave().await;
            }
        }
        Ok(granted)
    }
}

impl Ticket {
    /// Returns `true` if the ticket is granted. While the session is not certain, this waits.
    async fn is_granted_to_former(&mut self) -> Result<bool> {
        loop {
            if self.check_granted_now().await? {
                return Ok(true);
            }
            let session = self.node.session();
            if session.is_certain() || session.is_lost() {
                return Ok(false);
            }
            self.rest().await;
        }
    }
}

impl Form {
    /// Returns `true` if the node is a ticket of this form.
    fn is_of(&self, node: &Node) -> bool {
        let name = node.path.name();
        let stem = node.sequence.and_then(|sequence| ticket_name::without_digits(name, sequence));
        Entry::of(node).is_some() && stem.unwrap_or(name).ends_with(&self.suffix)
    }
}

impl Adopted {
    /// Returns `false` if the ticket was adopted before.
    fn add(&self, path: &Path) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone())
    }
}
