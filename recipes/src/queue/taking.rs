//! The tries to claim an item that is reserved, and what they have in common with those to take one. Each is one transaction, and
//! runs in a task of its own: it is not dropped with its caller.

use std::slice::from_ref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
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

use crate::cell::patience::Patience;
use crate::line::hold::Hold;
use crate::line::ticket_node::TicketNode;
use crate::queue::claimed_item::ClaimedItem;
use crate::queue::codec::Codec;
use crate::queue::consumer::Consumer;
use crate::queue::delivery::Delivery;
use crate::queue::place::{DOING, QueuePlace};
use crate::queue::stock_shared::Reserved;
use crate::stamped::date::date;
use crate::stamped::handing::stopped;
use crate::stamped::sent::{Sent, is_only_lost};

/// What a try comes to: `None` if another consumer was faster.
pub(super) type TryOutcome<T> = Result<Option<T>>;

/// Claims an item. If the caller is gone when it is claimed, it is put back.
pub(super) async fn claim<T: Send + 'static>(
    place: Arc<QueuePlace>,
    consumer: Arc<OnceLock<Consumer>>,
    reserved: Reserved,
    codec: Codec<T>,
    most: u32,
) -> TryOutcome<Delivery<T>> {
    let (tell, told) = oneshot::channel();
    let work = async move {
        let tried = claim_once(place, consumer, &reserved, codec, most).await;
        drop(reserved);
        let _heard = tell.send(tried).is_ok();
    };
    task::spawn(work).let_go();
    told.await.unwrap_or_else(|_gone| Err(stopped(DOING)))
}

async fn claim_once<T>(
    place: Arc<QueuePlace>,
    consumer: Arc<OnceLock<Consumer>>,
    reserved: &Reserved,
    codec: Codec<T>,
    most: u32,
) -> TryOutcome<Delivery<T>> {
    let (session, before) = (place.client.session().await?, &reserved.item.name);
    if let Some(consumer) = consumer.get() {
        consumer.ensure_node(&session).await?;
    }
    let Some(data) = data_of(&place, &session, reserved).await? else { return Ok(None) };
    let (node, name) = (place.item(before)?, before.next(reserved.item.created));
    let item = match codec.decode(&node, &data) {
        Ok(item) => item,
        Err(error) => {
            let is_buried = bury(&place, &session, reserved, data, &error.to_string()).await?;
            return if is_buried { Err(error) } else { Ok(None) };
        }
    };
    let is_spent = before.delivered >= most;
    let Some(claim) = place.claim(&name).ok().filter(|_claim| !is_spent) else {
        let why = if is_spent { "it was delivered too often" } else { "its name is too long" };
        return bury(&place, &session, reserved, data, why).await.map(|_is_buried| None);
    };
    let txn = Txn::new()
        .delete(node.clone(), Expect::Any)
        .create(place.claimed(&name)?, data.clone(), Lifetime::Persistent)
        .create(claim.clone(), date().as_millis().to_string(), Lifetime::Session);
    let commit = match place.writes.send_patiently(&session, txn, Some(&node)).await {
        Ok(Sent::Applied(commit)) => commit,
        Ok(Sent::Lost) => return Ok(None),
        Ok(Sent::Rejected(no)) => return lost_race(&place, from_ref(reserved), &no).map(|()| None),
        // The claim is gone with its session, if it was there.
        Err(error) if error.kind() == ErrorKind::SessionLost => return Ok(None),
        Err(error) if error.kind() == ErrorKind::TooLarge => {
            let why = error.to_string();
            return bury(&place, &session, reserved, data, &why).await.map(|_is_buried| None);
        }
        Err(error) => return Err(error),
    };
    reserved.record_gone();
    let Some(hold) = hold(&place, &session, claim, commit).await?.map(Arc::new) else {
        // The item is left without its claim.
        consumer.get().into_iter().for_each(Consumer::look_for_lost_items);
        return Ok(None);
    };
    let is_last = name.delivered >= most;
    let claimed = ClaimedItem { place, consumer, name, data, hold, is_last, is_received: false };
    Ok(Some(Delivery::new(item, claimed)))
}

/// The guard of a claim that was made. `None` if it has gone already.
async fn hold(
    place: &QueuePlace,
    session: &Session,
    claim: Path,
    commit: Option<Commit>,
) -> Result<Option<Hold>> {
    let made = commit.into_iter().flat_map(|commit| commit.results).find(|done| done.path == claim);
    let mut stat = made.and_then(|done| done.stat);
    let mut patience = Patience::new(&place.client);
    while stat.is_none() {
        match session.read(Query::node(claim.clone())).await {
            Ok(view) => match view.into_node() {
                Some(node) => stat = node.stat,
                None => return Ok(None),
            },
            Err(error) if error.kind() == ErrorKind::SessionLost => return Ok(None),
            Err(error) => patience.rest(error).await?,
        }
    }
    let Some(stat) = stat else { return Ok(None) };
    // The name is used for this claim alone, as that of a sequential node is.
    let sequence = Sequence::new(Token::new(stat.created).revision().get());
    let done = OpResult::new(claim).with_stat(stat).with_sequence(sequence);
    Ok(Some(Hold::new(TicketNode::new(session.clone(), done)?, "queue", ())))
}

/// The data of an item. `None` if it is not there any more.
pub(super) async fn data_of(
    place: &QueuePlace,
    session: &Session,
    reserved: &Reserved,
) -> TryOutcome<Bytes> {
    if let Some(data) = &reserved.item.data {
        return Ok(Some(data.clone()));
    }
    let view = match session.read(Query::node(place.item(&reserved.item.name)?).local()).await {
        Err(error) if is_only_lost(&error) => return Ok(None),
        view => view?,
    };
    let node = view.into_node();
    if node.is_none() {
        reserved.record_gone();
    }
    Ok(node.map(|node| node.data))
}

/// Moves an item that is not to be delivered to the dead letters: it would be in the way of all others. Returns whether it did, and no
/// other consumer has it. What is too large even for that stays where it is, and this process tries it no more.
pub(super) async fn bury(
    place: &QueuePlace,
    session: &Session,
    reserved: &Reserved,
    data: Bytes,
    why: &str,
) -> Result<bool> {
    let name = &reserved.item.name;
    let mut without = place.without_item(Txn::new(), name)?;
    let (node, dead) = (place.item(name)?, place.with_dead(Txn::new(), name, data)?);
    let limit = Retry::until_elapsed(session.timeout());
    match place.send_removal(limit, session, &mut without, &dead, &node).await {
        Ok(Sent::Applied(_)) => {
            tracing::warn!(path = %node, %why, "an item is moved to the dead letters");
            reserved.record_gone();
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::TooLarge => {
            tracing::warn!(path = %node, %why, %error, "an item cannot be moved to the dead letters, and stays");
            reserved.set_aside();
            Ok(false)
        }
        Ok(Sent::Rejected(no)) => lost_race(place, from_ref(reserved), &no).map(|()| false),
        Ok(Sent::Lost) => Ok(false),
        Err(error) if is_only_lost(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Learns from the rejection of a transaction that needs these items. An error if no other consumer explains it.
pub(super) fn lost_race(place: &QueuePlace, tried: &[Reserved], no: &Rejected) -> Result<()> {
    let missing = tried.iter().find(|it| place.item(&it.item.name).is_ok_and(|at| at == no.path));
    match (&no.reason, missing) {
        (RejectReason::Missing, Some(missing)) => missing.record_gone(),
        _ => return Err(place.writes.refused(no)),
    }
    Ok(())
}
