//! [`Cache`]: a local copy of a part of the tree.

pub use crate::cache::typed_cache::TypedCache;
pub use crate::mirror::event::{CacheEvent, CacheState};
pub use crate::mirror::extent::Extent;
pub use crate::mirror::snapshot::Snapshot;
pub use crate::watched::{Watched, WatchedValue};

use std::fmt;

use futures_core::Stream;
use futures_util::stream::unfold;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Loaded, Node};
use tokio::sync::watch;

use crate::mirror::Mirror;

mod typed_cache;

#[cfg_attr(not(doctest), doc = include_str!("../docs/cache.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/mirrors.md"))]
#[derive(Clone)]
pub struct Cache {
    mirror: Mirror,
}

impl Cache {
    /// Starts a cache, and waits until it is complete. A path as `extent` means its whole subtree.
    ///
    /// # Errors
    ///
    /// The error with which the store rejects reads, and
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is
    /// closed. An outage is not an error: the call waits for its end. [`within`](crate::within)
    /// sets a limit.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves no task and no watch.
    pub async fn open(client: &Client, extent: impl Into<Extent>) -> Result<Self> {
        let cache = Self::start(client, extent);
        // Boxed, so that the future of a caller stays small.
        Box::pin(cache.complete()).await?;
        Ok(cache)
    }

    /// Starts a cache that is empty at first. Needs a tokio runtime.
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

    /// The nodes directly below a path, sorted by path. A path without a node but with nodes below
    /// it is included, without a stat. For several consistent reads take a
    /// [snapshot](Self::snapshot).
    pub fn children(&self, path: &Path) -> Vec<Node> {
        self.mirror.snapshot().children(path)
    }

    /// All nodes that the cache contains now.
    pub fn snapshot(&self) -> Snapshot {
        self.mirror.snapshot()
    }

    /// The state of the content compared with the store.
    pub fn state(&self) -> CacheState {
        self.mirror.state()
    }

    /// The progress of the read of the whole extent, after the start and after each outage. A large
    /// tree takes several requests, and the progress changes after each. A depth and a filter do
    /// not reduce the read.
    pub fn progress(&self) -> watch::Receiver<Loaded> {
        self.mirror.progress()
    }

    /// The events that produce the content, starting with an empty map: first all current nodes,
    /// then each change.
    ///
    /// A slow reader delays neither the cache nor other readers: if it misses events, it gets
    /// [`CacheEvent::Reset`] and the content from the beginning. Streams do not keep the cache
    /// alive: they end with the client, and when its last clone is dropped.
    pub fn events(&self) -> impl Stream<Item = CacheEvent> + Send + use<> {
        unfold(self.mirror.reader(), |mut reader| async move {
            let event = reader.next().await?;
            Some((event, reader))
        })
    }
}

/// Shows only the path: the data belongs to the application.
impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("mirror", &self.mirror).finish_non_exhaustive()
    }
}
