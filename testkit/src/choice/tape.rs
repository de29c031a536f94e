//! A sequence of decisions in place of random ones: [`Tape`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Decisions, in the order in which they are requested. Clones share the tape.
#[derive(Clone, Debug)]
pub struct Tape(Arc<Mutex<Progress>>);

#[derive(Debug)]
struct Progress {
    /// The decisions so far, each with its number of options.
    steps: Vec<(usize, usize)>,
    at: usize,
    /// The number of faults that fired in this sequence, and the maximum.
    fired: usize,
    most: usize,
    /// The bytes that decide; without them, all sequences are tried in turn.
    bytes: Option<Vec<u8>>,
}

impl Tape {
    /// Creates a tape of every sequence in turn, each with at most `most` faults: run,
    /// [`Tape::rewind`], and run again, until no sequence is left.
    pub fn exhaustive(most: usize) -> Self {
        Self::of(most, None)
    }

    /// Creates a tape of one sequence, from bytes that the caller chose. After the last byte
    /// nothing fires.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::of(usize::MAX, Some(bytes.into()))
    }

    fn of(most: usize, bytes: Option<Vec<u8>>) -> Self {
        let state = Progress { steps: Vec::new(), at: 0, fired: 0, most, bytes };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Goes back to the start, and selects the next sequence. `false` if there is none.
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

    /// Returns every size, if there are few; otherwise the smallest and the largest.
    pub(super) fn size(&self, most: u64) -> u64 {
        /// The number of sizes that are few: a call is dropped at each of its first awaits.
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
