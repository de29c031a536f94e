//! [`Page`]: what is known of a value that is followed. One task writes it, and every caller reads it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Node, Stat};
use tokio::sync::Notify;

use crate::cell::copy::{CopyState, Learned, LocalCopy, Record, Seen};
use crate::cell::guarded::decoded;
use crate::mutant::mistake;

/// How a value is read from the bytes of a node.
pub(super) type Decode<T> = fn(&Path, &[u8]) -> Result<T>;

/// What is known of a value, and the notifications about it. No code of the application runs under its lock.
pub(super) struct Page<T> {
    decode: Decode<T>,
    state: Mutex<PageState<T>>,
    /// That the copy was replaced, or is over.
    news: Notify,
    /// That the value has to be read.
    asked: Notify,
}

struct PageState<T> {
    record: Record<Arc<T>>,
    /// The session in which the value was read last.
    session: Option<Session>,
    /// The number of the copy: how many there were.
    number: u64,
    /// Whether it will not be replaced any more.
    over: bool,
}

impl<T> Page<T> {
    /// The page of a value that was read.
    pub(super) fn new(decode: Decode<T>, node: &Node, session: Session) -> Result<Self> {
        let stat = node.stat.ok_or_else(|| without_version(&node.path))?;
        let value = Arc::new(decode(&node.path, &node.data)?);
        let (record, session) = (Record::new(value, stat), Some(session));
        let state = Mutex::new(PageState { record, session, number: 1, over: false });
        Ok(Self { decode, state, news: Notify::new(), asked: Notify::new() })
    }

    /// A number to record the answer of a read with that begins now.
    pub(super) fn writes(&self) -> u64 {
        self.state().record.writes()
    }

    /// Whether the value was read last in this session.
    pub(super) fn was_read_in(&self, session: &Session) -> bool {
        self.state().session.as_ref().is_some_and(|last| last.info().id == session.info().id)
    }

    /// Records what a read found. Returns whether that is the latest value.
    pub(super) fn read(&self, node: Option<&Node>, writes: u64, session: Session) -> Result<bool> {
        let seen = node.map_or(Ok(Seen::Nothing), |node| self.seen(node))?;
        // What is not taken over is dropped here, and not under the lock.
        let _kept = match &seen {
            Seen::Value(value, _) => Some(value.clone()),
            Seen::Unreadable(..) | Seen::Nothing => None,
        };
        let _last = self.state().session.replace(session);
        Ok(!self.learn(|record| record.read(seen, writes)).read_again)
    }

    fn seen(&self, node: &Node) -> Result<Seen<Arc<T>>> {
        let stat = node.stat.ok_or_else(|| without_version(&node.path))?;
        Ok(match self.decoded(&node.path, &node.data) {
            Ok(value) => Seen::Value(Arc::new(value), stat),
            Err(error) => Seen::Unreadable(error, stat),
        })
    }

    /// Decodes the value in the task of a follower or of a writer, which a panic must not end.
    fn decoded(&self, path: &Path, data: &[u8]) -> Result<T> {
        decoded(path, || (self.decode)(path, data))
    }

    /// Records what the node has after an answered write of this client.
    pub(super) fn written(&self, path: &Path, data: &[u8], stat: Stat) {
        match self.decoded(path, data).map(Arc::new) {
            Ok(value) => {
                let kept = value.clone();
                if self.learn(|record| record.written(value, stat)).read_again {
                    self.asked.notify_one();
                }
                drop(kept);
            }
            Err(_) => self.written_unseen(),
        }
    }

    /// Records that a write of this client was answered, and asks for a read, as that did not say what the node has.
    pub(super) fn written_unseen(&self) {
        let _learned = self.learn(Record::written_unseen);
        self.asked.notify_one();
    }

    /// Records that changes may be missed from now on.
    pub(super) fn stale(&self) {
        let _learned = self.learn(Record::stale);
    }

    /// Records that the store refuses to be read.
    pub(super) fn refused(&self, why: &Error) {
        let _learned = self.learn(|record| record.refused(why));
    }

    /// Records that there will be no other copy. Frees the session.
    pub(super) fn end(&self) {
        let session = {
            let mut state = self.state();
            state.over = true;
            state.session.take()
        };
        drop(session);
        self.news.notify_waiters();
    }

    /// Records that nothing reads the value any more: the copy stays as it is, and may be out of date.
    pub(super) fn unfollowed(&self) {
        if !self.state().over {
            self.stale();
            self.end();
        }
    }

    /// Waits until a read is asked for.
    pub(super) async fn asked(&self) {
        self.asked.notified().await;
    }

    fn learn(&self, learn: impl FnOnce(&mut Record<Arc<T>>) -> Learned) -> Learned {
        let (last, learned, state) = {
            let mut state = self.state();
            let last = state.record.copy.value.clone();
            let learned = learn(&mut state.record);
            state.number += u64::from(learned.is_news);
            (last, learned, state.record.copy.state.clone())
        };
        // A value may have a `Drop` of its own.
        drop(last);
        if learned.is_news {
            report(&state);
            self.news.notify_waiters();
        }
        learned
    }

    fn state(&self) -> MutexGuard<'_, PageState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> Page<T> {
    /// The copy, as of now.
    pub(super) fn get(&self) -> LocalCopy<T> {
        self.numbered().0
    }

    /// The copy after the one with this number, when there is one. `None` once there will be no other.
    pub(super) async fn after(&self, number: u64) -> Option<(LocalCopy<T>, u64)> {
        loop {
            // Listens from here on, so that a copy between the look and the wait wakes too.
            let news = self.news.notified();
            let (copy, last, over) = self.numbered();
            if last != number {
                return Some((copy, last));
            }
            if over {
                return None;
            }
            news.await;
        }
    }

    fn numbered(&self) -> (LocalCopy<T>, u64, bool) {
        let (copy, session, number, over) = {
            let state = self.state();
            (state.record.copy.clone(), state.session.clone(), state.number, state.over)
        };
        let LocalCopy { value, stat, state } = copy;
        // As soon as that is so, before any task is notified of it.
        let certain = session.is_some_and(|session| session.is_certain());
        mistake!(CopyIsNeverStale: let certain = true);
        let state = match state {
            CopyState::Current if !certain => CopyState::Stale,
            state => state,
        };
        (LocalCopy { value: T::clone(&value), stat, state }, number, over)
    }
}

fn report(state: &CopyState) {
    match state {
        CopyState::Unreadable(error) => tracing::warn!(%error, "the value cannot be read"),
        state => tracing::debug!(?state, "there is another copy"),
    }
}

fn without_version(path: &Path) -> Error {
    Error::new(ErrorKind::Backend, "following a value")
        .at(path)
        .because("the store returned no version of it")
}
