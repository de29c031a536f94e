//! Wrong algorithms of recipes.

use bytes::Bytes;
use synod_core::client::ClientWatch;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Event, Lifetime, Query, Txn};

use crate::line::hold::Hold;
use crate::line::ticket_node::TicketNode;

/// Returns the query for a watch that does not end after one event.
pub(crate) fn lasting(mut query: Query) -> Query {
    query.once = false;
    query
}

/// The event of a change, or the end of the watch.
pub(crate) async fn change(first: Option<Event>, watch: &mut ClientWatch) -> Option<Event> {
    let mut event = first;
    while matches!(&event, Some(Event::Resync)) {
        event = watch.next().await;
    }
    event
}

/// Releases a write lock, and creates a reader's ticket at the end of the queue.
pub(crate) async fn queue_anew(writing: Hold<Bytes>) -> Result<Hold> {
    let session = writing.node.session().clone();
    let dir = writing.path().parent().unwrap_or_else(Path::root);
    let path = dir.join(&format!("_c_{}-__READ__", session.random().id()))?;
    let txn = Txn::new().create_sequential(path, "", Lifetime::Session);
    let node = session.commit(txn).await?.required()?.results.remove(0);
    writing.node.remove().await?;
    Ok(Hold::new(TicketNode::new(session, node)?, "rwlock_read", ()))
}
