//! [`Snapshot::gather`]: asks for what does not fit into one request, until a [`Gathering`] is complete.

use futures_util::FutureExt as _;
use synod_core::path::Path;
use synod_core::store::Query;
use tokio::time::Instant;
use zookeeper_client::{AddWatchMode, Client, Error as ZkError, EventType, PersistentWatcher};

use super::gathering::{Gathering, Reach, Reported};
use super::{Ask, Snapshot};
use crate::connection::Connection;
use crate::error::Trouble;
use crate::notification::Notification;

impl Snapshot {
    /// The nodes of a query about a subtree or about all children. A recursive watch at `watched`, which is the query's
    /// path or above it, is there until this returns.
    pub(crate) async fn gather(
        wire: &Connection,
        client: &Client,
        watched: &Path,
        query: &Query,
    ) -> Result<Self, Trouble> {
        let asked = client.watch(watched.as_str(), AddWatchMode::PersistentRecursive);
        let mut events = wire.answer(asked).await?;
        let mut gathering = Gathering::new(Reach::of(query));
        let mut sync = true;
        let mut end = patience(wire);
        loop {
            let (batch, known) = (gathering.batch(), gathering.len());
            let names = batch.full.iter().flat_map(|path| [Ask::Children(path), Ask::Data(path)]);
            let asks: Vec<Ask> =
                names.chain(batch.data.iter().map(|path| Ask::Data(path))).collect();
            let answer = Self::request(wire, client, &asks, std::mem::take(&mut sync)).await?;
            drop(asks);
            let reported = drain(&mut events, gathering.reach())?;
            if let Some(snapshot) = gathering.take(batch, answer, reported) {
                return Ok(snapshot);
            }
            // As long as there is more to read, it is large, and not restless.
            if gathering.len() > known {
                end = patience(wire);
            }
            if Instant::now() >= end {
                return Err(Trouble::Restless);
            }
        }
    }
}

fn patience(wire: &Connection) -> Instant {
    Instant::now() + wire.life.ttl() / 2
}

/// What the watch has reported so far.
fn drain(events: &mut PersistentWatcher, reach: &Reach) -> Result<Reported, Trouble> {
    let mut reported = Reported::default();
    while let Some(event) = events.changed().now_or_never() {
        if event.event_type == EventType::Session {
            // Events may be missing.
            return Err(Trouble::Said(ZkError::ConnectionLoss));
        }
        if let Some(notification) = Notification::of(&event) {
            reported.add(reach, notification.path.as_str(), notification.kind);
        }
    }
    Ok(reported)
}
