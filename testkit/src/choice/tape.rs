//! [`Tape`]: decisions that are not left to chance.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Decisions in the order in which they are asked for. Clones are the same tape.
#[derive(Clone, Debug)]
pub struct Tape(Arc<Mutex<Progress>>);

#[derive(Debug)]
struct Progress {
    /// What was decided, of how many ways.
    steps: Vec<(usize, usize)>,
    at: usize,
    /// How many faults fired on this way, and how many may.
    fired: usize,
    most: usize,
    /// What decides, in place of going through all ways.
    bytes: Option<Vec<u8>>,
}

impl Tape {
    /// Every way in turn, with `most` faults on each at most: run, [`Tape::rewind`], run again, until
    /// there is no other way.
    pub fn exhaustive(most: usize) -> Self {
        Self::of(most, None)
    }

    /// One way, by bytes that the caller chose. When there are no more, nothing happens any more.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::of(usize::MAX, Some(bytes.into()))
    }

    fn of(most: usize, bytes: Option<Vec<u8>>) -> Self {
        let state = Progress { steps: Vec::new(), at: 0, fired: 0, most, bytes };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Goes back to the start, and takes another way from there. `false` if there is none.
    pub fn rewind(&self) -> bool {
        let mut state = self.lock();
        (state.at, state.fired) = (0, 0);
        while let Some((taken, of)) = state.steps.pop() {
            if taken + 1 < of {
                state.steps.push((taken + 1, of));
                return true;
            }
        }
        false
    }

    pub(super) fn fires(&self) -> bool {
        let mut state = self.lock();
        if state.fired == state.most {
            return false;
        }
        let fires = state.next(2) == 1;
        state.fired += usize::from(fires);
        fires
    }

    pub(super) fn next(&self, of: usize) -> usize {
        self.lock().next(of)
    }

    /// Every size, if there are few; else the largest and the smallest.
    pub(super) fn size(&self, most: u64) -> u64 {
        /// So many are few: a call is dropped at each of its first awaits.
        const FEW: u64 = 8;
        let ways = if most <= FEW { most } else { 2 };
        match self.next(usize::try_from(ways).unwrap_or(1)) {
            0 => most.max(1),
            way => way as u64,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    fn next(&mut self, of: usize) -> usize {
        if of < 2 {
            return 0;
        }
        let at = self.at;
        self.at += 1;
        if let Some(bytes) = &self.bytes {
            return bytes.get(at).map_or(0, |byte| usize::from(*byte) % of);
        }
        if at == self.steps.len() {
            self.steps.push((0, of));
        }
        self.steps[at].0
    }
}
