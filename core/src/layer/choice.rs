//! [`Choice`]: which faults fire, decided anew for each place where one could.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::chance::mix;

/// What can go wrong with a call, or how it can take long.
///
/// At most one of those that take its course away happens to a call, the first in this order;
/// being slow may come on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Site {
    /// The store refuses who calls: `Denied`, nothing happens.
    Denied,
    /// The store fails, as one without space does: `Backend`, nothing happens.
    Broken,
    /// There is no way to send anything: `Unreachable`, with no effect for certain.
    Unsent,
    /// A write happens after its caller was told `Unreachable`, with unknown effect.
    AppliedLate,
    /// The request is lost: nothing happens, and the caller cannot know.
    RequestLost,
    /// The reply is lost: it happened, and the caller cannot know.
    ReplyLost,
    /// The request goes nowhere, and nothing says so until the session's time to live is over.
    RequestHeld,
    /// It happens, and no reply comes until the session's time to live is over.
    ReplyHeld,
    /// The request takes its time.
    RequestSlow,
    /// The reply takes its time.
    ReplySlow,
}

impl Site {
    /// Those that take away a call's course, the first to fire first.
    pub(super) const FATES: [Self; 8] = [
        Self::Denied,
        Self::Broken,
        Self::Unsent,
        Self::AppliedLate,
        Self::RequestLost,
        Self::ReplyLost,
        Self::RequestHeld,
        Self::ReplyHeld,
    ];
}

/// Whose calls they are: one client, in all of its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Actor(u64);

impl Actor {
    /// An actor by a number of the test's choosing.
    pub const fn new(number: u64) -> Self {
        Self(number)
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
pub struct Spot {
    /// What could go wrong there.
    pub site: Site,
    /// For whom.
    pub actor: Actor,
    /// Which time it is, from one.
    pub n: u64,
}

/// Decides by a seed whether a fault fires at a spot, and how large it is.
///
/// A decision depends on the seed and the spot, and on nothing else. So a run can be repeated, and
/// one fault can be switched off and leave all others where they were: that is how a long run that
/// fails is cut down to the few faults that matter.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    seed: Option<u64>,
    off: BTreeSet<Spot>,
}

impl Choice {
    /// Nothing by chance.
    pub fn never() -> Self {
        Self::default()
    }

    /// By this seed.
    pub fn seeded(seed: u64) -> Self {
        Self { seed: Some(seed), off: BTreeSet::new() }
    }

    /// Switches off the faults at these spots.
    pub fn without(mut self, spots: impl IntoIterator<Item = Spot>) -> Self {
        self.off.extend(spots);
        self
    }

    /// Whether a fault of this rate fires. What is switched off is a matter for later: it must not
    /// bring out a fault that stood behind it.
    pub(super) fn fires(&self, spot: Spot, permille: u32) -> bool {
        let drawn = self.seed.map(|seed| draw(seed, spot, 0) % 1_000);
        drawn.is_some_and(|drawn| drawn < u64::from(permille))
    }

    pub(super) fn is_off(&self, spot: Spot) -> bool {
        self.off.contains(&spot)
    }

    /// A number from one to `most`, mostly a small one; `most` itself where nothing is left to
    /// chance.
    pub(super) fn size(&self, spot: Spot, most: u64) -> u64 {
        /// A size is at most this many times halved: seldom large, and never nothing.
        const HALVINGS: u64 = 6;
        let Some(seed) = self.seed else { return most };
        let most = (most >> (draw(seed, spot, 1) % HALVINGS)).max(1);
        1 + draw(seed, spot, 2) % most
    }
}

/// The number that belongs to a spot. `part` tells apart what is asked there.
fn draw(seed: u64, spot: Spot, part: u64) -> u64 {
    let site = spot.site as u64;
    [site, spot.actor.0, spot.n, part].into_iter().fold(seed, |drawn, next| mix(drawn ^ mix(next)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spots() -> impl Iterator<Item = Spot> {
        let actor = |number| (1..=500).map(move |n| (Actor(number), n));
        (0..2)
            .flat_map(actor)
            .flat_map(|(actor, n)| Site::FATES.map(|site| Spot { site, actor, n }))
    }

    fn fired(choice: &Choice, permille: u32) -> Vec<Spot> {
        spots().filter(|spot| choice.fires(*spot, permille)).collect()
    }

    #[test]
    fn a_seed_repeats_itself_whatever_is_asked_in_between() {
        let all = fired(&Choice::seeded(7), 100);
        assert_eq!(fired(&Choice::seeded(7), 100), all);
        assert_ne!(fired(&Choice::seeded(8), 100), all);
        let backwards: Vec<Spot> = spots().collect();
        let mut again: Vec<Spot> = backwards
            .into_iter()
            .rev()
            .filter(|spot| Choice::seeded(7).fires(*spot, 100))
            .collect();
        again.reverse();
        assert_eq!(again, all);
    }

    #[test]
    fn rates_are_kept_and_a_higher_rate_only_adds() {
        let choice = Choice::seeded(7);
        let (low, high) = (fired(&choice, 100), fired(&choice, 200));
        assert!((700..900).contains(&low.len()), "{} of 8000 at 10 %", low.len());
        assert!(low.iter().all(|spot| high.contains(spot)));
        assert_eq!(fired(&choice, 1_000).len(), 8_000);
        assert_eq!(fired(&choice, 0).len(), 0);
        assert_eq!(fired(&Choice::never(), 1_000).len(), 0);
    }

    #[test]
    fn sizes_are_more_than_nothing_and_seldom_large() {
        let choice = Choice::seeded(7);
        let sizes: Vec<u64> = spots().map(|spot| choice.size(spot, 1_000)).collect();
        assert!(sizes.iter().all(|size| (1..=1_000).contains(size)));
        let large = sizes.iter().filter(|size| **size > 500).count();
        assert!((400..1_000).contains(&large), "{large} of 8000 above one half");
        let spot = spots().next().expect("many");
        assert_eq!(choice.size(spot, 0), 1);
        assert_eq!(Choice::never().size(spot, 7), 7);
    }
}
