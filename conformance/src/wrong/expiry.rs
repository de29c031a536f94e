//! Mistakes in the deletion of the nodes of a session that ended.
//!
//! A wrapper cannot change how a backend ends a session. So the wrong store creates its own
//! ephemeral node in each session, notices its deletion, and then changes the other nodes.

use std::sync::Arc;

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Outcome, Query, SessionId, Store, Txn};

use crate::wrong::mistake::Mistake;
use crate::wrong::owned_nodes::OwnedNodes;
use crate::wrong::shared::Shared;

fn is_needed(shared: &Shared) -> bool {
    matches!(shared.mistake, Some(Mistake::ExpiryOneByOne | Mistake::ExpiryDeletesByPath))
}

/// Starts to record the nodes of a new session.
pub(super) async fn begin(shared: &Shared, inner: &Arc<dyn Store>) -> Result<()> {
    if !is_needed(shared) {
        return Ok(());
    }
    let session = inner.session().id;
    let path = Path::new(&format!("/synod-wrong/{session}"))?;
    let anchor = Txn::new().create(&path, "", Lifetime::Session);
    inner.commit(anchor).await?.required()?;
    let (_view, anchor) = shared.hidden().await?.watch(Query::node(&path)).await?;
    let owned_nodes = OwnedNodes::new(session, anchor);
    shared.books().estates.push(owned_nodes);
    Ok(())
}

/// Records the nodes that a session created.
pub(super) fn note(shared: &Shared, session: SessionId, outcome: &Outcome) {
    let Outcome::Committed(commit) = outcome else { return };
    let mut books = shared.books();
    let mut mine = books.estates.iter_mut().filter(|owned_nodes| owned_nodes.session == session);
    if let Some(owned_nodes) = mine.next() {
        owned_nodes.paths.extend(commit.results.iter().map(|done| done.path.clone()));
    }
}

/// Changes the nodes of ended sessions as the mistake requires. Every call starts with it.
pub(super) async fn settle(shared: &Shared) {
    if !is_needed(shared) {
        return;
    }
    let due: Vec<Path> = {
        let mut books = shared.books();
        books.estates.iter_mut().flat_map(|owned_nodes| owned_nodes.due(shared.mistake)).collect()
    };
    for path in due {
        if let Ok(hidden) = shared.hidden().await {
            let delete = Txn::new().delete(path, Expect::Any);
            let _gone_already = hidden.commit(delete).await.is_ok();
        }
    }
}
