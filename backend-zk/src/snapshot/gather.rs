//! [`Snapshot::gather`]: asks for what does not fit into one request, until a [`Gathering`] is complete.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use synod_core::path::Path;
use synod_core::store::Query;
use tokio::time::Instant;

use super::gathering::{Gathering, Reach, Reported};
use super::{Ask, Snapshot};
use crate::client::{AddWatchMode, Client, EventType, MultiReadResult, PersistentWatcher, ZkError};
use crate::connection::Connection;
use crate::error::Trouble;
use crate::notification::Notification;

impl Snapshot {
    /// The nodes of a query about a subtree or about all children. One request is for `most` answers at most. A
    /// recursive watch at `watched`, which is the query's path or above it, is there until this returns.
    pub(crate) async fn gather(
        wire: &Connection,
        client: &Client,
        watched: &Path,
        (query, most): (&Query, usize),
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
            let progress = GatherProgress::new(query, &gathering);
            let arrived = |answers: &[MultiReadResult]| progress.arrived(answers);
            let sync = std::mem::take(&mut sync);
            let answer = Self::request(wire, client, (&asks, most), sync, arrived).await?;
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

/// How far it is while the answers to a batch arrive.
struct GatherProgress<'a> {
    query: &'a Query,
    /// With those that were known before. Nodes that are read again count, too.
    read: AtomicUsize,
    found: usize,
}

impl<'a> GatherProgress<'a> {
    fn new(query: &'a Query, gathering: &Gathering) -> Self {
        let known = gathering.len();
        Self { query, read: AtomicUsize::new(known), found: known + gathering.left() }
    }

    fn arrived(&self, answers: &[MultiReadResult]) {
        let nodes = answers.iter().filter(|it| matches!(it, MultiReadResult::Data { .. })).count();
        let read = (self.read.fetch_add(nodes, Ordering::Relaxed) + nodes).min(self.found);
        self.query.report(read, self.found - read);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use synod_core::store::{Progress, Revision};

    use super::*;
    use crate::client::ZkStat;
    use crate::snapshot::Found;

    fn stat(children: i32) -> ZkStat {
        ZkStat { num_children: children, ..ZkStat::NEW }
    }

    #[test]
    fn nodes_that_are_read_again_are_no_more_than_there_are() {
        let (progress, path) = (Progress::default(), Path::new("/r").expect("valid"));
        let query = Query::subtree(path).progress(&progress);
        let seen = progress.watch();
        let mut gathering = Gathering::new(Reach::of(&query));
        let root = Found { data: Vec::new(), stat: stat(4) };
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let answer = Snapshot {
            nodes: BTreeMap::from([("/r".to_owned(), root)]),
            names: BTreeMap::from([("/r".to_owned(), names.to_vec())]),
            revision: Revision::new(1),
            whole: true,
        };
        assert_eq!(gathering.take(gathering.batch(), answer, Reported::default()), None);

        let loads = GatherProgress::new(&query, &gathering);
        let data = || MultiReadResult::Data { data: Vec::new(), stat: stat(0) };
        let mut shown = Vec::new();
        for _ in 0..3 {
            let children = MultiReadResult::Children { children: Vec::new() };
            loads.arrived(&[data(), children, data()]);
            let loaded = *seen.borrow();
            shown.push((loaded.read, loaded.found));
        }

        assert_eq!(shown, [(3, 5), (5, 5), (5, 5)]);
    }
}
