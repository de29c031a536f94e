//! [`shuffled`]: several processes that choose from one list seldom choose the same first.

use synod_core::random::Random;

/// These in a random order.
pub(super) fn shuffled<T>(mut all: Vec<T>, random: &Random) -> Vec<T> {
    for last in (1..all.len()).rev() {
        let other = random.below(u64::try_from(last + 1).unwrap_or(1));
        all.swap(last, usize::try_from(other).unwrap_or(0));
    }
    all
}
