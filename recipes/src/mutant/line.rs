//! Wrong algorithms of wait queues.

use std::time::Duration;

use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Node, OpResult, Query};

use crate::line::Line;
use crate::line::order::{Contender, Entry};
use crate::line::ticket_name::since;
use crate::line::ticket_node::TicketNode;

impl Line {
    /// The ticket that the current session created before.
    pub(crate) async fn created_by_session(&self) -> Result<Option<TicketNode>> {
        let session = self.client().session().await?;
        let id = session.info().id;
        let is_own = |node: &Node| node.stat.and_then(|stat| stat.owner) == Some(id);
        self.adopted(&session, is_own).await
    }

    /// The ticket with the label of this queue, of any session.
    pub(crate) async fn created_before(&self, session: &Session) -> Result<Option<TicketNode>> {
        let label = self.label();
        self.adopted(session, |node| !label.is_empty() && node.data == *label).await
    }

    async fn adopted(
        &self,
        session: &Session,
        is_own: impl Fn(&Node) -> bool,
    ) -> Result<Option<TicketNode>> {
        let view = session.read(Query::children(self.dir().clone())).await?;
        let own = view.nodes.into_iter().find(is_own).and_then(|node| {
            let done = OpResult::new(node.path).with_stat(node.stat?).with_sequence(node.sequence?);
            Some(TicketNode::new(session.clone(), done))
        });
        own.transpose()
    }
}

/// Waits for an event of a node, even if there is no node.
pub(crate) async fn next_event(session: &Session, path: &Path) {
    if let Ok((_view, mut watch)) = session.watch(Query::node(path.clone()).local()).await {
        let _event = watch.next().await;
    }
}

/// Reads a node, and if it exists watches it in a second call.
pub(crate) async fn next_event_if_there(session: &Session, path: &Path) {
    let node = Query::node(path.clone()).names_only().local();
    if session.read(node).await.is_ok_and(|view| view.node().is_some()) {
        next_event(session, path).await;
    }
}

/// Leaves a ticket in the queue, and its session open.
pub(crate) fn keep(node: &TicketNode) {
    std::mem::forget(node.session().clone());
    node.spend();
}

/// Reads each contender separately, and fails if one of them has left.
pub(crate) async fn read_each(client: &Client, all: &[Contender]) -> Result<()> {
    for one in all {
        let gone = || Error::new(ErrorKind::Refused, "reading a candidate").at(&one.path);
        client.get(&one.path).await?.ok_or_else(gone)?;
    }
    Ok(())
}

/// Returns `true` if the name of a ticket contains a date of more than an hour ago.
pub(crate) fn is_old(ticket: &Entry) -> bool {
    const HOUR: Duration = Duration::from_secs(3_600);
    let age = since(ticket.path.name()).and_then(|since| clock::date().duration_since(since).ok());
    age.is_some_and(|age| age > HOUR)
}

/// The number of permits in use if each request that fits is granted, regardless of earlier
/// waiters.
pub(crate) fn fitting(wanted: impl Iterator<Item = u64>, permits: u32) -> u64 {
    wanted.fold(0, |taken, more| if taken + more <= permits.into() { taken + more } else { taken })
}
