//! [`PersistentNode`]: a node that is made again after every loss: an ephemeral one, or one with a time to live.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;

use crate::keeper::NodeKeeper;
use crate::keeper::occupant::Occupied;
use crate::keeper::page::KeeperPage;
use crate::keeper::presence::Presence;
use crate::persistent_node::lasting::LastingTask;

mod lasting;
mod lasting_create;
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

    /// Makes the node one with a time to live, in place of an ephemeral one: it outlives the sessions of its owner, which
    /// writes it three times in this time, and goes when its owner is silent for so long. Needs a store with such nodes.
    /// [`keep`](Self::keep) refuses less than a tenth of a second as [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid).
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// Removes the node of another client that is there when [`keep`](Self::keep) is called: that of an owner that is gone
    /// without having removed it, or of one that is to be replaced. A former owner that is alive makes no other node as long as
    /// this one is there.
    pub fn take_over(self) -> Self {
        Self { occupied: Occupied::TakeOver, ..self }
    }

    /// Makes the node with this data, and keeps it. When this returned without an error, the node was there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if another client or another owner of this client has a
    /// node there, or if there are nodes below the path,
    /// [`ErrorKind::Unsupported`](synod_core::error::ErrorKind::Unsupported) if it is to have a time to live and the store has no
    /// such nodes, [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable) if the node could not be made within the deadline
    /// of the client, and what the store says. No node stays then, or for no longer than its time to live.
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
                let page = Arc::new(KeeperPage::new(data));
                let work = LastingTask::new(client, path, ttl, self.occupied, page.clone())?;
                NodeKeeper::run(client, path, (page, Arc::new(())), work, RECIPE).await?
            }
        };
        Ok(KeptNode { keeper })
    }
}

impl KeptNode {
    /// Where the node is.
    pub fn path(&self) -> &Path {
        self.keeper.path()
    }

    /// Whether the node is there, and its session, or the node itself, certainly lives at this moment. Asks no server.
    pub fn is_there(&self) -> bool {
        self.keeper.is_there()
    }

    /// What is known of the node now. Asks no server.
    pub fn presence(&self) -> Presence {
        self.keeper.presence()
    }

    /// What is known of the node now, then each change. A reader that reads seldom misses those that were replaced. The stream
    /// ends with the keeping.
    pub fn changes(&self) -> impl Stream<Item = Presence> + Send + use<> {
        self.keeper.changes()
    }

    /// Replaces the data. It is recorded at once, and is what the node has when it is made again, whatever becomes of this
    /// call. When this returned without an error, the store has it, or data that was set later.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable), with an unknown effect, if the store did not
    /// answer within the deadline of the client: it is stored as soon as it does.
    /// [`ErrorKind::TooLarge`](synod_core::error::ErrorKind::TooLarge) and whatever else the store refuses: the data before it
    /// stays.
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: the data is stored.
    pub async fn set(&self, data: impl Into<Bytes>) -> Result<()> {
        self.keeper.set(data.into()).await
    }

    /// Removes the node: when this returned without an error, it is gone, and does not come back.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable), with an unknown effect, if the store did not
    /// answer in time, or if it has not answered an earlier request to make the node, which may still arrive. The node is then
    /// removed in the background, or goes with its session or when its time to live is over.
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
