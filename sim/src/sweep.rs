//! One thing goes wrong, at every place where it can: each call dropped at each of its awaits, each process
//! killed at each of its requests. Not by chance, but one place after the other until there is none left.

use synod_core::choice::{Actor, Spot};
use synod_mem::cluster::{Personality, Site};

use crate::case::{BadCase, Case, Shrunk};

/// What a sweep brought.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use = "a failure that nobody looks at is none"]
pub struct Sweep {
    /// How many histories there were, each with its thing gone wrong.
    pub histories: u64,
    /// The first that failed, if any did.
    pub failure: Option<Case>,
}

/// Drops each call of a workload that goes through [`Process::perhaps`](crate::Process::perhaps), at
/// each of its awaits.
///
/// # Errors
///
/// If there is no such workload.
pub fn cancel_anywhere(
    workload: &str,
    personality: Personality,
    seed: u64,
) -> Result<Sweep, BadCase> {
    sweep(&Case::new(workload, personality, seed), Site::CallDropped)
}

/// Kills each process of a workload at each request that it sends: what runs in it is gone, and it starts
/// again later.
///
/// # Errors
///
/// If there is no such workload.
pub fn crash_anywhere(
    workload: &str,
    personality: Personality,
    seed: u64,
) -> Result<Sweep, BadCase> {
    sweep(&Case::new(workload, personality, seed), Site::Crashed)
}

fn sweep(bare: &Case, site: Site) -> Result<Sweep, BadCase> {
    let mut sweep = Sweep { histories: 0, failure: None };
    let mut actor = 0;
    loop {
        actor += 1;
        let reached = (1..).try_fold(0, |reached, n| {
            let spot = Spot { site, actor: Actor::new(actor), n };
            match sweep.places(bare, spot) {
                Ok(true) => Ok(reached + 1),
                Ok(false) => Err(Ok(reached)),
                Err(error) => Err(Err(error)),
            }
        });
        match reached {
            Err(Err(error)) => return Err(error),
            // Nobody has this number.
            Ok(0) | Err(Ok(0)) => return Ok(sweep),
            _ if sweep.failure.is_some() => return Ok(sweep),
            _ => {}
        }
    }
}

impl Sweep {
    /// Every size of what goes wrong at a spot: at which of its awaits a call is dropped. Whether
    /// anybody came to the spot.
    fn places(&mut self, bare: &Case, spot: Spot<Site>) -> Result<bool, BadCase> {
        let mut last = None;
        for size in 1.. {
            let mut case = bare.clone();
            case.shrunk =
                Some(Shrunk { faults: vec![(spot, size)], steady: true, ..Shrunk::default() });
            let report = case.run(false)?;
            if report.fired.is_empty() || self.failure.is_some() {
                return Ok(false);
            }
            // Nothing is new: the call came to its end before.
            if last == Some(report.hash) {
                break;
            }
            self.histories += 1;
            last = Some(report.hash);
            if let Some(violation) = report.violation {
                case.law = Some(violation.law);
                self.failure = Some(case);
            }
        }
        Ok(true)
    }
}
