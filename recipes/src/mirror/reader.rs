//! [`EventReader`]: the events of a mirror from the beginning, for one reader.

use std::sync::Arc;

use synod_core::path::Path;

use crate::mirror::board::Board;
use crate::mirror::event::{CacheEvent, CacheState};
use crate::mirror::event_log::Missed;
use crate::mirror::snapshot::Snapshot;
use crate::mutant::mistake;

/// The events that make the content of a mirror, from an empty one on.
///
/// It begins with a snapshot: all its nodes are created. One that takes events so slowly that the log has lost the next
/// one begins anew, with another snapshot. So no reader makes any other wait, and each needs no more memory than the log and
/// the content.
#[derive(Debug)]
pub(crate) struct EventReader {
    board: Arc<Board>,
    /// What is left of the snapshot that it began with.
    first: Option<Replay>,
    /// The number of the next event after that.
    next: u64,
}

/// A snapshot that is read as events.
#[derive(Debug)]
struct Replay {
    snapshot: Snapshot,
    last: Option<Path>,
}

impl EventReader {
    pub(super) fn new(board: Arc<Board>) -> Self {
        let (snapshot, next) = board.join();
        Self { board, first: Some(Replay { snapshot, last: None }), next }
    }

    /// The next event. `None` once there will be no other.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call takes no event.
    pub(crate) async fn next(&mut self) -> Option<CacheEvent> {
        if let Some(event) = self.of_snapshot() {
            return Some(event);
        }
        match self.board.event(self.next).await {
            Ok(event) => {
                self.next += u64::from(event.is_some());
                event
            }
            Err(Missed) => Some(self.begin_anew()),
        }
    }

    /// The next event of the snapshot.
    fn of_snapshot(&mut self) -> Option<CacheEvent> {
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

    fn begin_anew(&mut self) -> CacheEvent {
        let (snapshot, next) = self.board.now();
        self.next = next;
        mistake!(MissedEventsSkipped: return CacheEvent::Stale);
        self.first = Some(Replay { snapshot, last: None });
        CacheEvent::Reset
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        self.board.leave();
    }
}
