//! Items on their way back into a queue: items whose delivery has ended without an acknowledgement,
//! and items of consumers that are gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Expect, Lifetime, Node, OpResult, Query, RejectReason, Rejected};
use synod_core::task;
use tokio::sync::{Mutex, Notify, mpsc, oneshot};

use crate::line::hold::Hold;
use crate::mutant::mistake;
use crate::queue::item_name::ItemName;
use crate::queue::layout::{DOING, QueueShared};
use crate::queue::put::shuffled;
use crate::queue::stock_shared::StockShared;
use crate::support::exactly_once::settling::Sent;
use crate::support::retry::OutageBackoff;

/// An item whose delivery has ended without an acknowledgement.
pub(super) struct ItemReturn {
    /// The claim of the item, which is marked as ended.
    pub(super) hold: Arc<Hold>,
    pub(super) name: ItemName,
    /// The name of the item once it waits again.
    pub(super) next: ItemName,
    pub(super) data: Bytes,
    /// Receives the answer.
    pub(super) sender: oneshot::Sender<Result<()>>,
}

/// Starts the task that puts items back. The task runs, and keeps the node of this consumer, until
/// the last sender is dropped and all items are back. It exists because a drop can send to a
/// channel, but cannot always spawn.
pub(super) fn spawn_returns(
    shared: &Arc<QueueShared>,
    node: Arc<ConsumerNode>,
    stock: Arc<StockShared>,
    lost: Arc<Notify>,
) -> mpsc::UnboundedSender<ItemReturn> {
    let (sender, returns) = mpsc::unbounded_channel::<ItemReturn>();
    let shared = shared.clone();
    let work = async move {
        let next = async |mut returns: mpsc::UnboundedReceiver<ItemReturn>| {
            let next = returns.recv().await?;
            Some((next, returns))
        };
        let (shared, stock, lost) = (&*shared, &*stock, &*lost);
        let all = unfold(returns, next);
        all.for_each_concurrent(None, |item| item.put_back(shared, stock, lost)).await;
        drop(node);
    };
    task::spawn(work).let_go();
    sender
}

impl ItemReturn {
    async fn put_back(self, shared: &QueueShared, stock: &StockShared, lost: &Notify) {
        mistake!(ClaimsNeverEnd: return);
        let answer = self.send(shared).await.map(|returned| stock.add_returned(returned));
        if answer.is_err() {
            // If the item is still claimed, it is lost.
            self.hold.node.abandon();
            lost.notify_one();
        }
        let _is_received = self.sender.send(answer).is_ok();
    }

    /// Puts the item back. Returns the path of its new node.
    async fn send(&self, shared: &QueueShared) -> Result<Path> {
        let (node, claim) = (shared.claimed(&self.name)?, self.hold.node.path());
        let txn = shared.back(&node, &self.next.to_string(), self.data.clone())?;
        let txn = txn.delete(claim, Expect::Any);
        match shared.writes.send_without_limit(self.hold.node.session(), txn, Some(&node)).await? {
            Sent::Applied(_) => shared.item(&self.next),
            Sent::Lost | Sent::Rejected(_) => Err(self.hold.node.was_lost()),
        }
    }
}

/// The ephemeral node by which other consumers notice that the claims of this process are gone, so
/// that they need not follow the claims. It is created before the first claim of a session, and
/// expires together with the claims. It is removed when this value is dropped.
pub(super) struct ConsumerNode {
    consumers: Path,
    node: Mutex<Option<(Session, OpResult)>>,
}

impl ConsumerNode {
    /// Prepares the node in the directory at `consumers`. Nothing is created yet.
    pub(super) fn new(consumers: Path) -> Self {
        Self { consumers, node: Mutex::default() }
    }

    /// Creates the node for this session, unless that was done before.
    pub(super) async fn ensure(&self, session: &Session) -> Result<()> {
        let mut node = self.node.lock().await;
        if node.as_ref().is_some_and(|(owner, _)| owner.info().id == session.info().id) {
            return Ok(());
        }
        let name = session.unique(&self.consumers.join("consumer-")?)?;
        let created = session.create_sequential(&name, "", Lifetime::Session).await?.required()?;
        *node = Some((session.clone(), created));
        Ok(())
    }
}

impl Drop for ConsumerNode {
    fn drop(&mut self) {
        if let Some((session, node)) = self.node.get_mut().take() {
            session.remove_in_background(&node);
        }
    }
}

/// Puts back items without consumers whenever that is requested, until the client is closed. It is
/// requested when a consumer starts, after an outage, and when the node of another consumer is
/// gone.
pub(super) async fn recover_lost_items(shared: Arc<QueueShared>, requested: Arc<Notify>) {
    loop {
        requested.notified().await;
        let mut backoff = OutageBackoff::new(&shared.client);
        while let Err(error) = put_back_all(&shared).await {
            let path = &shared.dir;
            if let Err(error) = backoff.wait_out(error).await {
                tracing::debug!(%path, %error, "items whose consumers are gone are left to others");
                break;
            }
        }
    }
}

/// Puts the items whose claims are gone back into the queue. A claim is deleted once and never
/// created again. So an item that was listed before the claims, and has no claim, has no consumer.
async fn put_back_all(shared: &QueueShared) -> Result<()> {
    mistake!(ClaimsNeverEnd: return Ok(()));
    let session = shared.client.session().await?;
    let claimed = names(&session, &shared.claimed).await?;
    if claimed.is_empty() {
        return Ok(());
    }
    let claims = names(&session, &shared.claims).await?;
    let has_claim: BTreeSet<&str> = claims.iter().map(|node| node.path.name()).collect();
    let lost = claimed.iter().map(|node| &node.path).filter(|path| is_lost(&has_claim, path));
    // Other consumers do the same now.
    for path in shuffled(lost.collect(), shared.client.random()) {
        put_back(shared, &session, path).await?;
    }
    Ok(())
}

fn is_lost(has_claim: &BTreeSet<&str>, path: &Path) -> bool {
    mistake!(ClaimIgnored: return true);
    !has_claim.contains(path.name())
}

async fn names(session: &Session, dir: &Path) -> Result<Vec<Node>> {
    Ok(session.read(Query::children(dir).names_only()).await?.nodes)
}

/// Puts an item back in its place, unless another consumer was faster.
async fn put_back(shared: &QueueShared, session: &Session, path: &Path) -> Result<()> {
    let Some(node) = session.read(Query::node(path)).await?.into_node() else { return Ok(()) };
    let txn = shared.back(path, path.name(), node.data)?;
    match shared.writes.send(session, txn, Some(path)).await? {
        Sent::Applied(_) | Sent::Rejected(Rejected { reason: RejectReason::Missing, .. }) => Ok(()),
        Sent::Rejected(no) => Err(shared.writes.refused(&no)),
        Sent::Lost => Err(Error::new(ErrorKind::SessionLost, DOING).at(path)),
    }
}
