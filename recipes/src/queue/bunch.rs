//! [`take`]: takes items out of the queue, several in one transaction.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use synod_core::error::Result;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{RejectReason, Rejected, Txn};

use crate::queue::codec::Codec;
use crate::queue::item_name::ItemName;
use crate::queue::place::{DOING, QueuePlace};
use crate::queue::stock_shared::Reserved;
use crate::queue::taking::{TryOutcome, bury, data_of, lost_race};
use crate::stamped::handing::{Handed, hand_over};
use crate::stamped::sent::{Sent, is_only_lost};

/// The transaction that takes items, and what it takes.
struct Bunch<T> {
    txn: Txn,
    items: Vec<T>,
    /// The items as they are in the queue, in the same order.
    reserved: Vec<Reserved>,
    /// What puts them back: the names that they get, and their data.
    putting_back: Vec<(ItemName, Bytes)>,
}

/// Takes of these items as many of the first as one transaction takes, up to one that cannot be read. If the caller is gone when
/// they are taken, they are put back.
pub(super) async fn take<T: Send + 'static>(
    place: Arc<QueuePlace>,
    reserved: Vec<Reserved>,
    codec: Codec<T>,
) -> TryOutcome<Handed<Vec<T>>> {
    let own = place.clone();
    let work = async move {
        let taken = take_once(&own, reserved, codec).await?;
        Ok(taken.map(|Bunch { items, putting_back, .. }| (items, putting_back)))
    };
    let undo = async move |putting_back: Vec<(ItemName, Bytes)>| {
        for (name, data) in putting_back {
            put_back(&place, name, data).await;
        }
    };
    hand_over(DOING, work, undo).await
}

async fn take_once<T>(
    place: &QueuePlace,
    reserved: Vec<Reserved>,
    codec: Codec<T>,
) -> TryOutcome<Bunch<T>> {
    let session = place.client.session().await?;
    // One operation is that of the mark.
    let most = session.info().limits.operations.saturating_sub(1).max(1);
    let mut reserved = reserved;
    let others = reserved.split_off(most.min(reserved.len()));
    others.into_iter().for_each(Reserved::was_not_tried);
    let data = try_join_all(reserved.iter().map(|it| data_of(place, &session, it))).await?;
    let mut found = reserved.into_iter().zip(data).filter_map(|(it, data)| Some((it, data?)));
    let mut bunch = Bunch::new();
    for (reserved, data) in &mut found {
        let left_out = match codec.decode(&place.item(&reserved.item.name)?, &data) {
            Ok(item) => bunch.add(place, &session, (reserved, item, data))?,
            Err(error) if bunch.items.is_empty() => {
                let is_buried = bury(place, &session, &reserved, data, &error.to_string()).await?;
                return if is_buried { Err(error) } else { Ok(None) };
            }
            // It is the first one of the next take.
            Err(_unreadable) => Some(reserved),
        };
        if let Some(reserved) = left_out {
            reserved.was_not_tried();
            break;
        }
    }
    found.for_each(|(reserved, _data)| reserved.was_not_tried());
    bunch.take(place, &session).await
}

impl<T> Bunch<T> {
    fn new() -> Self {
        Self { txn: Txn::new(), items: vec![], reserved: vec![], putting_back: vec![] }
    }

    /// Adds an item. Returns it if the transaction is too long with it.
    fn add(
        &mut self,
        place: &QueuePlace,
        session: &Session,
        (reserved, item, data): (Reserved, T, Bytes),
    ) -> Result<Option<Reserved>> {
        let name = &reserved.item.name;
        let longer = place.without_item(self.txn.clone(), name)?;
        // One operation is that of the mark, and sets it.
        if longer.ops.len() >= session.info().limits.operations && !self.items.is_empty() {
            return Ok(Some(reserved));
        }
        self.txn = longer;
        self.items.push(item);
        self.putting_back.push((name.changed(reserved.item.created), data));
        self.reserved.push(reserved);
        Ok(None)
    }

    /// Takes the items, however long it takes to find out whether they are taken: no other process can.
    async fn take(mut self, place: &QueuePlace, session: &Session) -> TryOutcome<Self> {
        let Some(first) = self.reserved.first() else { return Ok(None) };
        let (first, more) = (place.item(&first.item.name)?, Txn::new());
        match place.send_removal(Retry::forever(), session, &mut self.txn, &more, &first).await {
            Ok(Sent::Applied(_)) => {
                self.reserved.iter().for_each(Reserved::record_gone);
                Ok(Some(self))
            }
            Ok(Sent::Lost) => Ok(None),
            Ok(Sent::Rejected(no)) => lost_race(place, &self.reserved, &no).map(|()| None),
            Err(error) if is_only_lost(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Puts an item back whose caller is gone, in its place. Since it was taken, another item may have got its id, or its slot in a
/// bounded queue; then it has none.
async fn put_back(place: &QueuePlace, name: ItemName, data: Bytes) {
    let mut name = name;
    let put = |name: &ItemName| place.with_item(Txn::new(), name, data.clone());
    let txn = put(&name).or_else(|_too_long| {
        // Another program has chosen its name.
        name = name.without_id(|| place.unique_id());
        put(&name)
    });
    let txn = match txn {
        Ok(txn) => txn,
        Err(error) => return tracing::warn!(%name, %error, "an item could not be put back"),
    };
    let instead = |no: &Rejected| {
        name = match no.reason {
            RejectReason::Exists if place.is_used_id(no) => name.without_id(|| place.unique_id()),
            RejectReason::Exists if place.is_filled_slot(no) => name.clone().in_slot(None),
            _ => return None,
        };
        put(&name).ok()
    };
    place.writes.put_back(&place.dir, txn, instead).await;
}
