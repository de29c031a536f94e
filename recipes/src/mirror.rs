//! [`Mirror`]: a local copy of a node, of its children, or of a whole subtree, which follows the
//! store. It is the base of caches and of configuration.
//!
//! A recipe creates a [`Mirror`] from a client and an [`Extent`](extent::Extent), and uses
//!
//! - the nodes, from memory: [`Mirror::get`] and [`Mirror::snapshot`];
//! - the events that produce them, starting with an empty map: [`Mirror::reader`];
//! - the state of the copy: [`Mirror::state`].
//!
//! These rules hold for all recipes:
//!
//! - **The content is the content of the store** at some time after the last change and the last
//!   fault. The whole extent is read once in each session, with a watch, and again after every
//!   outage and whenever the store reports that events may have been missed. The differences are
//!   then reported as events, deletions first. So the content is never cleared and refilled.
//! - **No path goes back in time.** Revisions order the versions of a path, even across a deletion
//!   and a new create, after which the versions start again. A version that is older than the known
//!   one is never applied, from any source.
//! - **A change costs only a read of its own nodes.** A complete event is applied; otherwise the
//!   changed nodes are read, many in one request, and each node once even if it changed often.
//! - **One task writes the content.** It has one read in flight, so no response overtakes another.
//!   While it reads the whole extent, it collects events, one for each path, so that it misses
//!   none, even if many arrive.
//! - **Readers delay neither the task nor each other.** The last events are kept once for all
//!   readers. A reader that has missed events starts again with the current content.
//!
//! # Decisions that are easy to undo by mistake
//!
//! - **Revisions decide, never versions.** If an event would create a node again that a read did
//!   not find, the node is read first, unless the event is newer than everything known at that
//!   read.
//! - **The whole extent is read in each session and after each change of the connection**,
//!   regardless of the events: no store says when an interrupted watch has caught up.
//! - **Names alone are never listed**, even if data is not wanted: such a listing may not show
//!   which names are nodes.
//! - **A session can become certain again without a change of the connection**, because certainty
//!   depends on the clock. A wait for live content listens to both.

use std::fmt;
use std::sync::Arc;

use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Loaded, Node};
use synod_core::task::{Task, spawn};
use tokio::sync::watch;
use tracing::Instrument;

use crate::mirror::event::CacheState;
use crate::mirror::extent::Extent;
use crate::mirror::reader::EventReader;
use crate::mirror::shared::MirrorShared;
use crate::mirror::snapshot::Snapshot;
use crate::mirror::task::MirrorTask;

mod content;
pub(crate) mod event;
mod event_log;
pub(crate) mod extent;
pub(crate) mod reader;
mod shared;
pub(crate) mod snapshot;
mod task;

/// A copy that follows the store. Clones share everything. The task and the watch end with the last
/// clone.
#[derive(Clone)]
pub(crate) struct Mirror {
    shared: Arc<MirrorShared>,
    _task: Arc<TaskHandle>,
}

/// The handle of the task that follows the store. The task ends with this value, and with the
/// client.
struct TaskHandle {
    shared: Arc<MirrorShared>,
    _task: Task,
}

impl Mirror {
    /// Starts to follow the store, without sending anything yet.
    pub(crate) fn start(client: &Client, extent: Extent, recipe: &'static str) -> Self {
        let span = tracing::debug_span!("mirroring", recipe, path = %extent.path());
        let shared = Arc::new(MirrorShared::new(extent));
        let task = MirrorTask::new(client, shared.clone());
        let task = spawn(task.run().instrument(span));
        Self { _task: Arc::new(TaskHandle { shared: shared.clone(), _task: task }), shared }
    }

    pub(crate) fn path(&self) -> &Path {
        self.shared.extent().path()
    }

    /// The node at a path, from memory.
    pub(crate) fn get(&self, path: &Path) -> Option<Node> {
        self.shared.get(path)
    }

    /// Requests reads of nodes that are [known by name](Extent::known_by_name). The result of each
    /// read is reported as an update or a deletion.
    pub(crate) fn want(&self, paths: impl IntoIterator<Item = Path>) {
        self.shared.want(paths);
    }

    /// All nodes as of now, from memory.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.shared.snapshot()
    }

    /// The state of the content compared with the store.
    pub(crate) fn state(&self) -> CacheState {
        self.shared.state()
    }

    /// The progress of the read of the whole extent.
    pub(crate) fn progress(&self) -> watch::Receiver<Loaded> {
        self.shared.progress()
    }

    /// Waits until `holds` returns a value for the state. `None` once the client is closed.
    pub(crate) async fn until<T>(&self, holds: impl FnMut(CacheState) -> Option<T>) -> Option<T> {
        self.shared.until(holds).await
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

    /// Waits for a failure that is not transient.
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
        Error::new(ErrorKind::SessionLost, "reading a local copy")
            .at(self.path())
            .because("the client was closed")
    }

    /// The events that produce the content, starting with an empty one. The reader does not keep
    /// the mirror alive.
    pub(crate) fn reader(&self) -> EventReader {
        EventReader::new(self.shared.clone())
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// Shows only the path: the data belongs to the application.
impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.path(), f)
    }
}
