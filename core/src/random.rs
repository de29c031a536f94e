//! [`Random`]: every id and every random choice, from one seed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of ids and choices. With the same seed it gives the same ones, so that a run can be
/// repeated; clones draw from the same source.
#[derive(Clone)]
pub struct Random(Arc<Source>);

struct Source {
    seed: u64,
    drawn: AtomicU64,
}

impl Random {
    /// A source that no other process has.
    ///
    /// # Panics
    ///
    /// If the operating system has no random bytes to give, which no supported one does.
    pub fn from_system() -> Self {
        let mut bytes = [0; 8];
        #[expect(clippy::disallowed_methods, reason = "the one place where randomness comes in")]
        let filled = getrandom::fill(&mut bytes);
        filled.expect("the operating system gives random bytes");
        Self::seeded(u64::from_le_bytes(bytes))
    }

    /// The source with this seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Source { seed, drawn: AtomicU64::new(0) }))
    }

    /// The next number.
    pub fn number(&self) -> u64 {
        let drawn = self.0.drawn.fetch_add(1, Ordering::Relaxed);
        mix(self.0.seed ^ mix(drawn))
    }

    /// The next number below `n`, or zero if `n` is.
    pub fn below(&self, n: u64) -> u64 {
        // The bias of the remainder is below 2^-32 for every n that is used here.
        if n == 0 { 0 } else { self.number() % n }
    }

    /// A unique id of 32 hex digits.
    pub fn id(&self) -> String {
        format!("{:016x}{:016x}", self.number(), self.number())
    }

    /// A source of its own, for a part whose draws shall not shift those of the others.
    pub fn fork(&self, part: u64) -> Self {
        Self::seeded(mix(self.0.seed ^ mix(part.wrapping_add(0x9E37_79B9_7F4A_7C15))))
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chance({:#x})", self.0.seed)
    }
}

/// Stirs a number until every bit depends on every other (`SplitMix64`'s last step).
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_forks_do_not_shift_each_other() {
        let draw = |random: &Random| (0..8).map(|_| random.number()).collect::<Vec<_>>();
        let (a, b) = (Random::seeded(7), Random::seeded(7));
        let forked = draw(&a.fork(1));
        assert_eq!(draw(&a), draw(&b));
        assert_eq!(draw(&b.fork(1)), forked);
        assert_ne!(draw(&b.fork(2)), forked);
        assert_ne!(Random::from_system().id(), Random::from_system().id());
    }
}
