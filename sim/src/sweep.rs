//! Histories that leave nothing to chance: a crash at every call, a drop at every await, and every way
//! through a small world.
//!
//! ```
//! use synod_sim::{Personality, Sim, sweep, workload};
//!
//! let small = workload::SMALL[0];
//! let make = || small.prepare(Sim::new(1).personality(Personality::Zk));
//! let swept = sweep::crash_anywhere(2, make);
//! assert!(swept.broken.is_none() && swept.histories > 2, "{swept:?}");
//! ```

use synod_core::choice::{Actor, Choice, Spot, Tape};
use synod_mem::cluster::{Rates, Site};

use crate::case::{Case, Shrunk};
use crate::process::DROPPED;
use crate::report::Report;
use crate::setup::Sim;

/// What came of a sweep.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Swept {
    /// How many histories there were.
    pub histories: u64,
    /// Whether they were all that there are, or it was stopped before.
    pub complete: bool,
    /// The first in which something was broken. Nothing was swept after it.
    pub broken: Option<Report>,
}

/// How far a sweep goes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scope {
    /// What may go wrong.
    pub sites: Vec<Site>,
    /// How many times in one history.
    pub faults: usize,
    /// What else every way of is gone: which server, say, or how long a message takes. All that is not among
    /// them is the first of its ways.
    pub picks: Vec<Site>,
    /// Whether no pick is gone every way of, and all are by the seed, so that each history is a
    /// [`Swept::case`].
    pub by_seed: bool,
    /// How many histories at most.
    pub histories: u64,
}

impl Scope {
    /// One of the faults that matter most in a small world.
    pub fn one_fault() -> Self {
        let sites = vec![
            Site::RequestLost,
            Site::ReplyLost,
            Site::AppliedLate,
            Site::BeatLost,
            Site::Killed,
            Site::Paused,
            Site::CutFromAll,
            Site::Behind,
            Site::CallDropped,
            Site::Crashed,
        ];
        Self { sites, faults: 1, picks: Vec::new(), by_seed: false, histories: u64::MAX }
    }

    /// As [`Scope::one_fault`], and two of them.
    pub fn two_faults() -> Self {
        Self::one_fault().faults(2)
    }

    /// Up to so many of them in one history.
    pub fn faults(mut self, most: usize) -> Self {
        self.faults = most;
        self
    }

    /// What is picked is by the seed, and not the first.
    pub fn by_seed(mut self) -> Self {
        self.by_seed = true;
        self
    }

    /// Stops after so many histories.
    pub fn at_most(mut self, histories: u64) -> Self {
        self.histories = histories;
        self
    }
}

/// L-X-2: lets each of the processes crash at each of its calls, just before and just after it was sent.
/// Nothing else goes wrong.
pub fn crash_anywhere(processes: u64, make: impl Fn() -> Sim) -> Swept {
    let mut swept = Swept { complete: true, ..Swept::default() };
    for actor in 1..=processes {
        for n in 1.. {
            let mut fired = false;
            for when in [1, 2] {
                let spot = Spot { site: Site::Crashed, actor: Actor::new(actor), n };
                let Some(report) = swept.add(with(&make, spot, when)) else { return swept };
                fired |= !report.fired.is_empty();
            }
            if !fired {
                break;
            }
        }
    }
    swept
}

/// L-X-1: drops each call that the processes make through [`Process::perhaps`](crate::Process::perhaps)
/// at each of its awaits. Nothing else goes wrong.
pub fn cancel_anywhere(processes: u64, make: impl Fn() -> Sim) -> Swept {
    let mut swept = Swept { complete: true, ..Swept::default() };
    for actor in 1..=processes {
        'calls: for n in 1.. {
            for k in 1.. {
                let spot = Spot { site: Site::CallDropped, actor: Actor::new(actor), n };
                let Some(report) = swept.add(with(&make, spot, k)) else { return swept };
                if report.fired.is_empty() {
                    break 'calls;
                }
                if report.marks.get(DROPPED).is_none_or(|dropped| *dropped == 0) {
                    break;
                }
            }
        }
    }
    swept
}

/// Goes every way through a small world: every combination of these faults, up to so many at a time.
pub fn exhaust(scope: &Scope, make: impl Fn() -> Sim) -> Swept {
    let tape = Tape::exhaustive(scope.faults);
    let mut swept = Swept::default();
    let rates = scope.sites.iter().fold(Rates::none(), |rates, site| rates.set(*site, 1_000));
    while swept.histories < scope.histories {
        let sim = make().rates(|_| rates.clone()).steady();
        let seed = sim.seed;
        let sim = if scope.by_seed {
            sim.choice(Choice::swept(seed, tape.clone()))
        } else {
            sim.choice(Choice::taped(tape.clone())).picking(scope.picks.iter().copied())
        };
        if swept.add(sim.run()).is_none() {
            return swept;
        }
        if !tape.rewind() {
            swept.complete = true;
            break;
        }
    }
    swept
}

/// A history in which this happens and nothing else.
fn with(make: impl Fn() -> Sim, spot: Spot<Site>, size: u64) -> Report {
    let sim = make();
    let choice = Choice::recorded(sim.seed, [(spot, size)]);
    sim.rates(|rates| rates.set(spot.site, 1_000)).steady().choice(choice).run()
}

impl Swept {
    /// What it takes to repeat the history in which something was broken, if that was one of a world of
    /// [`SMALL`](crate::workload::SMALL) with picks by the seed.
    pub fn case(&self, workload: &str) -> Option<Case> {
        let report = self.broken.as_ref()?;
        let mut case = Case::new(workload, report.personality, report.seed);
        case.shrunk = Some(Shrunk {
            faults: report.fired.iter().map(|it| (it.spot, it.size)).collect(),
            absent: vec![3],
            rounds: Some(1),
            steady: true,
            ..Shrunk::default()
        });
        Some(case)
    }

    /// Counts a history. `None` if something was broken in it.
    fn add(&mut self, report: Report) -> Option<Report> {
        self.histories += 1;
        if report.violation.is_some() {
            self.broken = Some(report);
            self.complete = false;
            return None;
        }
        Some(report)
    }
}
