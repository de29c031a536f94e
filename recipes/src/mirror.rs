//! [`Mirror`]: a local copy of a node, of the children of one, or of a whole subtree, which is kept equal: the base of caches
//! and of configuration.
//!
//! A recipe makes a [`Mirror`] of a client and an [`Extent`](extent::Extent), and gets from it
//!
//! - the nodes, from memory: [`Mirror::get`] and [`Mirror::snapshot`];
//! - the events that make them, from an empty map on: [`Mirror::reader`];
//! - how they compare with the store: [`Mirror::state`].
//!
//! What holds for all recipes:
//!
//! - **The content is what the store has**, some time after the last change and the last fault. In a session the whole is read
//!   once, with a watch; and again after every outage, and whenever the store says that changes may have been missed. What
//!   differs then is reported as events, deletions first. So a content is never emptied to be filled again.
//! - **No path goes back.** Revisions order the versions of a path, also those of a node that was deleted and made again,
//!   whose versions begin again. What is older than what is known is not taken over, whatever reports it.
//! - **A change costs what it concerns.** An event that says all is taken over; otherwise the nodes that changed are read, many
//!   at once, and each once however often it changed.
//! - **One task writes the content.** It reads one thing at a time, so no answer overtakes another. While it reads the whole,
//!   it takes events as they come, one for each path, so that no number of them makes it miss any.
//! - **Readers make neither it nor each other wait.** The last events are kept once for all readers. A reader that has missed
//!   some begins anew with the content as it is now.

use std::fmt;
use std::sync::Arc;

use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Loaded, Node};
use synod_core::task::{self, Task};
use tokio::sync::watch;
use tracing::Instrument;

use crate::mirror::board::Board;
use crate::mirror::event::CacheState;
use crate::mirror::extent::Extent;
use crate::mirror::follower::MirrorFollower;
use crate::mirror::reader::EventReader;
use crate::mirror::snapshot::Snapshot;

mod board;
mod content;
pub(crate) mod event;
mod event_log;
pub(crate) mod extent;
mod follower;
mod hearing;
pub(crate) mod news;
mod nodes_by_path;
pub(crate) mod reader;
pub(crate) mod snapshot;

/// A copy that is kept equal. Clones share everything. The last one takes the task and the watch with it.
#[derive(Clone)]
pub(crate) struct Mirror {
    board: Arc<Board>,
    _follower: Arc<FollowerTask>,
}

/// The task that follows the store. It ends with this value, and with the client.
struct FollowerTask {
    board: Arc<Board>,
    _task: Task,
}

impl Mirror {
    /// Begins to follow. Nothing has been sent when this returns.
    pub(crate) fn start(client: &Client, extent: Extent, recipe: &'static str) -> Self {
        let span = tracing::debug_span!("mirroring", recipe, path = %extent.path());
        let board = Arc::new(Board::new(extent));
        let follower = MirrorFollower::new(client, board.clone());
        let task = task::spawn(follower.run().instrument(span));
        Self { _follower: Arc::new(FollowerTask { board: board.clone(), _task: task }), board }
    }

    pub(crate) fn path(&self) -> &Path {
        self.board.extent().path()
    }

    /// The node at a path, from memory.
    pub(crate) fn get(&self, path: &Path) -> Option<Node> {
        self.board.get(path)
    }

    /// Has nodes read that are [known by their names](Extent::known_by_name). What they are is reported as their update, or their
    /// deletion.
    pub(crate) fn want(&self, paths: impl IntoIterator<Item = Path>) {
        self.board.want(paths);
    }

    /// All nodes as of now, from memory.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.board.snapshot()
    }

    /// How the content compares with the store now.
    pub(crate) fn state(&self) -> CacheState {
        self.board.state()
    }

    /// How far the reading of the whole is.
    pub(crate) fn progress(&self) -> watch::Receiver<Loaded> {
        self.board.progress()
    }

    /// Waits until this holds of the state. `None` if it never will, as the client is closed.
    pub(crate) async fn until<T>(&self, holds: impl FnMut(CacheState) -> Option<T>) -> Option<T> {
        self.board.until(holds).await
    }

    /// Waits until the content is complete.
    pub(crate) async fn complete(&self) -> Result<()> {
        let settled = self.until(|state| match state {
            CacheState::Live(_) => Some(Ok(())),
            CacheState::Refused(why) => Some(Err(Error::clone(&why))),
            CacheState::Syncing | CacheState::Stale(_) => None,
        });
        settled.await.unwrap_or_else(|| Err(self.closed()))
    }

    /// Waits until the content will not be complete by itself.
    pub(crate) async fn failure(&self) -> Error {
        let refused = self.until(|state| match state {
            CacheState::Refused(why) => Some(why),
            _ => None,
        });
        match refused.await {
            Some(why) => Error::clone(&why),
            None => self.closed(),
        }
    }

    fn closed(&self) -> Error {
        Error::new(ErrorKind::SessionLost, "reading what is cached")
            .at(self.path())
            .because("the client was closed")
    }

    /// The events from an empty content on. The reader does not keep the mirror going.
    pub(crate) fn reader(&self) -> EventReader {
        EventReader::new(self.board.clone())
    }
}

impl Drop for FollowerTask {
    fn drop(&mut self) {
        self.board.end();
    }
}

/// Shows the path only: the data is the application's.
impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.path(), f)
    }
}
