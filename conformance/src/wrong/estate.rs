//! Mistakes in the deletion of the nodes of a session that ended.
//!
//! A wrapper cannot change how a backend ends a session. So the wrong store has an ephemeral node
//! of its own in each session, notices its deletion, and then changes the others itself.

use std::sync::Arc;

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{
    Event, Expect, Kind, Lifetime, Outcome, Query, SessionId, Store, Txn, Watch,
};

use crate::wrong::{Mistake, Shared};

/// The nodes to remove when a session ends.
#[derive(Debug)]
pub(super) struct Estate {
    session: SessionId,
    anchor: Watch,
    is_open: bool,
    paths: Vec<Path>,
}

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
    let (_view, anchor) = shared.hidden().await?.observe(Query::node(&path)).await?;
    let estate = Estate { session, anchor, is_open: false, paths: Vec::new() };
    shared.books().estates.push(estate);
    Ok(())
}

/// Records the nodes that a session created.
pub(super) fn note(shared: &Shared, session: SessionId, outcome: &Outcome) {
    let Outcome::Committed(commit) = outcome else { return };
    let mut books = shared.books();
    let mut mine = books.estates.iter_mut().filter(|estate| estate.session == session);
    if let Some(estate) = mine.next() {
        estate.paths.extend(commit.done.iter().map(|done| done.path.clone()));
    }
}

/// Changes the nodes of ended sessions as the mistake requires. Every call begins with it.
pub(super) async fn settle(shared: &Shared) {
    if !is_needed(shared) {
        return;
    }
    let due: Vec<Path> = {
        let mut books = shared.books();
        books.estates.iter_mut().flat_map(|estate| estate.due(shared.mistake)).collect()
    };
    for path in due {
        if let Ok(hidden) = shared.hidden().await {
            let delete = Txn::new().delete(path, Expect::Any);
            let _gone_already = hidden.commit(delete).await.is_ok();
        }
    }
}

impl Estate {
    fn due(&mut self, mistake: Option<Mistake>) -> Vec<Path> {
        while let Some(event) = self.anchor.try_next() {
            self.is_open |= matches!(event, Event::Changed(change) if change.kind == Kind::Deleted);
        }
        match mistake {
            _ if !self.is_open => Vec::new(),
            // Half of what is left, so that the intermediate state is visible.
            Some(Mistake::ExpiryOneByOne) => self.paths.split_off(self.paths.len() / 2),
            _ => std::mem::take(&mut self.paths),
        }
    }
}
