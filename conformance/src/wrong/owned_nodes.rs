//! [`OwnedNodes`]: the nodes of one session, to be removed when it ends.

use synod_core::path::Path;
use synod_core::store::{Event, Kind, SessionId, Watch};

use crate::wrong::mistake::Mistake;

/// The nodes to remove when a session ends.
#[derive(Debug)]
pub(super) struct OwnedNodes {
    pub(super) session: SessionId,
    anchor: Watch,
    is_open: bool,
    pub(super) paths: Vec<Path>,
}

impl OwnedNodes {
    /// Of a session whose node is watched by `anchor`.
    pub(super) fn new(session: SessionId, anchor: Watch) -> Self {
        Self { session, anchor, is_open: false, paths: Vec::new() }
    }

    /// The paths to remove now.
    pub(super) fn due(&mut self, mistake: Option<Mistake>) -> Vec<Path> {
        while let Some(event) = self.anchor.try_next() {
            self.is_open |= matches!(event, Event::Changed(change) if change.kind == Kind::Deleted);
        }
        match mistake {
            _ if !self.is_open => Vec::new(),
            // Half of the remaining nodes, so that the intermediate state is visible.
            Some(Mistake::ExpiryOneByOne) => self.paths.split_off(self.paths.len() / 2),
            _ => std::mem::take(&mut self.paths),
        }
    }
}
