//! [`take`]: takes items out of the queue, several in one transaction.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use synod_core::error::Result;
use synod_core::session::Session;
use synod_core::store::{Rejected, Txn};

use crate::queue::codec::Codec;
use crate::queue::consumer::Reserved;
use crate::queue::item_name::ItemName;
use crate::queue::place::{DOING, QueuePlace};
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
    let data = try_join_all(reserved.iter().map(|it| data_of(place, &session, it))).await?;
    let mut found = reserved.into_iter().zip(data).filter_map(|(it, data)| Some((it, data?)));
    let mut bunch = Bunch::new();
    for (reserved, data) in &mut found {
        let left_out = match codec.decode(&place.item(&reserved.item.name)?, &data) {
            Ok(item) => bunch.add(place, &session, (reserved, item, data))?,
            Err(error) if bunch.items.is_empty() => {
                let is_buried = bury(place, &session, &reserved, data).await?;
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
        // One operation is that of the mark.
        if longer.ops.len() >= session.info().limits.operations && !self.items.is_empty() {
            return Ok(Some(reserved));
        }
        self.txn = longer;
        self.items.push(item);
        self.putting_back.push((name.next(reserved.item.created), data));
        self.reserved.push(reserved);
        Ok(None)
    }

    async fn take(self, place: &QueuePlace, session: &Session) -> TryOutcome<Self> {
        let Some(first) = self.reserved.first() else { return Ok(None) };
        let first = place.item(&first.item.name)?;
        match place.writes.send(session, self.txn.clone(), Some(&first)).await {
            Ok(Sent::Applied(_)) => {
                self.reserved.iter().for_each(Reserved::is_gone);
                Ok(Some(self))
            }
            Ok(Sent::Lost) => Ok(None),
            Ok(Sent::Rejected(no)) => lost_race(place, &self.reserved, &no).map(|()| None),
            Err(error) if is_only_lost(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Puts an item back whose caller is gone, in its place. In a bounded queue another item may have its slot; then it has none.
async fn put_back(place: &QueuePlace, name: ItemName, data: Bytes) {
    let put = |name: &ItemName| place.with_item(Txn::new(), name, data.clone()).ok();
    let Some(txn) = put(&name) else { return };
    let without_slot = name.in_slot(None);
    let instead = |no: &Rejected| place.is_filled_slot(no).then(|| put(&without_slot)).flatten();
    place.writes.put_back(&place.dir, txn, instead).await;
}
