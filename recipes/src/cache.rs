//! [`Cache`]: a local copy of a part of the tree.

use std::fmt;

use futures_core::Stream;
use futures_util::stream::unfold;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::Node;

use crate::mirror::Mirror;
use crate::mirror::event::{CacheEvent, CacheState};
use crate::mirror::extent::Extent;
use crate::mirror::snapshot::Snapshot;

/// A copy in memory of a node, of the children of one, or of one and all below it.
///
/// Reading asks no server. The cache has what the store has, some time after the last change and the last outage, whatever
/// was lost in between: a session, events, or the node at its own path, which may come and go. It never goes back: what it
/// shows of a path is never older than what it has shown before, and it is not emptied to be filled again. Its
/// [state](CacheState) says whether changes may be missing.
///
/// [`events`](Self::events) is a stream of all changes, which makes the same content from an empty map on.
///
/// Clones share everything. The store is followed until the last of them is dropped, and the cache keeps its client open.
///
/// *Not promised*: that what it shows is the latest: a change is in the store before it is here. What must not be decided on
/// an older state is decided by a [`Transaction`](crate::Transaction), or by a write that expects the version. The nodes of
/// one transaction may become visible one after the other.
///
/// # What it costs
///
/// One read of all that its [`Extent`] covers at the start, in each session, and after each outage, which has to be answered
/// within the time that a call of the client may take. Each change is an event; on ZooKeeper also a part of a read of the
/// nodes that changed. The last 4,096 events are kept, with 8 MiB of their data, while a stream of events is there.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path;
/// use synod_recipes::{Cache, Extent};
///
/// # async fn example(client: Client) -> Result<()> {
/// let services = Cache::open(&client, Extent::subtree(path!("/services"))).await?;
/// let all = services.snapshot();
/// println!("{} nodes, {:?}", all.len(), all.state());
/// for service in all.children(&path!("/services")) {
///     println!("{}: {} instances", service.path.name(), all.children(&service.path).len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cache {
    mirror: Mirror,
}

impl Cache {
    /// Starts a cache, and waits until it is complete. A path is the extent of the whole subtree there.
    ///
    /// # Errors
    ///
    /// What the store says if it refuses to be read, and [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is closed. An outage is no
    /// error: the call waits for its end. [`within`](crate::within) gives it a limit.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call follows nothing.
    pub async fn open(client: &Client, extent: impl Into<Extent>) -> Result<Self> {
        let cache = Self::start(client, extent);
        // On the heap, so that the future of a caller stays small.
        Box::pin(cache.complete()).await?;
        Ok(cache)
    }

    /// Starts a cache that is empty at first. It needs a tokio runtime.
    pub fn start(client: &Client, extent: impl Into<Extent>) -> Self {
        Self { mirror: Mirror::start(client, extent.into(), "cache") }
    }

    /// Waits until it is complete: its state is [`CacheState::Live`].
    ///
    /// # Errors
    ///
    /// As [`Cache::open`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn complete(&self) -> Result<()> {
        self.mirror.complete().await
    }

    /// The node at a path, if the cache has it.
    pub fn get(&self, path: &Path) -> Option<Node> {
        self.mirror.get(path)
    }

    /// The nodes right below a path, sorted by path; and places without a node that have nodes below them, without a stat.
    /// Several questions about the same moment are for a [snapshot](Self::snapshot).
    pub fn children(&self, path: &Path) -> Vec<Node> {
        self.mirror.snapshot().children(path)
    }

    /// All nodes as they are here now.
    pub fn snapshot(&self) -> Snapshot {
        self.mirror.snapshot()
    }

    /// How the content compares with the store.
    pub fn state(&self) -> CacheState {
        self.mirror.state()
    }

    /// The events that make the content, from an empty map on: first all nodes that there are now, then each change.
    ///
    /// A slow reader makes neither the cache nor other readers wait: once it misses events, it gets
    /// [`CacheEvent::Reset`] and the content anew. Streams do not keep the cache going: they end with the client, and when its
    /// last clone is dropped.
    pub fn events(&self) -> impl Stream<Item = CacheEvent> + Send + use<> {
        unfold(self.mirror.reader(), |mut reader| async move {
            let event = reader.next().await?;
            Some((event, reader))
        })
    }
}

/// Shows the path only: the data is the application's.
impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("mirror", &self.mirror).finish_non_exhaustive()
    }
}
