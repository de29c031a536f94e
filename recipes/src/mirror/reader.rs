//! [`EventReader`]: the events of a mirror from the beginning, for one reader.

use std::sync::Arc;

use synod_core::path::Path;

use crate::mirror::event::{CacheEvent, CacheState};
use crate::mirror::event_log::Missed;
use crate::mirror::shared::MirrorShared;
use crate::mirror::snapshot::Snapshot;
use crate::mutant::mistake;

/// The events that produce the content of a mirror, starting with an empty one.
///
/// It begins with a snapshot, whose nodes are reported as created. If a reader is so slow that the
/// log has dropped its next event, it starts again with another snapshot. So no reader delays any
/// other, and each needs no more memory than the log and the content.
#[derive(Debug)]
pub(crate) struct EventReader {
    shared: Arc<MirrorShared>,
    /// The rest of its first snapshot.
    first: Option<Replay>,
    /// The number of the next event after the snapshot.
    next: u64,
}

/// A snapshot that is read as events.
#[derive(Debug)]
struct Replay {
    snapshot: Snapshot,
    last: Option<Path>,
}

impl EventReader {
    pub(super) fn new(shared: Arc<MirrorShared>) -> Self {
        let (snapshot, next) = shared.join();
        Self { shared, first: Some(Replay { snapshot, last: None }), next }
    }

    /// The next event. `None` after the last event.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call takes no event.
    pub(crate) async fn next(&mut self) -> Option<CacheEvent> {
        if let Some(event) = self.next_of_snapshot() {
            return Some(event);
        }
        match self.shared.event(self.next).await {
            Ok(event) => {
                self.next += u64::from(event.is_some());
                event
            }
            Err(Missed) => Some(self.restart()),
        }
    }

    /// The next event of the snapshot.
    fn next_of_snapshot(&mut self) -> Option<CacheEvent> {
        let Replay { snapshot, last } = self.first.as_mut()?;
        if let Some(node) = snapshot.following(last.as_ref()) {
            *last = Some(node.path.clone());
            return Some(CacheEvent::Created(node.clone()));
        }
        let state = snapshot.state().clone();
        self.first = None;
        match state {
            CacheState::Live(revision) => Some(CacheEvent::Complete(revision)),
            _ => None,
        }
    }

    fn restart(&mut self) -> CacheEvent {
        let (snapshot, next) = self.shared.now();
        self.next = next;
        mistake!(MissedEventsSkipped: return CacheEvent::Stale);
        self.first = Some(Replay { snapshot, last: None });
        CacheEvent::Reset
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        self.shared.leave();
    }
}
