//! Transactions that claim an item or take several. Each runs in a task of its own, so that it is
//! not dropped with its caller.

use std::slice::from_ref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::future::try_join_all;
use synod_core::error::{ErrorKind, Result};
use synod_core::held::Token;
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{
    Commit, Expect, Lifetime, OpResult, Query, RejectReason, Rejected, Sequence, Txn,
};
use synod_core::task;
use tokio::sync::oneshot;

use crate::line::hold::Hold;
use crate::line::ticket_node::TicketNode;
use crate::queue::consumer::Consumer;
use crate::queue::delivery::{ClaimedItem, Delivery};
use crate::queue::item_name::ItemName;
use crate::queue::layout::{Codec, DOING, QueueShared};
use crate::queue::stock_shared::Reserved;
use crate::support::detached::{Handed, hand_over, stopped};
use crate::support::exactly_once::settling::{Sent, is_only_lost};
use crate::support::retry::OutageBackoff;
use crate::support::time::date;

/// The result of a try: `None` if another consumer was faster.
pub(super) type TryOutcome<T> = Result<Option<T>>;

/// Claims an item. If the caller is gone by then, the item is put back.
pub(super) async fn claim<T: Send + 'static>(
    shared: Arc<QueueShared>,
    consumer: Arc<OnceLock<Consumer>>,
    reserved: Reserved,
    codec: Codec<T>,
    max_deliveries: u32,
) -> TryOutcome<Delivery<T>> {
    let (sender, receiver) = oneshot::channel();
    let work = async move {
        let tried = claim_once(shared, consumer, &reserved, codec, max_deliveries).await;
        drop(reserved);
        let _is_received = sender.send(tried).is_ok();
    };
    task::spawn(work).let_go();
    receiver.await.unwrap_or_else(|_gone| Err(stopped(DOING)))
}

async fn claim_once<T>(
    shared: Arc<QueueShared>,
    consumer: Arc<OnceLock<Consumer>>,
    reserved: &Reserved,
    codec: Codec<T>,
    max_deliveries: u32,
) -> TryOutcome<Delivery<T>> {
    let (session, before) = (shared.client.session().await?, &reserved.item.name);
    if let Some(consumer) = consumer.get() {
        consumer.ensure_node(&session).await?;
    }
    let Some(data) = data_of(&shared, &session, reserved).await? else { return Ok(None) };
    let (node, name) = (shared.item(before)?, before.next_delivery(reserved.item.created));
    let item = match codec.decode(&node, &data) {
        Ok(item) => item,
        Err(error) => {
            let is_moved =
                move_to_dead(&shared, &session, reserved, data, &error.to_string()).await?;
            return if is_moved { Err(error) } else { Ok(None) };
        }
    };
    let is_spent = before.delivered >= max_deliveries;
    let Some(claim) = shared.claim(&name).ok().filter(|_claim| !is_spent) else {
        let why = if is_spent {
            "it has reached the maximum number of deliveries"
        } else {
            "its name is too long"
        };
        return move_to_dead(&shared, &session, reserved, data, why).await.map(|_is_moved| None);
    };
    let txn = Txn::new()
        .delete(node.clone(), Expect::Any)
        .create(shared.claimed(&name)?, data.clone(), Lifetime::Persistent)
        .create(claim.clone(), date().as_millis().to_string(), Lifetime::Session);
    let commit = match shared.writes.send_without_limit(&session, txn, Some(&node)).await {
        Ok(Sent::Applied(commit)) => commit,
        Ok(Sent::Lost) => return Ok(None),
        Ok(Sent::Rejected(no)) => {
            return lost_race(&shared, from_ref(reserved), &no).map(|()| None);
        }
        // The claim, if there was one, is gone with its session.
        Err(error) if error.kind() == ErrorKind::SessionLost => return Ok(None),
        Err(error) if error.kind() == ErrorKind::TooLarge => {
            let why = error.to_string();
            return move_to_dead(&shared, &session, reserved, data, &why)
                .await
                .map(|_is_moved| None);
        }
        Err(error) => return Err(error),
    };
    reserved.record_gone();
    let Some(hold) = hold_claim(&shared, &session, claim, commit).await?.map(Arc::new) else {
        // The item has no claim any more.
        consumer.get().into_iter().for_each(Consumer::recover_lost_items);
        return Ok(None);
    };
    let is_last = name.delivered >= max_deliveries;
    let claimed = ClaimedItem { shared, consumer, name, data, hold, is_last, is_received: false };
    Ok(Some(Delivery::new(item, claimed)))
}

/// Returns the guard of a claim that was created, or `None` if the claim is gone already.
async fn hold_claim(
    shared: &QueueShared,
    session: &Session,
    claim: Path,
    commit: Option<Commit>,
) -> Result<Option<Hold>> {
    let created =
        commit.into_iter().flat_map(|commit| commit.results).find(|done| done.path == claim);
    let mut stat = created.and_then(|done| done.stat);
    let mut backoff = OutageBackoff::new(&shared.client);
    while stat.is_none() {
        match session.read(Query::node(claim.clone())).await {
            Ok(view) => match view.into_node() {
                Some(node) => stat = node.stat,
                None => return Ok(None),
            },
            Err(error) if error.kind() == ErrorKind::SessionLost => return Ok(None),
            Err(error) => backoff.wait(error).await?,
        }
    }
    let Some(stat) = stat else { return Ok(None) };
    // The name is used for this claim alone, like the name of a sequential node.
    let sequence = Sequence::new(Token::new(stat.created).revision().get());
    let done = OpResult::new(claim).with_stat(stat).with_sequence(sequence);
    Ok(Some(Hold::new(TicketNode::new(session.clone(), done)?, "queue", ())))
}

/// Returns the data of an item, or `None` if the item is gone.
pub(super) async fn data_of(
    shared: &QueueShared,
    session: &Session,
    reserved: &Reserved,
) -> TryOutcome<Bytes> {
    if let Some(data) = &reserved.item.data {
        return Ok(Some(data.clone()));
    }
    let view = match session.read(Query::node(shared.item(&reserved.item.name)?).local()).await {
        Err(error) if is_only_lost(&error) => return Ok(None),
        view => view?,
    };
    let node = view.into_node();
    if node.is_none() {
        reserved.record_gone();
    }
    Ok(node.map(|node| node.data))
}

/// Moves an item that must not be delivered to the dead letters: it would block all others. Returns
/// false if another consumer has it, or if the item is too large even for that; then it stays, and
/// this process does not try it again.
pub(super) async fn move_to_dead(
    shared: &QueueShared,
    session: &Session,
    reserved: &Reserved,
    data: Bytes,
    why: &str,
) -> Result<bool> {
    let name = &reserved.item.name;
    let mut without = shared.without_item(Txn::new(), name)?;
    let dead = match shared.with_dead(Txn::new(), name, data, why).await {
        Err(error) if is_only_lost(&error) => return Ok(false),
        dead => dead?,
    };
    let node = shared.item(name)?;
    let limit = Retry::until_elapsed(session.timeout());
    match shared.send_removal(limit, session, &mut without, &dead, &node).await {
        Ok(Sent::Applied(_)) => {
            tracing::warn!(path = %node, %why, "an item is moved to the dead letters");
            reserved.record_gone();
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::TooLarge => {
            tracing::warn!(path = %node, %why, %error, "an item cannot be moved to the dead letters, and stays in the queue");
            reserved.set_aside();
            Ok(false)
        }
        Ok(Sent::Rejected(no)) => lost_race(shared, from_ref(reserved), &no).map(|()| false),
        Ok(Sent::Lost) => Ok(false),
        Err(error) if is_only_lost(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Updates the stock after the rejection of a transaction on these items. Returns an error unless
/// another consumer explains the rejection.
pub(super) fn lost_race(shared: &QueueShared, tried: &[Reserved], no: &Rejected) -> Result<()> {
    let missing = tried.iter().find(|it| shared.item(&it.item.name).is_ok_and(|at| at == no.path));
    match (&no.reason, missing) {
        (RejectReason::Missing, Some(missing)) => missing.record_gone(),
        _ => return Err(shared.writes.refused(no)),
    }
    Ok(())
}

/// The transaction that takes items, and the items.
struct Batch<T> {
    txn: Txn,
    items: Vec<T>,
    /// The reserved items, in the same order.
    reserved: Vec<Reserved>,
    /// The names and the data with which the items are put back.
    putting_back: Vec<(ItemName, Bytes)>,
}

/// Takes the first of these items: as many as fit into one transaction, up to one that cannot be
/// deserialized. If the caller is gone by then, the items are put back.
pub(super) async fn take<T: Send + 'static>(
    shared: Arc<QueueShared>,
    reserved: Vec<Reserved>,
    codec: Codec<T>,
) -> TryOutcome<Handed<Vec<T>>> {
    let own = shared.clone();
    let work = async move {
        let taken = take_once(&own, reserved, codec).await?;
        Ok(taken.map(|Batch { items, putting_back, .. }| (items, putting_back)))
    };
    let undo = async move |putting_back: Vec<(ItemName, Bytes)>| {
        for (name, data) in putting_back {
            put_back(&shared, name, data).await;
        }
    };
    hand_over(DOING, work, undo).await
}

async fn take_once<T>(
    shared: &QueueShared,
    reserved: Vec<Reserved>,
    codec: Codec<T>,
) -> TryOutcome<Batch<T>> {
    let session = shared.client.session().await?;
    // One operation sets the mark.
    let max = session.info().limits.operations.saturating_sub(1).max(1);
    let mut reserved = reserved;
    let others = reserved.split_off(max.min(reserved.len()));
    others.into_iter().for_each(Reserved::release_untried);
    let data = try_join_all(reserved.iter().map(|it| data_of(shared, &session, it))).await?;
    let mut available = reserved.into_iter().zip(data).filter_map(|(it, data)| Some((it, data?)));
    let mut batch = Batch::new();
    for (reserved, data) in &mut available {
        let left_out = match codec.decode(&shared.item(&reserved.item.name)?, &data) {
            Ok(item) => batch.add(shared, &session, (reserved, item, data))?,
            Err(error) if batch.items.is_empty() => {
                let is_moved =
                    move_to_dead(shared, &session, &reserved, data, &error.to_string()).await?;
                return if is_moved { Err(error) } else { Ok(None) };
            }
            // It is the first item of the next take.
            Err(_unreadable) => Some(reserved),
        };
        if let Some(reserved) = left_out {
            reserved.release_untried();
            break;
        }
    }
    available.for_each(|(reserved, _data)| reserved.release_untried());
    batch.commit(shared, &session).await
}

impl<T> Batch<T> {
    fn new() -> Self {
        Self { txn: Txn::new(), items: vec![], reserved: vec![], putting_back: vec![] }
    }

    /// Adds an item. Returns it if the transaction would become too long.
    fn add(
        &mut self,
        shared: &QueueShared,
        session: &Session,
        (reserved, item, data): (Reserved, T, Bytes),
    ) -> Result<Option<Reserved>> {
        let name = &reserved.item.name;
        let longer = shared.without_item(self.txn.clone(), name)?;
        // One operation sets the mark.
        if longer.ops.len() >= session.info().limits.operations && !self.items.is_empty() {
            return Ok(Some(reserved));
        }
        self.txn = longer;
        self.items.push(item);
        // Its failures are removed.
        self.putting_back.push((name.changed(reserved.item.created).with_failures(false), data));
        self.reserved.push(reserved);
        Ok(None)
    }

    /// Takes the items. Waits without a limit until the effect is known: no other process can
    /// determine it.
    async fn commit(mut self, shared: &QueueShared, session: &Session) -> TryOutcome<Self> {
        let Some(first) = self.reserved.first() else { return Ok(None) };
        let (first, more) = (shared.item(&first.item.name)?, Txn::new());
        match shared.send_removal(Retry::forever(), session, &mut self.txn, &more, &first).await {
            Ok(Sent::Applied(_)) => {
                self.reserved.iter().for_each(Reserved::record_gone);
                Ok(Some(self))
            }
            Ok(Sent::Lost) => Ok(None),
            Ok(Sent::Rejected(no)) => lost_race(shared, &self.reserved, &no).map(|()| None),
            Err(error) if is_only_lost(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Puts an item back whose caller is gone, in its place. If another item has its id or its slot by
/// now, it gets none.
async fn put_back(shared: &QueueShared, name: ItemName, data: Bytes) {
    let mut name = name;
    let put = |name: &ItemName| shared.with_item(Txn::new(), name, data.clone());
    let txn = put(&name).or_else(|_too_long| {
        // Another program has chosen the name.
        name = name.without_id(|| shared.unique_id());
        put(&name)
    });
    let txn = match txn {
        Ok(txn) => txn,
        Err(error) => return tracing::warn!(%name, %error, "an item could not be put back"),
    };
    let instead = |no: &Rejected| {
        name = match no.reason {
            RejectReason::Exists if shared.is_used_id(no) => name.without_id(|| shared.unique_id()),
            RejectReason::Exists if shared.is_filled_slot(no) => name.clone().in_slot(None),
            _ => return None,
        };
        put(&name).ok()
    };
    shared.writes.put_back(&shared.dir, txn, instead).await;
}
