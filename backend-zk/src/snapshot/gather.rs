//! [`Snapshot::gather`]: reads nodes that do not fit into one request, until a [`Gathering`] is
//! complete.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use synod_core::path::Path;
use synod_core::store::Query;
use tokio::time::Instant;

use super::gathering::{Gathering, Reach, Reported};
use super::{ReadOp, Snapshot};
use crate::client::{AddWatchMode, Client, EventType, MultiReadResult, PersistentWatcher, ZkError};
use crate::connection::Connection;
use crate::error::Trouble;
use crate::notification::Notification;

impl Snapshot {
    /// The nodes of a query about a subtree or about all children. One request has at most
    /// `max_answers` answers. A recursive watch at `watched`, which is the query's path or above
    /// it, exists until this returns.
    pub(crate) async fn gather(
        connection: &Connection,
        client: &Client,
        watched: &Path,
        (query, max_answers): (&Query, usize),
    ) -> Result<Self, Trouble> {
        let request = client.watch(watched.as_str(), AddWatchMode::PersistentRecursive);
        let mut events = connection.answer(request).await?;
        let mut gathering = Gathering::new(Reach::of(query));
        let mut sync = true;
        let mut end = end_of_reading(connection);
        loop {
            let (batch, known) = (gathering.batch(), gathering.len());
            let names =
                batch.full.iter().flat_map(|path| [ReadOp::Children(path), ReadOp::Data(path)]);
            let reads: Vec<ReadOp> =
                names.chain(batch.data.iter().map(|path| ReadOp::Data(path))).collect();
            let progress = GatherProgress::new(query, &gathering);
            let arrived = |answers: &[MultiReadResult]| progress.arrived(answers);
            let sync = std::mem::take(&mut sync);
            let answer =
                Self::request(connection, client, (&reads, max_answers), sync, arrived).await?;
            drop(reads);
            let reported = drain(&mut events, gathering.reach())?;
            if let Some(snapshot) = gathering.take(batch, answer, reported) {
                return Ok(snapshot);
            }
            // The set is growing: it is large, but not changing too fast.
            if gathering.len() > known {
                end = end_of_reading(connection);
            }
            if Instant::now() >= end {
                return Err(Trouble::Restless);
            }
        }
    }
}

/// The progress while the answers to a batch arrive.
struct GatherProgress<'a> {
    query: &'a Query,
    /// Includes the nodes that were known before. Nodes that are read again also count.
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

fn end_of_reading(connection: &Connection) -> Instant {
    Instant::now() + connection.life.ttl() / 2
}

/// The events that the watch has reported so far.
fn drain(events: &mut PersistentWatcher, reach: &Reach) -> Result<Reported, Trouble> {
    let mut reported = Reported::default();
    while let Some(event) = events.changed().now_or_never() {
        if event.event_type == EventType::Session {
            // Events may be missing.
            return Err(Trouble::Zk(ZkError::ConnectionLoss));
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
    use crate::snapshot::ReadNode;

    fn stat(children: i32) -> ZkStat {
        ZkStat { num_children: children, ..ZkStat::NEW }
    }

    #[test]
    fn nodes_that_are_read_again_are_no_more_than_there_are() {
        let (progress, path) = (Progress::default(), Path::new("/r").expect("valid"));
        let query = Query::subtree(path).progress(&progress);
        let seen = progress.watch();
        let mut gathering = Gathering::new(Reach::of(&query));
        let root = ReadNode { data: Vec::new(), stat: stat(4) };
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
