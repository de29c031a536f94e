//! [`Choice`]: which faults fire, decided anew for each place where one could.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use synod_core::random::mix;

mod tape;
#[cfg(test)]
mod tests;

pub use tape::Tape;

/// A kind of place where something is decided.
pub trait Place: Copy + Ord + fmt::Debug {
    /// A number that no other kind has, and that stays.
    fn number(self) -> u64;
}

/// The process that a decision is made for: one client, in all of its sessions; a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Actor(u64);

impl Actor {
    /// An actor by a number of the test's choosing.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A place where a decision is made: the `n`-th time that this actor comes to this site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "tests write them down and give them back")]
pub struct Spot<S> {
    /// What could go wrong there.
    pub site: S,
    /// The process that the decision is made for.
    pub actor: Actor,
    /// Which time it is, from one.
    pub n: u64,
}

/// Decides whether a fault fires at a spot, how large it is, and what comes next.
///
/// By a seed, a decision depends on the seed and the spot, and on nothing else. So a run can be
/// repeated, and one fault can be switched off and leave all others where they were: that is how a
/// long run that fails is cut down to the few faults that matter.
#[derive(Clone, Debug)]
pub struct Choice<S> {
    source: Decisions<S>,
    off: BTreeSet<Spot<S>>,
    still: BTreeSet<S>,
}

#[derive(Clone, Debug)]
enum Decisions<S> {
    Never,
    Seeded(u64),
    /// These faults with these sizes; all else by the seed.
    Recorded(u64, Arc<BTreeMap<Spot<S>, u64>>),
    Taped(Tape),
    /// Faults by a tape; what is picked, by the seed.
    Swept(u64, Tape),
}

impl<S: Place> Choice<S> {
    /// Nothing by chance.
    pub fn never() -> Self {
        Self::of(Decisions::Never)
    }

    /// By this seed.
    pub fn seeded(seed: u64) -> Self {
        Self::of(Decisions::Seeded(seed))
    }

    /// These faults fire, each with its size, and no others. What else is picked is by the seed.
    pub fn recorded(seed: u64, faults: impl IntoIterator<Item = (Spot<S>, u64)>) -> Self {
        Self::of(Decisions::Recorded(seed, Arc::new(faults.into_iter().collect())))
    }

    /// By a tape: every way in turn, or by bytes that the maker of the tape chose.
    pub fn taped(tape: Tape) -> Self {
        Self::of(Decisions::Taped(tape))
    }

    /// Which faults fire, and how large they are, by a tape; what is picked, by this seed. Whatever the
    /// run does, [`Choice::recorded`] repeats it from what fired.
    pub fn swept(seed: u64, tape: Tape) -> Self {
        Self::of(Decisions::Swept(seed, tape))
    }

    fn of(source: Decisions<S>) -> Self {
        Self { source, off: BTreeSet::new(), still: BTreeSet::new() }
    }

    /// Switches off the faults at these spots.
    pub fn without(mut self, spots: impl IntoIterator<Item = Spot<S>>) -> Self {
        self.off.extend(spots);
        self
    }

    /// Leaves nothing to chance at these sites: what is picked there is zero.
    pub fn still(mut self, sites: impl IntoIterator<Item = S>) -> Self {
        self.still.extend(sites);
        self
    }

    /// Whether a fault of this rate fires. Faults that are switched off are left out later: leaving one out
    /// must not let a fault fire that comes after it.
    pub fn fires(&self, spot: Spot<S>, permille: u32) -> bool {
        match &self.source {
            Decisions::Never => false,
            Decisions::Seeded(seed) => draw(*seed, spot, 0) % 1_000 < u64::from(permille),
            Decisions::Recorded(_, faults) => faults.contains_key(&spot),
            Decisions::Taped(tape) | Decisions::Swept(_, tape) => permille > 0 && tape.fires(),
        }
    }

    /// Whether the fault at this spot is switched off.
    pub fn is_off(&self, spot: Spot<S>) -> bool {
        !self.off.is_empty() && self.off.contains(&spot)
    }

    /// A number from one to `most`, mostly a small one; `most` itself where nothing is left to
    /// chance.
    pub fn size(&self, spot: Spot<S>, most: u64) -> u64 {
        match &self.source {
            Decisions::Never => most,
            Decisions::Seeded(seed) => size(*seed, spot, most),
            Decisions::Recorded(seed, faults) => {
                faults.get(&spot).copied().unwrap_or_else(|| size(*seed, spot, most))
            }
            Decisions::Taped(tape) | Decisions::Swept(_, tape) => tape.size(most),
        }
    }

    /// A number below `n`, each as likely; zero where nothing is left to chance.
    pub fn pick(&self, spot: Spot<S>, n: u64) -> u64 {
        if !self.still.is_empty() && self.still.contains(&spot.site) {
            return 0;
        }
        match &self.source {
            Decisions::Never => 0,
            Decisions::Seeded(seed) | Decisions::Recorded(seed, _) | Decisions::Swept(seed, _) => {
                draw(*seed, spot, 3) % n.max(1)
            }
            Decisions::Taped(tape) => {
                usize::try_from(n).map_or(0, |n| tape.next(n)).try_into().unwrap_or(0)
            }
        }
    }
}

impl<S: Place> Default for Choice<S> {
    fn default() -> Self {
        Self::never()
    }
}

fn size<S: Place>(seed: u64, spot: Spot<S>, most: u64) -> u64 {
    /// A size is at most this many times halved: seldom large, and never nothing.
    const HALVINGS: u64 = 6;
    let most = (most >> (draw(seed, spot, 1) % HALVINGS)).max(1);
    1 + draw(seed, spot, 2) % most
}

/// The number that belongs to a spot. `part` distinguishes the questions that are asked there.
fn draw<S: Place>(seed: u64, spot: Spot<S>, part: u64) -> u64 {
    let site = spot.site.number();
    [site, spot.actor.0, spot.n, part].into_iter().fold(seed, |drawn, next| mix(drawn ^ mix(next)))
}
