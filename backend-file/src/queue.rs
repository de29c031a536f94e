//! [`Queue`]: hands work to threads.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A queue for threads, which ends when it is closed.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    is_closed: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        let state = Mutex::new(State { waiting: VecDeque::new(), is_closed: false });
        Self { state, changed: Condvar::new() }
    }

    /// Adds an item. A closed queue drops it.
    pub(crate) fn push(&self, item: T) {
        let mut state = self.lock();
        if state.is_closed {
            // Dropped without the lock, as its owner may be woken.
            drop(state);
            drop(item);
            return;
        }
        state.waiting.push_back(item);
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for items, and takes up to `max` of them; none once the queue is closed.
    pub(crate) fn take(&self, max: usize) -> Vec<T> {
        let mut state = self.lock();
        while state.waiting.is_empty() && !state.is_closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            return Vec::new();
        }
        let count = state.waiting.len().min(max);
        state.waiting.drain(..count).collect()
    }

    /// Ends the threads, and drops what waits.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.changed.notify_all();
        drop(waiting);
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
