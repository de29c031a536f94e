//! [`KeeperShared`]: the state that a keeper shares with its task: the wanted data, the stored
//! data, and the presence of the node.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use synod_core::clock::{self, Instant};
use synod_core::error::{Error, Result};
use synod_core::session::Session;
use synod_core::store::Revision;
use tokio::sync::{Notify, oneshot, watch};

use crate::mutant::mistake;

/// The number of earlier data values that are kept in case the store rejects the last.
const MAX_REMEMBERED: usize = 16;

/// The state that a keeper shares with its task.
#[derive(Debug)]
pub(crate) struct KeeperShared {
    data: Mutex<DataState>,
    /// Notified when other data is wanted.
    changed: Notify,
    node: watch::Sender<NodeState>,
}

/// The wanted data and its number. Each set has a number.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) number: u64,
    pub(crate) data: Bytes,
}

/// The data that was set and may be stored, and the callers that wait for it.
#[derive(Debug)]
struct DataState {
    /// The number of the last set.
    last: u64,
    /// The last data that the store had; at first, the data of the first create.
    stored: Wanted,
    /// The data that was set since, and was not rejected. The last one is wanted; the others are
    /// kept in case the last is rejected.
    newer: VecDeque<Wanted>,
    waiting: BTreeMap<u64, oneshot::Sender<Result<()>>>,
    is_over: bool,
}

/// The last known state of the node, and the condition on which it depends.
#[derive(Debug)]
pub(crate) struct NodeState {
    pub(crate) presence: Presence,
    lasts: Option<Lasts>,
}

/// The condition under which a node certainly exists.
#[derive(Clone, Debug)]
pub(crate) enum Lasts {
    /// As long as this session is certain.
    Session(Session),
    /// Until this time.
    Until(Instant),
}

impl KeeperShared {
    pub(crate) fn new(data: Bytes) -> Self {
        let first = Wanted { number: 1, data };
        let stored = Wanted { number: 0, data: first.data.clone() };
        let (newer, waiting) = (VecDeque::from([first]), BTreeMap::new());
        Self {
            data: Mutex::new(DataState { last: 1, stored, newer, waiting, is_over: false }),
            changed: Notify::new(),
            node: watch::Sender::new(NodeState { presence: Presence::Absent, lasts: None }),
        }
    }

    /// The data that is wanted now.
    pub(crate) fn wanted(&self) -> Wanted {
        self.lock().wanted().clone()
    }

    /// Sets other data. The receiver gets the result when this data, or later data, is stored, or
    /// when the store rejects it; it closes once the keeper has ended.
    pub(crate) fn set(&self, data: Bytes) -> oneshot::Receiver<Result<()>> {
        let (result_tx, result) = oneshot::channel();
        mistake!(SetWhileAwayForgotten: if !self.is_there() {
            let _is_received = result_tx.send(Ok(())).is_ok();
            return result;
        });
        self.lock().add(data, result_tx);
        self.changed.notify_waiters();
        result
    }

    /// Waits until the wanted data has another number than this.
    pub(crate) async fn wants_other(&self, than: u64) {
        loop {
            // Listens before the check, so that a set between the check and the wait also wakes.
            let changed = self.changed.notified();
            if self.lock().wanted().number != than {
                return;
            }
            changed.await;
        }
    }

    /// Records that the store has this data.
    pub(crate) fn record_stored(&self, wanted: &Wanted) {
        let settled = self.lock().record_stored(wanted);
        for result_tx in settled {
            let _is_received = result_tx.send(Ok(())).is_ok();
        }
    }

    /// Records that the store rejects this data permanently. The last data before it that was not
    /// rejected becomes the wanted data, unless other data was set since. Returns false if there is
    /// no earlier data, because this is the data of the first create.
    pub(crate) fn record_refused(&self, number: u64, why: &Error) -> bool {
        let (has_other, refused) = self.lock().record_refused(number);
        if let Some(result_tx) = refused {
            let _is_received = result_tx.send(Err(why.clone())).is_ok();
        }
        has_other
    }

    pub(crate) fn presence(&self) -> Presence {
        self.node.borrow().presence.clone()
    }

    /// A receiver of the state of the node.
    pub(crate) fn watch(&self) -> watch::Receiver<NodeState> {
        self.node.subscribe()
    }

    /// Returns `true` if the node certainly exists.
    pub(crate) fn is_there(&self) -> bool {
        let node = self.node.borrow();
        node.presence.is_there() && node.lasts.as_ref().is_some_and(Lasts::is_certain)
    }

    pub(crate) fn record_created(&self, created: Revision, lasts: Lasts) {
        let presence = Presence::There(created);
        self.node.send_replace(NodeState { presence, lasts: Some(lasts) });
    }

    /// Records that the node lasts longer than recorded before.
    pub(crate) fn extend(&self, lasts: Lasts) {
        self.node.send_if_modified(|node| {
            node.lasts = Some(lasts);
            false
        });
    }

    pub(crate) fn record_gone(&self) {
        self.set_presence(Presence::Absent, |last| matches!(last, Presence::Absent));
    }

    pub(crate) fn record_denied(&self, why: &Error) {
        let is_known =
            |last: &Presence| matches!(last, Presence::Refused(last) if last.kind() == why.kind());
        self.set_presence(Presence::Refused(why.clone()), is_known);
    }

    /// Records that the keeper has ended.
    pub(crate) fn end(&self) {
        self.record_gone();
        let waiting = {
            let mut data = self.lock();
            data.is_over = true;
            std::mem::take(&mut data.waiting)
        };
        drop(waiting);
    }

    fn set_presence(&self, presence: Presence, is_known: impl FnOnce(&Presence) -> bool) {
        self.node.send_if_modified(|node| {
            if is_known(&node.presence) {
                return false;
            }
            *node = NodeState { presence, lasts: None };
            true
        });
    }

    fn lock(&self) -> MutexGuard<'_, DataState> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lasts {
    fn is_certain(&self) -> bool {
        match self {
            Self::Session(session) => session.is_certain(),
            Self::Until(end) => clock::now() < *end,
        }
    }
}

impl DataState {
    fn wanted(&self) -> &Wanted {
        self.newer.back().unwrap_or(&self.stored)
    }

    fn add(&mut self, data: Bytes, result_tx: oneshot::Sender<Result<()>>) {
        if self.is_over {
            return;
        }
        self.last += 1;
        self.newer.push_back(Wanted { number: self.last, data });
        if self.newer.len() > MAX_REMEMBERED + 1 {
            let _oldest = self.newer.pop_front();
        }
        self.waiting.retain(|_, result_tx| !result_tx.is_closed());
        self.waiting.insert(self.last, result_tx);
    }

    /// Returns the callers whose data is stored, or was replaced by the stored data.
    fn record_stored(&mut self, wanted: &Wanted) -> Vec<oneshot::Sender<Result<()>>> {
        self.newer.retain(|newer| newer.number > wanted.number);
        self.stored = wanted.clone();
        let later = self.waiting.split_off(&(wanted.number + 1));
        std::mem::replace(&mut self.waiting, later).into_values().collect()
    }

    fn record_refused(&mut self, number: u64) -> (bool, Option<oneshot::Sender<Result<()>>>) {
        if self.stored.number == 0 && self.newer.iter().all(|newer| newer.number == number) {
            return (false, None);
        }
        self.newer.retain(|newer| newer.number != number);
        (true, self.waiting.remove(&number))
    }
}

/// The last known state of a node that is kept.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Presence {
    /// The node exists since this revision.
    There(Revision),
    /// The node is removed, or ends with its lost session, and will be created again.
    Absent,
    /// The node does not exist: the store rejects its create, or another client has a node at the
    /// path. The create is retried.
    Refused(Error),
}

impl Presence {
    /// Returns `true` if it exists.
    pub fn is_there(&self) -> bool {
        matches!(self, Self::There(_))
    }
}

#[cfg(test)]
mod tests {
    use synod_core::error::ErrorKind;

    use super::*;

    fn answer(result: &mut oneshot::Receiver<Result<()>>) -> Option<bool> {
        result.try_recv().ok().map(|result| result.is_ok())
    }

    #[test]
    fn refused_data_gives_way_to_the_last_data_before_it_that_was_not_refused() {
        let (shared, why) =
            (KeeperShared::new("first".into()), Error::new(ErrorKind::TooLarge, "set"));
        assert!(!shared.record_refused(1, &why), "there is no other");
        shared.record_stored(&shared.wanted());
        let [mut good, mut large, mut larger] =
            ["good", "large", "larger"].map(|data| shared.set(data.into()));
        assert!(shared.record_refused(4, &why) && shared.wanted().data == "large");
        assert!(shared.record_refused(3, &why) && shared.wanted().data == "good");
        assert_eq!([answer(&mut large), answer(&mut larger)], [Some(false); 2]);
        assert_eq!(answer(&mut good), None, "it is not stored yet");
        shared.record_stored(&shared.wanted());
        assert_eq!(answer(&mut good), Some(true));
        // A set that was replaced before it was sent gets the result of the set that replaced it.
        let [mut replaced, mut last] = ["replaced", "last"].map(|data| shared.set(data.into()));
        shared.record_stored(&shared.wanted());
        assert_eq!([answer(&mut replaced), answer(&mut last)], [Some(true); 2]);
        let mut ended = shared.set("late".into());
        shared.end();
        assert!(matches!(ended.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(matches!(
            shared.set("later".into()).try_recv(),
            Err(oneshot::error::TryRecvError::Closed)
        ));
    }

    #[test]
    fn a_limited_number_of_sets_is_remembered() {
        let shared = KeeperShared::new("first".into());
        shared.record_stored(&shared.wanted());
        for number in 0..100 {
            drop(shared.set(number.to_string().into()));
        }
        let data = shared.lock();
        assert_eq!((data.newer.len(), data.waiting.len()), (MAX_REMEMBERED + 1, 1));
        assert_eq!((data.wanted().number, data.stored.number), (101, 1));
    }
}
