//! [`ValueShared`]: the local copy of a value, written by one task and read by every caller.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Node, Stat};
use tokio::sync::Notify;

use crate::cell::codec::decoded;
use crate::cell::copy::{CopyState, FoundValue, Learned, LocalCopy, Record};
use crate::mutant::mistake;

/// A decoder of the bytes of a node.
pub(super) type Decode<T> = fn(&Path, &[u8]) -> Result<T>;

/// The state of a local copy with its lock, and the notifications about it. No code of the
/// application runs under the lock.
pub(super) struct ValueShared<T> {
    decode: Decode<T>,
    state: Mutex<ValueState<T>>,
    /// Notifies readers that the copy was replaced, or that there will be no more copies.
    news: Notify,
    /// Notifies the task that the value has to be read.
    read_requested: Notify,
}

struct ValueState<T> {
    record: Record<Arc<T>>,
    /// The session in which the value was read last.
    session: Option<Session>,
    /// The number of copies so far.
    number: u64,
    /// True if the copy will not be replaced again.
    is_over: bool,
}

impl<T> ValueShared<T> {
    /// Creates the state from a value that was read.
    pub(super) fn new(decode: Decode<T>, node: &Node, session: Session) -> Result<Self> {
        let stat = node.stat.ok_or_else(|| without_version(&node.path))?;
        let value = Arc::new(decode(&node.path, &node.data)?);
        let (record, session) = (Record::new(value, stat), Some(session));
        let state = Mutex::new(ValueState { record, session, number: 1, is_over: false });
        Ok(Self { decode, state, news: Notify::new(), read_requested: Notify::new() })
    }

    /// Returns the number to pass to [`Self::record_read`] for a read that begins now.
    pub(super) fn writes(&self) -> u64 {
        self.state().record.writes()
    }

    /// Returns `true` if the value was read last in this session.
    pub(super) fn was_read_in(&self, session: &Session) -> bool {
        self.state().session.as_ref().is_some_and(|last| last.info().id == session.info().id)
    }

    /// Records the result of a read. Returns `true` if the result is the latest value.
    pub(super) fn record_read(
        &self,
        node: Option<&Node>,
        writes: u64,
        session: Session,
    ) -> Result<bool> {
        let found = node.map_or(Ok(FoundValue::Nothing), |node| self.found(node))?;
        // A value that is not used is dropped here, outside the lock.
        let _kept = match &found {
            FoundValue::Value(value, _) => Some(value.clone()),
            FoundValue::Unreadable(..) | FoundValue::Nothing => None,
        };
        let _last = self.state().session.replace(session);
        Ok(!self.update(|record| record.read(found, writes)).read_again)
    }

    fn found(&self, node: &Node) -> Result<FoundValue<Arc<T>>> {
        let stat = node.stat.ok_or_else(|| without_version(&node.path))?;
        Ok(match self.decoded(&node.path, &node.data) {
            Ok(value) => FoundValue::Value(Arc::new(value), stat),
            Err(error) => FoundValue::Unreadable(error, stat),
        })
    }

    /// Decodes the value, and catches a panic, which must not end the task.
    fn decoded(&self, path: &Path, data: &[u8]) -> Result<T> {
        decoded(path, || (self.decode)(path, data))
    }

    /// Records the value of the node after an answered write of this client.
    pub(super) fn record_write(&self, path: &Path, data: &[u8], stat: Stat) {
        match self.decoded(path, data).map(Arc::new) {
            Ok(value) => {
                let kept = value.clone();
                if self.update(|record| record.written(value, stat)).read_again {
                    self.read_requested.notify_one();
                }
                drop(kept);
            }
            Err(_) => self.record_unseen_write(),
        }
    }

    /// Records that a write of this client was answered, and requests a read, because the answer
    /// did not show the value of the node.
    pub(super) fn record_unseen_write(&self) {
        let _learned = self.update(Record::written_unseen);
        self.read_requested.notify_one();
    }

    /// Records that changes may be missed from now on.
    pub(super) fn set_stale(&self) {
        let _learned = self.update(Record::stale);
    }

    /// Records that the store rejected a read.
    pub(super) fn set_refused(&self, reason: &Error) {
        let _learned = self.update(|record| record.refused(reason));
    }

    /// Records that there will be no other copy. Frees the session.
    pub(super) fn end(&self) {
        let session = {
            let mut state = self.state();
            state.is_over = true;
            state.session.take()
        };
        drop(session);
        self.news.notify_waiters();
    }

    /// Records that the task that reads the value has ended: the copy stays, and may be out of
    /// date.
    pub(super) fn task_ended(&self) {
        if !self.state().is_over {
            self.set_stale();
            self.end();
        }
    }

    /// Waits until a read is requested.
    pub(super) async fn read_requested(&self) {
        self.read_requested.notified().await;
    }

    fn update(&self, update: impl FnOnce(&mut Record<Arc<T>>) -> Learned) -> Learned {
        let (last, learned, state) = {
            let mut state = self.state();
            let last = state.record.copy.value.clone();
            let learned = update(&mut state.record);
            state.number += u64::from(learned.is_news);
            (last, learned, state.record.copy.state.clone())
        };
        // A value may have its own `Drop`.
        drop(last);
        if learned.is_news {
            log(&state);
            self.news.notify_waiters();
        }
        learned
    }

    fn state(&self) -> MutexGuard<'_, ValueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> ValueShared<T> {
    /// Returns the copy as of now.
    pub(super) fn get(&self) -> LocalCopy<T> {
        self.numbered().0
    }

    /// Waits for the copy after the one with this number. `None` once there will be no other.
    pub(super) async fn after(&self, number: u64) -> Option<(LocalCopy<T>, u64)> {
        loop {
            // Registered before the check, so that a new copy between the check and the wait is not
            // missed.
            let news = self.news.notified();
            let (copy, last, is_over) = self.numbered();
            if last != number {
                return Some((copy, last));
            }
            if is_over {
                return None;
            }
            news.await;
        }
    }

    fn numbered(&self) -> (LocalCopy<T>, u64, bool) {
        let (copy, session, number, is_over) = {
            let state = self.state();
            (state.record.copy.clone(), state.session.clone(), state.number, state.is_over)
        };
        let LocalCopy { value, stat, state } = copy;
        // The certainty of the session is checked here, because the task is notified of the end
        // only later.
        let certain = session.is_some_and(|session| session.is_certain());
        mistake!(CopyIsNeverStale: let certain = true);
        let state = match state {
            CopyState::Current if !certain => CopyState::Stale,
            state => state,
        };
        (LocalCopy { value: T::clone(&value), stat, state }, number, is_over)
    }
}

fn log(state: &CopyState) {
    match state {
        CopyState::Unreadable(error) => tracing::warn!(%error, "the value cannot be read"),
        state => tracing::debug!(?state, "the copy was replaced"),
    }
}

fn without_version(path: &Path) -> Error {
    Error::new(ErrorKind::Backend, "following a value")
        .at(path)
        .because("the store returned no version of it")
}
