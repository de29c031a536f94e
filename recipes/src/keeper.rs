//! [`NodeKeeper`]: an ephemeral node that is kept at a path across sessions, with the data that was
//! set last.
//!
//! A recipe starts a [`NodeKeeper`] with a client, a path and data, and uses
//!
//! - [`NodeKeeper::set`]: replaces the data;
//! - [`NodeKeeper::is_there`] and [`NodeKeeper::presence`]: the state of the node;
//! - [`NodeKeeper::close`]: removes the node. A dropped keeper removes it in the background.
//!
//! These rules hold for all recipes:
//!
//! - **One task writes.** It creates the node, watches it, and creates it again after every loss:
//!   in the next session, or when another client has removed it. The end of the keeper cancels the
//!   waits of the task, but never a request in flight, so the task knows for every create whether
//!   it was answered.
//! - **The last data wins.** New data is recorded immediately, even while there is no session, and
//!   the next create writes it. A set expects the version that was read last, so a delayed set
//!   overwrites nothing newer. If it does, because versions start again in a new node, or if
//!   another client has written, the task writes again.
//! - **The session decides on ownership.** A keeper owns the node at its path if, and only if, the
//!   keeper's session owns it in the store. A node of another session is never written, and never
//!   removed, unless the keeper was started to take over. A node of an earlier session of the same
//!   keeper is removed, because it is about to be removed anyway. A node of the same session that
//!   another keeper created is not taken, either ([`OwnNodes`](node::OwnNodes)).
//! - **A removed node does not reappear.** A create whose response was lost may take effect after
//!   the keeper has ended, unless its node was seen before. Otherwise the session removes the node
//!   when it appears, and the end of the keeper is reported with an unknown effect.
//! - **No thundering herd.** After a loss or an outage the task waits for a random part of a short
//!   time, so that the keepers of many clients do not write at the same time. A session that
//!   outlives an outage keeps its node, and no other client sees a change.
//!
//! # Decisions that are easy to undo by mistake
//!
//! - **A sent create is never dropped.** Its name has no id, so an unanswered create stays
//!   unresolved as long as its session lives: it may take effect after the node was removed. The
//!   task waits for each answer and counts the unresolved creates. A create is resolved when its
//!   node is seen, because a request creates at most one node.
//! - **The watch and the reads belong to the session**, not to the client: the node ends with the
//!   session, and the task starts again.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream::unfold;
use synod_core::client::Client;
use synod_core::clock::timeout;
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::task::spawn;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use crate::keeper::failures::DOING;
use crate::keeper::node::Occupied;
use crate::keeper::state::{KeeperShared, Presence};
use crate::keeper::task::{CloseRequest, KeeperTask, Keeping};
use crate::support::detached::{closed, late};

pub(crate) mod doubts;
pub(crate) mod failures;
pub(crate) mod node;
pub(crate) mod state;
pub(crate) mod task;

/// A node that is kept until this is closed or dropped.
#[must_use = "dropping this removes the node"]
pub(crate) struct NodeKeeper {
    client: Client,
    path: Path,
    shared: Arc<KeeperShared>,
    /// Alive as long as the node is wanted.
    owner: Arc<()>,
    close: oneshot::Sender<()>,
    closed: oneshot::Receiver<Result<()>>,
}

impl NodeKeeper {
    /// Creates an ephemeral node. When this returns without an error, the node exists.
    pub(crate) async fn start(
        client: &Client,
        path: &Path,
        occupied: Occupied,
        data: Bytes,
        recipe: &'static str,
    ) -> Result<Self> {
        let shared = Arc::new(KeeperShared::new(data));
        let owner = Arc::new(());
        let work = KeeperTask::new(client, path, occupied, shared.clone(), Arc::downgrade(&owner));
        Self::run(client, path, (shared, owner), work, recipe).await
    }

    /// Keeps a node by `work`. When this returns without an error, the node exists.
    pub(crate) async fn run(
        client: &Client,
        path: &Path,
        (shared, owner): (Arc<KeeperShared>, Arc<()>),
        work: impl Keeping + 'static,
        recipe: &'static str,
    ) -> Result<Self> {
        let (close, close_rx) = oneshot::channel();
        let (closed_tx, closed) = oneshot::channel();
        let (created, first) = oneshot::channel();
        let keeper =
            Self { client: client.clone(), path: path.clone(), shared, owner, close, closed };
        let (client, shared) = (client.clone(), keeper.shared.clone());
        let span = tracing::info_span!("keeping", recipe, %path);
        let run = async move {
            let keeping = task::run(work, (&client, &shared), CloseRequest::new(close_rx), created);
            let _is_received = closed_tx.send(Box::pin(keeping).await).is_ok();
        };
        // The task ends when the keeper is closed or dropped, and with the client.
        spawn(run.instrument(span)).let_go();
        match timeout(keeper.client.timeout(), first).await {
            Ok(Ok(created)) => created.map(|()| keeper),
            Ok(Err(_ended)) => Err(keeper.over()),
            Err(_late) => Err(keeper.late()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns `true` if the node certainly exists at this moment, unless another client has just
    /// removed it.
    pub(crate) fn is_there(&self) -> bool {
        self.shared.is_there()
    }

    /// The last known state of the node.
    pub(crate) fn presence(&self) -> Presence {
        self.shared.presence()
    }

    /// The last known state of the node, then each change of it. Ends with the keeper.
    pub(crate) fn changes(&self) -> impl Stream<Item = Presence> + Send + use<> {
        let mut presence = self.shared.watch();
        presence.mark_changed();
        unfold(presence, |mut presence| async move {
            presence.changed().await.ok()?;
            let now = presence.borrow_and_update().presence.clone();
            Some((now, presence))
        })
    }

    /// Replaces the data: immediately for every later create, and in the store when this returns
    /// without an error.
    pub(crate) async fn set(&self, data: Bytes) -> Result<()> {
        match timeout(self.client.timeout(), self.shared.set(data)).await {
            Ok(Ok(result)) => result,
            Ok(Err(_ended)) => Err(self.over()),
            Err(_late) => Err(self.late()),
        }
    }

    /// Removes the node. When this returns without an error, the node is removed and will not
    /// reappear.
    pub(crate) async fn close(self) -> Result<()> {
        let Self { close, closed, owner, .. } = self;
        drop(owner);
        let _is_received = close.send(()).is_ok();
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
