//! The decisions about faults, one for each place where a fault can fire: [`Choice`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use synod_core::random::mix;

mod tape;
#[cfg(test)]
mod tests;

pub use tape::Tape;

/// A kind of decision.
pub trait Place: Copy + Ord + fmt::Debug {
    /// A number that no other kind has, and that never changes.
    fn number(self) -> u64;
}

/// The process for which a decision is made: one client, in all its sessions; or a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Actor(u64);

impl Actor {
    /// Creates an actor with a number that the test chooses.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The place of a decision: the `n`-th time that this actor reaches this site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "tests write them down and give them back")]
pub struct Spot<S> {
    /// The kind of the fault.
    pub site: S,
    /// The process for which the decision is made.
    pub actor: Actor,
    /// The count of the times at this site, from one.
    pub n: u64,
}

/// A source of decisions: whether a fault fires at a spot, its size, and the next choice of a
/// workload.
///
/// With a seed, a decision depends only on the seed and the spot. So a run can be repeated, and a
/// fault can be switched off without a change of the others: so a long run that fails is reduced to
/// the few faults that matter.
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
    /// These faults with these sizes; the seed makes all other decisions.
    Recorded(u64, Arc<BTreeMap<Spot<S>, u64>>),
    Taped(Tape),
    /// The tape decides faults; the seed decides picks.
    Swept(u64, Tape),
}

impl<S: Place> Choice<S> {
    /// Creates a source without random decisions.
    pub fn never() -> Self {
        Self::of(Decisions::Never)
    }

    /// Creates a source from a seed.
    pub fn seeded(seed: u64) -> Self {
        Self::of(Decisions::Seeded(seed))
    }

    /// Creates a source in which these faults fire, each with its size, and no others. Picks use
    /// the seed.
    pub fn recorded(seed: u64, faults: impl IntoIterator<Item = (Spot<S>, u64)>) -> Self {
        Self::of(Decisions::Recorded(seed, Arc::new(faults.into_iter().collect())))
    }

    /// Creates a source from a tape: every sequence of decisions in turn, or a sequence from bytes.
    pub fn taped(tape: Tape) -> Self {
        Self::of(Decisions::Taped(tape))
    }

    /// Creates a source in which a tape decides which faults fire, and their sizes; picks use this
    /// seed. [`Choice::recorded`] repeats every such run from the faults that fired.
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

    /// Makes these sites deterministic: each pick there is zero.
    pub fn still(mut self, sites: impl IntoIterator<Item = S>) -> Self {
        self.still.extend(sites);
        self
    }

    /// Returns `true` if a fault of this rate fires. Disabled faults are removed only after that,
    /// so that no later fault fires in their place.
    pub fn fires(&self, spot: Spot<S>, permille: u32) -> bool {
        match &self.source {
            Decisions::Never => false,
            Decisions::Seeded(seed) => draw(*seed, spot, 0) % 1_000 < u64::from(permille),
            Decisions::Recorded(_, faults) => faults.contains_key(&spot),
            Decisions::Taped(tape) | Decisions::Swept(_, tape) => permille > 0 && tape.fires(),
        }
    }

    /// Returns `true` if the fault at this spot is switched off.
    pub fn is_off(&self, spot: Spot<S>) -> bool {
        !self.off.is_empty() && self.off.contains(&spot)
    }

    /// Returns a number from one to `most`, mostly a small one; `most` itself without randomness.
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

    /// Returns a number below `n`, uniformly distributed; zero without randomness.
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
    /// The maximum number of times that a size is halved: seldom large, and never zero.
    const HALVINGS: u64 = 6;
    let most = (most >> (draw(seed, spot, 1) % HALVINGS)).max(1);
    1 + draw(seed, spot, 2) % most
}

/// Returns the number that belongs to a spot. `part` distinguishes the decisions at one spot.
fn draw<S: Place>(seed: u64, spot: Spot<S>, part: u64) -> u64 {
    let site = spot.site.number();
    [site, spot.actor.0, spot.n, part].into_iter().fold(seed, |drawn, next| mix(drawn ^ mix(next)))
}
