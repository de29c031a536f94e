//! [`Items`]: the end of each item of a queue, as its processes know it, compared with the log of
//! the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cluster::{By, Entry};
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::Error;
use synod_core::path::Path;
use synod_core::store::{Kind, Node, Query};

use crate::process::Process;

/// The number of pauses after which the last consumer stops waiting for a missing item.
const PAUSES: u32 = 200;

/// The items of some queues, as the processes have recorded them. Clones share them.
#[derive(Clone)]
pub(super) struct Items {
    book: Arc<Mutex<Book>>,
    layout: Layout,
}

/// The places of a queue's nodes.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Returns `true` for the node of an item that no process has finally taken.
    pub(super) is_item: fn(&Path) -> bool,
    /// Returns `true` for the node of an item that a consumer has claimed.
    pub(super) is_claimed: fn(&Path) -> bool,
    /// Returns `true` for a write id.
    pub(super) is_mark: fn(&Path) -> bool,
    /// The item in the data of a node.
    pub(super) text: fn(&[u8]) -> String,
}

#[derive(Default)]
pub(super) struct Book {
    /// The items that were put, or may have been.
    pub(super) put: BTreeMap<String, Put>,
    /// The items that a call has returned to a process that took them.
    taken: BTreeSet<String>,
    /// The items that a process has acknowledged.
    acknowledged: BTreeSet<String>,
    /// The items whose acknowledgement has an unknown effect.
    pub(super) unsure: BTreeSet<String>,
    /// The items that a process has removed, or may have removed.
    pub(super) removed: BTreeSet<String>,
    /// The items that a process has certainly removed.
    gone: BTreeSet<String>,
    /// The time before which a delayed item must not be delivered for the first time.
    pub(super) due: BTreeMap<String, Duration>,
    /// The write ids and claims of other processes that a process has removed.
    pub(super) meddled: BTreeSet<Path>,
    /// The starts of processes, with `true` if the previous life of the process ended in a crash.
    starts: Vec<Start>,
    /// The processes that cannot put an item back, because they are frozen for ever.
    hindered: BTreeSet<u64>,
}

#[derive(Clone, Copy)]
struct Start {
    process: u64,
    at: Duration,
    after_crash: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    Done,
    Failed,
    Unknown,
}

/// A way in which an item ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Taken,
    Acknowledged,
    Removed,
}

/// The commit that removed the last node of an item.
struct Removal<'a> {
    index: usize,
    entry: &'a Entry,
    path: &'a Path,
}

impl Items {
    pub(super) fn new(layout: Layout) -> Self {
        Self { book: Arc::default(), layout }
    }

    /// Records that a process starts, perhaps after a crash.
    pub(super) fn starts(&self, me: &Process) {
        let after_crash = me.life > 0 && me.life == me.since;
        let start = Start { process: me.number(), at: me.age(), after_crash };
        self.lock().starts.push(start);
    }

    /// Returns `true` if a process may have removed this write id or claim of another process.
    pub(super) fn is_meddled(&self, path: &Path) -> bool {
        self.lock().meddled.contains(path)
    }

    /// L-Q-2: every delivered item was put.
    pub(super) fn was_put(&self, me: &Process, item: &str) {
        let put = self.lock().put.get(item).copied();
        if put.is_none_or(|put| put == Put::Failed) {
            me.wrong("L-Q-2", || format!("{item} was not put"));
        }
    }

    /// L-Q-5: no delivered item was taken before.
    pub(super) fn is_new(&self, me: &Process, item: &str) {
        let book = self.lock();
        // The item may have been removed since it was claimed.
        let is_had = book.taken.contains(item) || book.acknowledged.contains(item);
        drop(book);
        if is_had {
            me.wrong("L-Q-5", || format!("{item} was had before"));
        }
    }

    /// Records that a process has finally taken an item.
    pub(super) fn ends(&self, me: &Process, item: &str, end: End, law: &str) {
        self.was_put(me, item);
        let mut book = self.lock();
        let is_again = book.is_had(item);
        match end {
            End::Taken => book.taken.insert(item.to_owned()),
            End::Acknowledged => book.acknowledged.insert(item.to_owned()),
            End::Removed => book.gone.insert(item.to_owned()),
        };
        drop(book);
        if is_again {
            me.wrong(law, || format!("{item} was had twice"));
        }
    }

    /// L-Q-1, L-Q-5: each item that was put, or may have been, is in the queue, or exactly one
    /// process has it.
    pub(super) fn none_is_lost(&self, log: &[Entry]) -> Result<(), String> {
        let lost = self.lost(log);
        if !lost.is_empty() {
            return Err(format!("{lost:?} are lost"));
        }
        let left = self.nodes(log);
        let book = self.lock();
        match left.keys().find(|item| left[*item].is_ok() && book.is_had(item)) {
            Some(item) => Err(format!("{item} was had, and is in the queue")),
            None => Ok(()),
        }
    }

    /// The items that are not in the queue, and that no process has, although they could have been
    /// put back.
    fn lost(&self, log: &[Entry]) -> Vec<String> {
        let nodes = self.nodes(log);
        let book = self.lock();
        let never = book.put.iter().filter(|(item, put)| {
            **put == Put::Done && !nodes.contains_key(*item) && !book.removed.contains(*item)
        });
        let never = never.map(|(item, _)| format!("{item} was never there"));
        let removed = nodes.iter().filter_map(|(item, node)| Some((item, node.as_ref().err()?)));
        let lost = removed.filter(|(item, removal)| {
            let is_known =
                book.removed.contains(*item) || self.is_end_known(&book, item, removal.path);
            !is_known && !self.is_excused(&book, log, removal)
        });
        let lost = lost.map(|(item, removal)| format!("{item}, removed at {:?}", removal.entry.at));
        never.chain(lost).collect()
    }

    fn is_end_known(&self, book: &Book, item: &str, path: &Path) -> bool {
        if (self.layout.is_claimed)(path) {
            book.acknowledged.contains(item) || book.unsure.contains(item)
        } else {
            book.taken.contains(item)
        }
    }

    /// Each item that ever existed: its node, or the commit that removed it.
    fn nodes<'a>(&self, log: &'a [Entry]) -> BTreeMap<String, Result<(), Removal<'a>>> {
        let (mut texts, mut items) = (BTreeMap::new(), BTreeMap::new());
        let is_item = |path: &Path| (self.layout.is_item)(path);
        for (index, entry) in log.iter().enumerate() {
            let changes = entry.changes.iter().filter(|change| is_item(&change.path));
            let (gone, there): (Vec<_>, Vec<_>) = changes.partition(|it| it.node.is_none());
            for change in gone {
                let Some(item) = texts.remove(&change.path) else { continue };
                items.insert(item, Err(Removal { index, entry, path: &change.path }));
            }
            for change in there {
                let Some(node) = &change.node else { continue };
                let item = (self.layout.text)(&node.data);
                texts.insert(&change.path, item.clone());
                items.insert(item, Ok(()));
            }
        }
        items
    }

    /// Returns `true` if no process can put the item back: its process has crashed or is frozen, or
    /// a write id of the process is gone, without which it cannot determine the result of its
    /// transaction.
    fn is_excused(&self, book: &Book, log: &[Entry], removal: &Removal<'_>) -> bool {
        let by = removal.entry.by;
        let By::Process(process) = by else { return false };
        let is_mark = |path: &Path| (self.layout.is_mark)(path);
        let mark = removal.entry.changes.iter().map(|it| &it.path).find(|path| is_mark(path));
        // An item without a write id was taken by another program, which never puts an item back.
        let Some(mark) = mark else { return book.may_have_ended(self, log, removal) };
        let mut marks: BTreeMap<&Path, Duration> = BTreeMap::new();
        for entry in log[..=removal.index].iter().filter(|entry| entry.by == by) {
            let made = entry.changes.iter().filter(|it| it.kind == Kind::Created);
            marks.extend(made.filter(|it| is_mark(&it.path)).map(|it| (&it.path, entry.at)));
        }
        let since = marks.get(mark).copied().unwrap_or_default();
        let starts = book.starts.iter().filter(|it| it.process == process && it.at > since);
        // A later life may consider the write ids of an earlier one old, by a different wall clock.
        let is_foreign =
            |entry: &Entry| entry.by != by || starts.clone().any(|start| start.at <= entry.at);
        let is_removed = |entry: &Entry| {
            let gone = entry.changes.iter().filter(|it| it.kind == Kind::Deleted);
            let mut gone = gone.filter(|it| marks.contains_key(&it.path));
            gone.any(|it| book.meddled.contains(&it.path) || is_foreign(entry))
        };
        book.hindered.contains(&process)
            || starts.clone().any(|start| start.after_crash)
            || log[removal.index..].iter().any(is_removed)
    }

    /// L-Q-3: one put creates one node at a time, and none if it certainly failed.
    pub(super) fn each_is_there_once(&self, log: &[Entry]) -> Result<(), String> {
        let mut there: BTreeMap<&Path, String> = BTreeMap::new();
        let (mut made, mut present) = (BTreeSet::new(), BTreeSet::new());
        for entry in log {
            let is_item = |path: &Path| (self.layout.is_item)(path);
            let changes = || entry.changes.iter().filter(|change| is_item(&change.path));
            for change in changes().filter(|change| change.node.is_none()) {
                there.remove(&change.path).into_iter().for_each(|item| drop(present.take(&item)));
            }
            for change in changes() {
                let Some(node) = &change.node else { continue };
                let item = (self.layout.text)(&node.data);
                if there.insert(&change.path, item.clone()).is_none()
                    && !present.insert(item.clone())
                {
                    return Err(format!("{item} is in the queue twice, as {}", change.path));
                }
                made.insert(item);
            }
        }
        let book = self.lock();
        let failed = book.put.iter().filter(|(_, put)| **put == Put::Failed);
        match failed.map(|(item, _)| item).find(|item| made.contains(*item)) {
            Some(item) => Err(format!("{item} was put, although that failed for certain")),
            None => Ok(()),
        }
    }

    /// L-Q-4, L-Q-12: once everything is repaired, one consumer takes the remaining items in these
    /// directories, including items that other processes had. It waits for items that have yet to
    /// be put back.
    pub(super) async fn drain<Q>(
        &self,
        me: Process,
        dirs: &[Path],
        queue: impl Fn(&Client) -> Result<Q, Error>,
        take: impl AsyncFn(&Q) -> Result<Vec<String>, Error>,
    ) -> Result<(), String> {
        let (mut left, mut pauses) = (Vec::new(), 0);
        self.lock().hindered = me.frozen();
        for _ in 0..50 {
            // Some servers may be unreachable for ever.
            let Ok(client) = me.client().await else { continue };
            let Ok(queue) = queue(&client) else { continue };
            while let Ok(nodes) = nodes_in(&client, dirs).await {
                left = nodes;
                if left.is_empty() {
                    // Items that are finally lost are reported by the check of the whole history.
                    if pauses == PAUSES || self.lost(&me.cluster.log()).is_empty() {
                        return Ok(());
                    }
                    pauses += 1;
                    clock::sleep(me.ttl() / 4).await;
                    continue;
                }
                match clock::timeout(me.ttl() * 20, take(&queue)).await {
                    Ok(Ok(taken)) => {
                        for item in taken {
                            self.ends(&me, &item, End::Taken, "L-Q-5");
                        }
                    }
                    _ => break,
                }
            }
            clock::sleep(me.ttl() / 4).await;
        }
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?} are left")) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn is_had(&self, item: &str) -> bool {
        [&self.taken, &self.acknowledged, &self.gone].iter().any(|items| items.contains(item))
    }

    /// Returns `true` if a process may have removed the item without a write id.
    fn may_have_ended(&self, items: &Items, log: &[Entry], removal: &Removal<'_>) -> bool {
        let before = log[..removal.index].iter().rev().flat_map(|entry| &entry.changes);
        let node = before.filter(|it| it.path == *removal.path).find_map(|it| it.node.as_ref());
        let item = node.map(|node| (items.layout.text)(&node.data));
        item.is_some_and(|item| self.unsure.contains(&item) || self.acknowledged.contains(&item))
    }
}

async fn nodes_in(client: &Client, dirs: &[Path]) -> Result<Vec<Node>, Error> {
    let mut nodes = Vec::new();
    for dir in dirs {
        nodes.extend(client.read(Query::children(dir).names_only()).await?.nodes);
    }
    Ok(nodes)
}
