//! [`Decisions`]: every decision of a simulated world, and a list of the faults.

use std::collections::BTreeSet;
use std::time::Duration;

use synod_testkit::choice::{Actor, Choice, Spot};

use crate::cluster::site::{Rates, Site};

/// The actor number of the first server. The world is 0, and the processes count from 1.
pub(super) const SERVERS: u64 = 100;

/// Makes decisions by a [`Choice`], and counts the visits of each actor to each site for it.
#[derive(Debug)]
pub struct Decisions {
    choice: Choice<Site>,
    rates: Rates,
    /// The visits of each process to each site; then the same for each server.
    counts: [Vec<[u32; Site::COUNT]>; 2],
    calm: bool,
    /// The sites whose picks are explored; picks at other sites are always the first option.
    picks: Option<BTreeSet<Site>>,
    fired: Vec<Fired>,
}

/// A fault that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fired {
    /// The spot of the decision, which [`Choice::without`] takes to switch it off.
    pub spot: Spot<Site>,
    /// Its size, in the unit of its kind.
    pub size: u64,
}

impl Decisions {
    pub(super) fn new(choice: Choice<Site>, rates: Rates) -> Self {
        Self {
            choice,
            rates,
            counts: [Vec::new(), Vec::new()],
            calm: false,
            picks: None,
            fired: Vec::new(),
        }
    }

    /// Decides whether a fault happens here for this actor, and its size: at most `most`.
    pub fn fires(&mut self, site: Site, actor: u64, most: u64) -> Option<u64> {
        let permille = self.rates.of(site);
        if self.calm || permille == 0 {
            return None;
        }
        let spot = self.spot(site, actor);
        if !self.choice.fires(spot, permille) {
            return None;
        }
        let large = self.choice.size(spot, most);
        if self.choice.is_off(spot) {
            return None;
        }
        self.fired.push(Fired { spot, size: large });
        Some(large)
    }

    /// Like [`Decisions::fires`], for a fault that lasts for some time.
    pub fn lasting(&mut self, site: Site, actor: u64, most: Duration) -> Option<Duration> {
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        self.fires(site, actor, most).map(Duration::from_millis)
    }

    /// A number below `n`.
    pub fn pick(&mut self, site: Site, actor: u64, n: u64) -> u64 {
        if self.picks.as_ref().is_some_and(|picks| !picks.contains(&site)) {
            return 0;
        }
        let spot = self.spot(site, actor);
        self.choice.pick(spot, n)
    }

    /// Restricts picks from now on: at other sites they are always the first option.
    pub fn pick_only(&mut self, sites: impl IntoIterator<Item = Site>) {
        self.picks = Some(sites.into_iter().collect());
    }

    /// The faults so far, in order.
    pub fn fired(&self) -> &[Fired] {
        &self.fired
    }

    /// Switches all faults off from now on.
    pub fn calm(&mut self) {
        self.calm = true;
    }

    fn spot(&mut self, site: Site, actor: u64) -> Spot<Site> {
        let (kind, place) = if actor < SERVERS { (0, actor) } else { (1, actor - SERVERS) };
        let counts = &mut self.counts[kind];
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        if place >= counts.len() {
            counts.resize(place + 1, [0; Site::COUNT]);
        }
        let count = &mut counts[place][site.index()];
        *count += 1;
        Spot { site, actor: Actor::new(actor), n: u64::from(*count) }
    }
}
