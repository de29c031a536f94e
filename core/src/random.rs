//! The source of all ids and random choices, from one seed: [`Random`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of ids and random choices. The same seed gives the same values, so that a run can be
/// repeated. Clones share one sequence.
#[derive(Clone)]
pub struct Random(Arc<Source>);

struct Source {
    seed: u64,
    count: AtomicU64,
}

impl Random {
    /// Creates a source with a random seed from the operating system.
    ///
    /// # Panics
    ///
    /// If the operating system provides no random bytes; every supported one does.
    pub fn from_system() -> Self {
        let mut bytes = [0; 8];
        #[expect(clippy::disallowed_methods, reason = "the one place where randomness comes in")]
        let filled = getrandom::fill(&mut bytes);
        filled.expect("the operating system gives random bytes");
        Self::seeded(u64::from_le_bytes(bytes))
    }

    /// Creates a source with this seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Source { seed, count: AtomicU64::new(0) }))
    }

    /// Returns the next number.
    pub fn number(&self) -> u64 {
        let count = self.0.count.fetch_add(1, Ordering::Relaxed);
        mix(self.0.seed ^ mix(count))
    }

    /// Returns the next number below `n`, or zero if `n` is zero.
    pub fn below(&self, n: u64) -> u64 {
        // The bias of the remainder is below 2^-32 for every `n` used in this project.
        if n == 0 { 0 } else { self.number() % n }
    }

    /// Returns a unique id of 32 hex digits.
    pub fn id(&self) -> String {
        format!("{:016x}{:016x}", self.number(), self.number())
    }

    /// Returns an independent source, for a part of the program whose random choices must not
    /// change the choices of other parts.
    pub fn fork(&self, part: u64) -> Self {
        Self::seeded(mix(self.0.seed ^ mix(part.wrapping_add(0x9E37_79B9_7F4A_7C15))))
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Random({:#x})", self.0.seed)
    }
}

/// Mixes a number so that every bit depends on every other (the last step of `SplitMix64`).
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
