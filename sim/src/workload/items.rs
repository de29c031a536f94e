//! [`Items`]: what became of each item of a queue, as the processes know it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// L-Q-2, L-Q-5: an item is delivered that was put, and had by none before.
    pub(super) fn delivers(&self, me: &Process, item: &str) {
        let book = self.lock();
        let (put, ended) = (book.put.get(item).copied(), book.ended.contains(item));
        drop(book);
        if put.is_none_or(|put| put == Put::Failed) {
            me.wrong("L-Q-2", || format!("{item} was not put"));
        }
        if ended {
            me.wrong("L-Q-5", || format!("{item} was had before"));
        }
    }

    /// A process has an item for good.
    pub(super) fn ends(&self, me: &Process, item: &str, law: &str) {
        self.delivers(me, item);
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

    pub(super) fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
