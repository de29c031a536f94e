//! [`Items`]: what became of each item of a queue, as the processes know it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::Error;
use synod_core::path::Path;
use synod_core::store::{Node, Query};

use crate::findings::Truth;
use crate::process::Process;

/// What became of each item, as the processes know it. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Items(Arc<Mutex<Book>>);

#[derive(Default)]
pub(super) struct Book {
    /// The items that were put, or may have been.
    pub(super) put: BTreeMap<String, Put>,
    /// Those that a process took, or has acknowledged.
    pub(super) ended: BTreeSet<String>,
    /// Those whose acknowledgement has an unknown effect.
    pub(super) unsure: BTreeSet<String>,
    /// How many items may have been taken by calls that returned none.
    pub(super) open: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    Done,
    Failed,
    Unknown,
}

impl Items {
    /// L-Q-2: an item is delivered that was put.
    pub(super) fn was_put(&self, me: &Process, item: &str) {
        let put = self.lock().put.get(item).copied();
        if put.is_none_or(|put| put == Put::Failed) {
            me.wrong("L-Q-2", || format!("{item} was not put"));
        }
    }

    /// L-Q-5: an item is delivered that none had before.
    pub(super) fn is_new(&self, me: &Process, item: &str) {
        if self.lock().ended.contains(item) {
            me.wrong("L-Q-5", || format!("{item} was had before"));
        }
    }

    /// A process has an item for good.
    pub(super) fn ends(&self, me: &Process, item: &str, law: &str) {
        self.was_put(me, item);
        if !self.lock().ended.insert(item.to_owned()) {
            me.wrong(law, || format!("{item} was had twice"));
        }
    }

    /// L-Q-1: every item that was put was had, or is in the queue. A process may have ended with one in its hand.
    pub(super) fn none_is_lost(&self, left: &BTreeSet<String>) -> Result<(), String> {
        let book = self.lock();
        let put = book.put.iter().filter(|(_, put)| **put == Put::Done).map(|(item, _)| item);
        let had = |item: &String| book.ended.contains(item) || book.unsure.contains(item);
        let lost: Vec<_> = put.filter(|item| !had(item) && !left.contains(*item)).collect();
        if lost.len() > book.open {
            return Err(format!("{lost:?} are lost, and {} may have been taken", book.open));
        }
        Ok(())
    }

    /// L-Q-3: nothing was made of a put that failed for certain.
    pub(super) fn none_failed(&self, made: &BTreeSet<String>) -> Result<(), String> {
        let book = self.lock();
        let failed = book.put.iter().filter(|(_, put)| **put == Put::Failed);
        match failed.map(|(item, _)| item).find(|item| made.contains(*item)) {
            Some(item) => Err(format!("{item} was put, although that failed for certain")),
            None => Ok(()),
        }
    }

    /// L-Q-4, L-Q-12: when all is repaired, one consumer takes the other items in these directories, whichever process had them.
    pub(super) async fn drain<Q>(
        &self,
        me: Process,
        dirs: &[Path],
        queue: impl Fn(&Client) -> Result<Q, Error>,
        take: impl AsyncFn(&Q) -> Result<Vec<String>, Error>,
    ) -> Result<(), String> {
        let mut left = Vec::new();
        for _ in 0..50 {
            // A part of the servers may be out of reach for ever.
            let Ok(client) = me.client().await else { continue };
            let Ok(queue) = queue(&client) else { continue };
            while let Ok(nodes) = nodes_in(&client, dirs).await {
                left = nodes;
                if left.is_empty() {
                    return Ok(());
                }
                self.lock().open += 1;
                match clock::timeout(me.ttl() * 20, take(&queue)).await {
                    Ok(Ok(taken)) => {
                        self.lock().open -= 1;
                        for item in taken {
                            self.ends(&me, &item, "L-Q-5");
                        }
                    }
                    Ok(Err(_)) => {}
                    // It put back what it may have taken.
                    Err(_late) => break,
                }
            }
            clock::sleep(me.ttl() / 4).await;
        }
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?} are left")) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn nodes_in(client: &Client, dirs: &[Path]) -> Result<Vec<Node>, Error> {
    let mut nodes = Vec::new();
    for dir in dirs {
        nodes.extend(client.read(Query::children(dir).names_only()).await?.nodes);
    }
    Ok(nodes)
}

/// The items whose nodes are in the queue at the end.
pub(super) fn left_in(
    truth: &Truth,
    is_item: fn(&Path) -> bool,
    text: fn(&[u8]) -> String,
) -> BTreeSet<String> {
    let mut nodes = BTreeMap::new();
    for change in truth.log.iter().flat_map(|entry| &entry.changes) {
        match &change.node {
            _ if !is_item(&change.path) => {}
            Some(node) => drop(nodes.insert(change.path.clone(), text(&node.data))),
            None => drop(nodes.remove(&change.path)),
        }
    }
    nodes.into_values().collect()
}
