//! [`shrink`]: reduces a history that fails to the parts that its failure needs.
//!
//! Each decision depends only on its own spot, so removing a fault does not change the others, and
//! a few trials are enough: without half of the faults, without a quarter, and so on; with fewer
//! processes and rounds; with the first option at some sites. A smaller history that still breaks
//! the same law is kept.

use crate::cluster::Site;

use crate::case::{Case, Shrunk};
use crate::report::Report;
use crate::setup::Sim;

/// The maximum number of histories to run.
const MOST: usize = 600;

/// The reduced history, and the number of trials.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Smaller {
    /// The reduced history.
    pub case: Case,
    /// The number of faults that fired before.
    pub faults_before: usize,
    /// The number of histories that were run.
    pub runs: usize,
}

/// Reduces a case to the parts that its failure needs. `None` if the case does not fail. Calls
/// `tried` after each history, with the number of histories and the number of remaining faults.
pub(crate) fn shrink(
    case: &Case,
    prepare: &dyn Fn(Sim) -> Sim,
    tried: &dyn Fn(usize, usize),
) -> Option<Smaller> {
    let whole = case.run_in(prepare, false).ok()?;
    let law = whole.violation.as_ref()?.law.clone();
    let faults: Vec<_> = whole.fired.iter().map(|it| (it.spot, it.size)).collect();
    let faults_before = faults.len();
    let kept = Shrunk { faults, ..case.shrunk.clone().unwrap_or_default() };
    let mut search =
        Search { case: case.clone(), law, prepare, tried, runs: 1, kept: kept.clone() };
    search.case.law = Some(search.law.clone());
    if search.run_case(&kept) {
        search.fewer_faults();
        search.smaller_world(&whole);
        search.calmer();
        search.fewer_faults();
    }
    let case = Case { shrunk: Some(search.kept), ..search.case };
    Some(Smaller { case, faults_before, runs: search.runs })
}

struct Search<'a> {
    case: Case,
    law: String,
    prepare: &'a dyn Fn(Sim) -> Sim,
    tried: &'a dyn Fn(usize, usize),
    runs: usize,
    kept: Shrunk,
}

impl Search<'_> {
    /// Runs a case. Returns `true` if it breaks the same law.
    fn run_case(&mut self, shrunk: &Shrunk) -> bool {
        if self.runs >= MOST {
            return false;
        }
        self.runs += 1;
        let case = Case { shrunk: Some(shrunk.clone()), ..self.case.clone() };
        let report = case.run_in(self.prepare, false);
        (self.tried)(self.runs, self.kept.faults.len());
        report.is_ok_and(|report| report.violation.is_some_and(|it| it.law == self.law))
    }

    /// Keeps a change if the case still fails.
    fn keep(&mut self, change: impl FnOnce(&mut Shrunk)) -> bool {
        let mut changed = self.kept.clone();
        change(&mut changed);
        if changed == self.kept || !self.run_case(&changed) {
            return false;
        }
        self.kept = changed;
        true
    }

    /// Removes half of the faults, then a quarter, and so on: ddmin.
    fn fewer_faults(&mut self) {
        let mut parts = 2;
        while !self.kept.faults.is_empty() {
            let size = self.kept.faults.len().div_ceil(parts);
            let mut at = 0;
            let mut less = false;
            while at < self.kept.faults.len() {
                let end = (at + size).min(self.kept.faults.len());
                let gone = self.keep(|kept| drop(kept.faults.drain(at..end)));
                less |= gone;
                at = if gone { at } else { end };
            }
            match (size, less) {
                (1, false) => break,
                (1, true) => {}
                _ => parts = (parts * 2).min(self.kept.faults.len().max(1)),
            }
        }
    }

    /// Removes some of the processes, and rounds.
    fn smaller_world(&mut self, whole: &Report) {
        for number in (1..=whole.names.len() as u64).rev() {
            if self.kept.absent.contains(&number) {
                continue;
            }
            self.keep(|kept| {
                kept.absent.push(number);
                kept.faults.retain(|(spot, _)| spot.actor.get() != number);
            });
        }
        for rounds in 1..3 {
            if self.keep(|kept| kept.rounds = Some(rounds)) {
                break;
            }
        }
        self.keep(|kept| kept.mended = true);
    }

    /// Takes the first option at some sites, and shortens faults.
    fn calmer(&mut self) {
        let sites = [Site::Delay, Site::Turn, Site::Server];
        if !self.keep(|kept| kept.still = sites.to_vec()) {
            for site in sites {
                self.keep(|kept| kept.still.push(site));
            }
        }
        for place in 0..self.kept.faults.len() {
            self.keep(|kept| kept.faults[place].1 = 1);
        }
    }
}

impl Case {
    /// Reduces the case to the parts that its failure needs. `None` if it does not fail.
    pub fn shrink(&self) -> Option<Smaller> {
        let workload = self.workload().ok()?;
        shrink(self, &|sim| workload.prepare(sim), &|_, _| ())
    }
}
