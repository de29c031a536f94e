//! [`take`]: takes items out of the queue, several in one transaction.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use synod_core::clock::sleep;
use synod_core::error::Result;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::Txn;
use synod_core::task;
use tokio::sync::oneshot;

use crate::mutant::mistake;
use crate::queue::codec::Codec;
use crate::queue::consumer::Reserved;
use crate::queue::item_name::ItemName;
use crate::queue::place::{QueuePlace, refused};
use crate::queue::taking::{TryOutcome, bury, data_of, lost_race, stopped};
use crate::stamped::sent::{Sent, is_only_lost};

/// Items that were taken out of the queue together.
pub(super) struct TakenItems<T> {
    items: Vec<T>,
    /// Says that the caller has them.
    received: oneshot::Sender<()>,
}

/// The transaction that takes items, and what it takes.
struct Bunch<T> {
    txn: Txn,
    items: Vec<T>,
    /// The items as they are in the queue, in the same order.
    reserved: Vec<Reserved>,
    /// What puts them back: the names that they get, and their data.
    putting_back: Vec<(ItemName, Bytes)>,
}

impl<T> TakenItems<T> {
    /// From here on the caller has them.
    pub(super) fn received(self) -> Vec<T> {
        let _waiting = self.received.send(()).is_ok();
        self.items
    }
}

/// Takes of these items as many of the first as one transaction takes, up to one that cannot be read. If the caller is gone when
/// they are taken, they are put back.
pub(super) async fn take<T: Send + 'static>(
    place: Arc<QueuePlace>,
    reserved: Vec<Reserved>,
    codec: Codec<T>,
) -> TryOutcome<TakenItems<T>> {
    let (tell, told) = oneshot::channel();
    let work = async move {
        let tried = take_once(&place, reserved, codec).await;
        let Bunch { items, putting_back, .. } = match tried {
            Ok(Some(taken)) => taken,
            lost => {
                let _heard = tell.send(lost.map(|_none| None)).is_ok();
                return;
            }
        };
        let (received, is_received) = oneshot::channel();
        // Without its caller it is dropped here or in the channel, and the sender with it.
        let _heard = tell.send(Ok(Some(TakenItems { items, received }))).is_ok();
        mistake!(DroppedTakeLost: return);
        if is_received.await.is_err() {
            for (name, data) in putting_back {
                put_back(&place, name, data).await;
            }
        }
    };
    task::spawn(Box::pin(work)).let_go();
    told.await.unwrap_or_else(|_gone| Err(stopped()))
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
        let longer = place.without_item(place.unclaimed(self.txn.clone(), name)?, name)?;
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
        match place.send(session, self.txn.clone(), Some(&first)).await {
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
    let mut name = name;
    let mut delays = Retry::forever().delays(place.client.chance());
    loop {
        let Ok(txn) = place.with_item(Txn::new(), &name, data.clone()) else { return };
        let error = match place.insist(&txn).await {
            Ok(None) => return,
            Ok(Some(no)) if place.is_filled_slot(&no) => {
                name = name.in_slot(None);
                continue;
            }
            Ok(Some(no)) => refused(&no),
            Err(error) => error,
        };
        if error.is_ambiguous() || !place.client.is_transient(&error) {
            let path = &place.dir;
            return tracing::warn!(%path, %error, "an item could not be put back");
        }
        sleep(delays.next().unwrap_or_default()).await;
    }
}
