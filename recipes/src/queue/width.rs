//! [`Width`]: among how many of the first items a consumer chooses. Pure.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::mutant::mistake;

/// The parts of an item in which a width is counted, so that it becomes smaller by less than one item at a time.
const PARTS: usize = 32;

/// The largest width.
const WIDEST: usize = 16 * PARTS;

/// Among how many of the first items a consumer chooses: the more, the more often other consumers are faster.
#[derive(Debug)]
pub(super) struct Width {
    parts: AtomicUsize,
}

impl Default for Width {
    /// The first item.
    fn default() -> Self {
        Self { parts: AtomicUsize::new(PARTS) }
    }
}

impl Width {
    pub(super) fn get(&self) -> usize {
        mistake!(ConsumersHerd: return 1);
        self.parts().div_ceil(PARTS)
    }

    /// Records whether another consumer was faster.
    pub(super) fn learn(&self, lost: bool) {
        let parts = self.parts();
        self.set(if lost { parts * 4 } else { parts - parts / PARTS });
    }

    /// Records that there were fewer items than this width, and that no other consumer came for them.
    pub(super) fn halve(&self, width: usize) {
        self.set(width * PARTS / 2);
    }

    fn parts(&self) -> usize {
        self.parts.load(Ordering::Relaxed)
    }

    fn set(&self, parts: usize) {
        self.parts.store(parts.clamp(PARTS, WIDEST), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_fast_and_becomes_smaller_slowly() {
        let width = Width::default();
        width.learn(false);
        assert_eq!(width.get(), 1);
        for expected in [4, 16, 16] {
            width.learn(true);
            assert_eq!(width.get(), expected);
        }
        for _ in 0..3 {
            width.learn(false);
        }
        assert_eq!(width.get(), 15);
        for (before, expected) in [(7, 4), (4, 2), (2, 1), (1, 1)] {
            width.halve(before);
            assert_eq!(width.get(), expected);
        }
        width.learn(true);
        for _ in 0..30 {
            width.learn(false);
        }
        assert_eq!(width.get(), 2, "for a while");
        for _ in 0..30 {
            width.learn(false);
        }
        assert_eq!(width.get(), 1);
    }
}
