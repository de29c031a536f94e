//! Nodes that are left in the store by recipes that are no longer in use.

use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::{Node, Query};

use crate::process::Process;

/// Checks that the write ids of all writers were removed with their sessions.
pub(super) async fn no_mark_is_left(me: Process, value: Path) -> Result<(), String> {
    none_is_left(me, Query::children(value).names_only(), |_| true).await
}

/// Checks that the result of a query has no node that should have been removed.
pub(super) async fn none_is_left(
    me: Process,
    query: Query,
    should_go: impl Fn(&Node) -> bool,
) -> Result<(), String> {
    let mut left = None;
    for _ in 0..100 {
        // Some servers may be unreachable for ever.
        if let Ok(client) = me.client().await
            && let Ok(view) = client.read(query.clone()).await
        {
            let nodes = view.nodes.into_iter().filter(|node| should_go(node));
            left = Some(nodes.collect::<Vec<_>>()).filter(|nodes| !nodes.is_empty());
            if left.is_none() {
                break;
            }
        }
        clock::sleep(me.ttl() / 4).await;
    }
    left.map_or(Ok(()), |left| Err(format!("{left:?} are left")))
}
