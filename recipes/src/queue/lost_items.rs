//! Items whose consumers are gone. Every consumer looks for them when it begins, after an outage, and when the node of another one
//! goes.

use std::collections::BTreeSet;
use std::sync::Arc;

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Node, Query, RejectReason, Rejected};
use tokio::sync::Notify;

use crate::cell::patience::Patience;
use crate::mutant::mistake;
use crate::queue::place::{DOING, QueuePlace};
use crate::queue::shuffled::shuffled;
use crate::stamped::sent::Sent;

/// Looks for items without consumers whenever that is asked for, until the client is closed.
pub(super) async fn look_for_lost_items(place: Arc<QueuePlace>, asked: Arc<Notify>) {
    loop {
        asked.notified().await;
        let mut patience = Patience::new(&place.client);
        while let Err(error) = put_back_all(&place).await {
            let path = &place.dir;
            if let Err(error) = patience.rest(error).await {
                tracing::debug!(%path, %error, "items whose consumers are gone are left to others");
                break;
            }
        }
    }
}

/// Puts the items whose claims are gone back into the queue. A claim goes once and does not come again, so what was listed before
/// the claims, and has none, has no consumer.
async fn put_back_all(place: &QueuePlace) -> Result<()> {
    mistake!(ClaimsNeverEnd: return Ok(()));
    let session = place.client.session().await?;
    let claimed = names(&session, &place.claimed).await?;
    if claimed.is_empty() {
        return Ok(());
    }
    let claims = names(&session, &place.claims).await?;
    let has_claim: BTreeSet<&str> = claims.iter().map(|node| node.path.name()).collect();
    let lost = claimed.iter().map(|node| &node.path).filter(|path| is_lost(&has_claim, path));
    // Other consumers do the same at this moment.
    for path in shuffled(lost.collect(), place.client.random()) {
        put_back(place, &session, path).await?;
    }
    Ok(())
}

fn is_lost(has_claim: &BTreeSet<&str>, path: &Path) -> bool {
    mistake!(ClaimIgnored: return true);
    !has_claim.contains(path.name())
}

async fn names(session: &Session, dir: &Path) -> Result<Vec<Node>> {
    Ok(session.read(Query::children(dir).names_only()).await?.nodes)
}

/// Puts an item back in its place, unless another consumer was faster.
async fn put_back(place: &QueuePlace, session: &Session, path: &Path) -> Result<()> {
    let Some(node) = session.read(Query::node(path)).await?.into_node() else { return Ok(()) };
    let txn = place.back(path, path.name(), node.data)?;
    match place.writes.send(session, txn, Some(path)).await? {
        Sent::Applied(_) | Sent::Rejected(Rejected { reason: RejectReason::Missing, .. }) => Ok(()),
        Sent::Rejected(no) => Err(place.writes.refused(&no)),
        Sent::Lost => Err(Error::new(ErrorKind::SessionLost, DOING).at(path)),
    }
}
