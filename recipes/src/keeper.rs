//! [`NodeKeeper`]: keeps an ephemeral node at a path, with the data that was set last, across sessions.
//!
//! A recipe starts a [`NodeKeeper`] with a client, a path and data, and gets from it
//!
//! - [`NodeKeeper::set`]: other data;
//! - [`NodeKeeper::is_there`] and [`NodeKeeper::presence`]: whether the node is there;
//! - [`NodeKeeper::close`]: the end. A keeper that is dropped ends in the background.
//!
//! What holds for all recipes:
//!
//! - **One task writes.** It makes the node, watches it, and makes it again after every loss: in the next session, or when
//!   another client has removed it. What it waits for ends when the keeper does; a request that it has sent never does, so it
//!   knows of every create whether it is answered.
//! - **The last data wins.** What is set is recorded at once, also while there is no session, and is what the next create
//!   writes. A set expects the version that was read last, so one that arrives late changes nothing that is newer; where it
//!   does, because versions begin again in a new node, and where another client has written, the task writes again.
//! - **A node is its keeper's by its session.** A node of another session is never written, and never removed, unless the
//!   keeper was asked to take it over. One of an earlier session of the same keeper is removed, because it is about to go.
//!   A node of the same session that another keeper made is not taken, either ([`OwnNodes`](own_nodes::OwnNodes)).
//! - **What is gone stays gone.** A create whose answer was lost may take effect after the keeper has ended. If the node of
//!   that create was seen, it cannot. Otherwise the session removes what comes, and the end is reported with an unknown effect.
//! - **No storm.** After a loss or an outage the task waits for a random part of a short time, so that the keepers of many
//!   clients do not all write at once. A session that outlives an outage keeps its node, and no other client sees a change.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream::unfold;
use synod_core::client::Client;
use synod_core::clock::timeout;
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::task;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use crate::keeper::asked::Asked;
use crate::keeper::failures::{DOING, closed, late};
use crate::keeper::keeper_task::KeeperTask;
use crate::keeper::keeping::Keeping;
use crate::keeper::occupant::Occupied;
use crate::keeper::page::KeeperPage;
use crate::keeper::presence::Presence;

pub(crate) mod asked;
pub(crate) mod doubts;
pub(crate) mod failures;
mod keeper_task;
pub(crate) mod keeping;
pub(crate) mod kept;
pub(crate) mod occupant;
pub(crate) mod own_nodes;
pub(crate) mod page;
pub(crate) mod presence;

/// A node that is kept until this is closed or dropped.
#[must_use = "a keeper that is dropped removes its node"]
pub(crate) struct NodeKeeper {
    client: Client,
    path: Path,
    page: Arc<KeeperPage>,
    /// Lives as long as the node is wanted.
    owner: Arc<()>,
    close: oneshot::Sender<()>,
    closed: oneshot::Receiver<Result<()>>,
}

impl NodeKeeper {
    /// Makes an ephemeral node. When this returned without an error, it was there.
    pub(crate) async fn start(
        client: &Client,
        path: &Path,
        occupied: Occupied,
        data: Bytes,
        recipe: &'static str,
    ) -> Result<Self> {
        let page = Arc::new(KeeperPage::new(data));
        let owner = Arc::new(());
        let work = KeeperTask::new(client, path, occupied, page.clone(), Arc::downgrade(&owner));
        Self::run(client, path, (page, owner), work, recipe).await
    }

    /// Makes a node in this manner. When this returned without an error, it was there.
    pub(crate) async fn run(
        client: &Client,
        path: &Path,
        (page, owner): (Arc<KeeperPage>, Arc<()>),
        work: impl Keeping + 'static,
        recipe: &'static str,
    ) -> Result<Self> {
        let (close, asked) = oneshot::channel();
        let (tell, closed) = oneshot::channel();
        let (made, first) = oneshot::channel();
        let keeper =
            Self { client: client.clone(), path: path.clone(), page, owner, close, closed };
        let (client, page) = (client.clone(), keeper.page.clone());
        let span = tracing::info_span!("keeping", recipe, %path);
        let run = async move {
            let keeping = keeping::run(work, (&client, &page), Asked::new(asked), made);
            let _heard = tell.send(Box::pin(keeping).await).is_ok();
        };
        // It ends by itself: when the keeper is closed or dropped, and with the client.
        task::spawn(run.instrument(span)).let_go();
        match timeout(keeper.client.timeout(), first).await {
            Ok(Ok(made)) => made.map(|()| keeper),
            Ok(Err(_ended)) => Err(keeper.over()),
            Err(_late) => Err(keeper.late()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the node is certainly there at this moment, unless another client has just removed it.
    pub(crate) fn is_there(&self) -> bool {
        self.page.is_there()
    }

    /// What is known of the node now.
    pub(crate) fn presence(&self) -> Presence {
        self.page.presence()
    }

    /// What is known of the node, then each change of that. Ends with the keeper.
    pub(crate) fn changes(&self) -> impl Stream<Item = Presence> + Send + use<> {
        let mut presence = self.page.watch();
        presence.mark_changed();
        unfold(presence, |mut presence| async move {
            presence.changed().await.ok()?;
            let now = presence.borrow_and_update().presence.clone();
            Some((now, presence))
        })
    }

    /// Replaces the data: at once for every later create, and when this returned without an error, in the store.
    pub(crate) async fn set(&self, data: Bytes) -> Result<()> {
        match timeout(self.client.timeout(), self.page.want(data)).await {
            Ok(Ok(result)) => result,
            Ok(Err(_ended)) => Err(self.over()),
            Err(_late) => Err(self.late()),
        }
    }

    /// Removes the node: when this returned without an error, it is gone, and does not come back.
    pub(crate) async fn close(self) -> Result<()> {
        let Self { close, closed, owner, .. } = self;
        drop(owner);
        let _asked = close.send(()).is_ok();
        closed.await.unwrap_or(Ok(()))
    }

    fn over(&self) -> Error {
        closed(DOING, &self.path)
    }

    fn late(&self) -> Error {
        late(DOING, &self.path)
    }
}

impl fmt::Debug for NodeKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeKeeper")
            .field("path", &self.path)
            .field("presence", &self.presence())
            .finish_non_exhaustive()
    }
}
