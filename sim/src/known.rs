//! [`Known`]: mistakes of stores and of the door, for testing the workloads.

use std::collections::BTreeMap;
use std::fmt;

use synod_conformance::wrong::Mistake;
use synod_core::mutant::{self, Mutant};

use crate::report::Report;
use crate::setup::Sim;

/// A known mistake, wherever it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums, reason = "a mistake is made on one side or the other")]
pub enum Known {
    /// By the store, around which a wrapper makes it.
    Store(Mistake),
    /// By the code of the door.
    Door(Mutant),
}

impl Known {
    /// Every one of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let stores = Mistake::ALL.iter().copied().map(Self::Store);
        stores.chain(Mutant::ALL.iter().copied().map(Self::Door))
    }

    /// The mistake with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().find(|known| known.to_string() == name)
    }

    /// What it gets wrong, in a sentence.
    pub fn what(self) -> &'static str {
        match self {
            Self::Store(mistake) => mistake.what(),
            Self::Door(mutant) => mutant.what(),
        }
    }

    /// Runs a history in which it is made.
    pub fn run(self, sim: Sim) -> Report {
        match self {
            Self::Store(mistake) => sim.mistake(mistake).run(),
            Self::Door(mutant) => mutant::with(mutant, || sim.run()),
        }
    }
}

/// How a mistake was caught.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Caught {
    /// The first seed that caught it.
    pub first: Option<u64>,
    /// How many seeds were tried, and how many caught it.
    pub tried: u64,
    /// How many caught it.
    pub caught: u64,
    /// Which laws it broke, and how often.
    pub laws: BTreeMap<String, u64>,
}

impl Known {
    /// Runs so many histories in which it is made, from seed 0, and counts those that noticed. `make` is
    /// given the seed. Stops at the first that does if `once`.
    pub fn hunt(self, seeds: u64, once: bool, make: impl Fn(u64) -> Sim) -> Caught {
        let mut all = Caught::default();
        for seed in 0..seeds {
            all.tried += 1;
            if let Some(violation) = self.run(make(seed)).violation {
                all.first.get_or_insert(seed);
                all.caught += 1;
                *all.laws.entry(violation.law).or_default() += 1;
                if once {
                    break;
                }
            }
        }
        all
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(mistake) => mistake.fmt(f),
            Self::Door(mutant) => mutant.fmt(f),
        }
    }
}
