//! Exhaustive histories: a crash at every call, a drop at every await, and every combination of
//! faults in a small world.
//!
//! ```
//! use synod_sim::workload::{self, Workload as _};
//! use synod_sim::{Personality, Sim, sweep};
//!
//! let small = workload::small().next().expect("there is one");
//! let make = || small.prepare(Sim::new(1).personality(Personality::Zk));
//! let swept = sweep::crash_anywhere(2, make);
//! assert!(swept.broken.is_none() && swept.histories > 2, "{swept:?}");
//! ```

use crate::cluster::{Rates, Site};
use synod_testkit::choice::{Actor, Choice, Spot, Tape};

use crate::case::{Case, Shrunk};
use crate::process::DROPPED;
use crate::report::Report;
use crate::setup::Sim;

/// The result of a sweep.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Swept {
    /// The number of histories.
    pub histories: u64,
    /// `true` if all histories were run, `false` if it stopped early.
    pub complete: bool,
    /// The first history that broke a law. The sweep ended with it.
    pub broken: Option<Report>,
}

/// The extent of a sweep.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scope {
    /// The sites at which faults may happen.
    pub sites: Vec<Site>,
    /// The maximum number of faults in one history.
    pub faults: usize,
    /// The other sites whose options are all explored: for example the server, or the delay of a
    /// message. Sites that are not listed take their first option.
    pub picks: Vec<Site>,
    /// `true` if the seed decides all picks instead of exploring them, so that each history is a
    /// [`Swept::case`].
    pub by_seed: bool,
    /// The maximum number of histories.
    pub histories: u64,
}

impl Scope {
    /// A scope with one of the most effective faults in a small world.
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

    /// Like [`Scope::one_fault`], with up to two faults.
    pub fn two_faults() -> Self {
        Self::one_fault().faults(2)
    }

    /// Sets the maximum number of faults in one history.
    pub fn faults(mut self, most: usize) -> Self {
        self.faults = most;
        self
    }

    /// Lets the seed decide picks, instead of taking the first option.
    pub fn by_seed(mut self) -> Self {
        self.by_seed = true;
        self
    }

    /// Stops after this many histories.
    pub fn at_most(mut self, histories: u64) -> Self {
        self.histories = histories;
        self
    }
}

/// L-X-2: crashes each of the processes at each of its calls, just before and just after the
/// request is sent, without other faults.
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

/// L-X-1: drops each call that the processes make through
/// [`Process::perhaps`](crate::Process::perhaps) at each of its awaits, without other faults.
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

/// Runs every combination of these faults in a small world, up to a maximum number at a time.
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

/// A history with this fault and no other.
fn with(make: impl Fn() -> Sim, spot: Spot<Site>, size: u64) -> Report {
    let sim = make();
    let choice = Choice::recorded(sim.seed, [(spot, size)]);
    sim.rates(|rates| rates.set(spot.site, 1_000)).steady().choice(choice).run()
}

impl Swept {
    /// The case of the history that broke a law, if it belongs to one of the [small
    /// worlds](crate::workload::small) and the seed decided the picks.
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

    /// Counts a history. `None` if it broke a law.
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
