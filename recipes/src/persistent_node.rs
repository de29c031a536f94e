//! [`PersistentNode`]: a node that is created again after every loss, ephemeral or with a TTL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;

use crate::keeper::NodeKeeper;
use crate::keeper::node::Occupied;
use crate::keeper::state::{KeeperShared, Presence};
use crate::persistent_node::lasting::LastingTask;

mod lasting;
mod lasting_node;

#[cfg_attr(not(doctest), doc = include_str!("../docs/persistent_node.md"))]
#[derive(Clone, Debug)]
pub struct PersistentNode {
    client: Client,
    path: Path,
    occupied: Occupied,
    ttl: Option<Duration>,
}

/// A node that is kept. Dropping this removes the node in the background.
#[must_use = "dropping this removes the node"]
pub struct KeptNode {
    keeper: NodeKeeper,
}

impl PersistentNode {
    /// The node at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { client: client.clone(), path: path.into(), occupied: Occupied::Refuse, ttl: None }
    }

    /// Keeps a TTL node instead of an ephemeral one. The node outlives the sessions of its owner,
    /// which writes it three times per TTL, and expires if its owner does not write for one TTL.
    /// Needs a store with TTL nodes. [`keep`](Self::keep) rejects less than a tenth of a second as
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid).
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// Lets [`keep`](Self::keep) remove an existing node of another client: the node of an owner
    /// that ended without removing it, or of an owner that should be replaced. A previous owner
    /// that is alive does not create its node again as long as this one exists.
    pub fn take_over(self) -> Self {
        Self { occupied: Occupied::TakeOver, ..self }
    }

    /// Creates the node with this data, and keeps it. When this returns without an error, the node
    /// exists.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if another client or another
    /// owner of this client has a node there, or if there are nodes below the path,
    /// [`ErrorKind::Unsupported`](synod_core::error::ErrorKind::Unsupported) if a TTL is set and
    /// the store has no TTL nodes,
    /// [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable) if the node could not
    /// be created within the time limit of the client, and any error that the store returns. After
    /// an error no node remains, or only until its TTL expires.
    ///
    /// # Cancel safety
    ///
    /// A dropped call removes the node in the background.
    pub async fn keep(&self, data: impl Into<Bytes>) -> Result<KeptNode> {
        const RECIPE: &str = "persistent_node";
        let (client, path, data) = (&self.client, &self.path, data.into());
        let keeper = match self.ttl {
            None => NodeKeeper::start(client, path, self.occupied, data, RECIPE).await?,
            Some(ttl) => {
                let shared = Arc::new(KeeperShared::new(data));
                let work = LastingTask::new(client, path, ttl, self.occupied, shared.clone())?;
                NodeKeeper::run(client, path, (shared, Arc::new(())), work, RECIPE).await?
            }
        };
        Ok(KeptNode { keeper })
    }
}

impl KeptNode {
    /// The path of the node.
    pub fn path(&self) -> &Path {
        self.keeper.path()
    }

    /// Returns `true` if the node exists, and its session, or the node itself, is certainly alive.
    /// Sends nothing to the store.
    pub fn is_there(&self) -> bool {
        self.keeper.is_there()
    }

    /// The last known state of the node. Sends nothing to the store.
    pub fn presence(&self) -> Presence {
        self.keeper.presence()
    }

    /// The last known state of the node, then each change. A slow reader may miss states that were
    /// replaced. The stream ends with the keeper.
    pub fn changes(&self) -> impl Stream<Item = Presence> + Send + use<> {
        self.keeper.changes()
    }

    /// Replaces the data. It is recorded immediately, and a later create of the node uses it,
    /// regardless of the result of this call. When this returns without an error, the store has
    /// this data, or data that was set later.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable), with an unknown
    /// effect, if the store did not answer within the time limit of the client: the data is stored
    /// as soon as it answers. [`ErrorKind::TooLarge`](synod_core::error::ErrorKind::TooLarge), or
    /// any other error with which the store rejects the data: the previous data stays.
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: the data is stored.
    pub async fn set(&self, data: impl Into<Bytes>) -> Result<()> {
        self.keeper.set(data.into()).await
    }

    /// Removes the node. When this returns without an error, the node is removed and will not
    /// reappear.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable), with an unknown
    /// effect, if the store did not answer in time, or if it has not answered an earlier request to
    /// create the node, which may still arrive. The node is then removed in the background, or with
    /// its session, or when its TTL expires.
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: the node is removed.
    pub async fn close(self) -> Result<()> {
        self.keeper.close().await
    }
}

impl fmt::Debug for KeptNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptNode").field("keeper", &self.keeper).finish()
    }
}
