//! Differential tests: the same program on several stores, compared.
//!
//! A program is a random sequence of calls of three sessions, generated from a seed, without
//! concurrency. Unless the contract leaves a choice, the results must be the same on every store:
//! outcomes, the first operation that failed and the reason, kinds of errors, views, the tree at
//! the end, the events of watches. Where the contract leaves a choice, results are translated or
//! ignored:
//!
//! - Numbers are paired when they are first seen together: one revision, version or owner of one
//!   store corresponds to one of the other, and revisions order the events in the same way.
//! - The suffix that a store adds to the name of a sequential node is removed.
//! - An empty container may still be listed, and deleted. If that affects other writes, the program
//!   ends there.
//! - Local reads of a session are compared once it must have seen the last write.
//! - Optional stats and revisions may be missing.
//! - Events are not compared with each other, but with the changes that happened: only those are
//!   reported, and for each path at least the last one.
//!
//! `SYNOD_SEED` repeats a run, and `SYNOD_PROGRAMS` makes it longer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use synod_core::random::mix;
use tokio::time::Instant;

use crate::harness::Harness;
use lockstep::{Difference, Lockstep, Ran};

mod comparison;
mod events;
mod generate;
mod lockstep;
mod model;
mod neutral;
mod program;
mod shrink;
mod side;

pub use program::Program;

/// The number of programs that run concurrently, each in its own directory, because stores spend
/// most of the time waiting.
const LANES: usize = 4;

/// The stores to compare, and the number of programs.
#[derive(Clone, Debug)]
pub struct Comparison {
    stores: Vec<Arc<dyn Harness>>,
    seed: u64,
    programs: usize,
    limit: Option<Duration>,
}

/// A comparison that found no difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// The number of programs that ran to their end.
    pub whole: usize,
    /// The number of programs that ended early: at a container that only one store still had, or a
    /// store that did not answer.
    pub part: usize,
}

/// A program whose results differ between stores.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Found {
    /// The seed of the program; with it the run begins with this program.
    pub seed: u64,
    /// The program, reduced to the steps that the difference needs.
    pub program: Program,
    /// The number of programs that ran before it.
    pub before: usize,
    difference: Difference,
}

impl Comparison {
    /// Compares the other stores with the first. Each harness has its own store.
    pub fn new(stores: &[Arc<dyn Harness>], seed: u64) -> Self {
        Self { stores: stores.to_vec(), seed, programs: 100, limit: None }
    }

    /// Sets the number of programs.
    pub fn programs(mut self, programs: usize) -> Self {
        self.programs = programs;
        self
    }

    /// Sets the time after which no program is started.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Takes the number of programs from `SYNOD_PROGRAMS`, without a time limit, and the seed from
    /// `SYNOD_SEED`.
    pub fn from_environment(mut self) -> Self {
        let said = |name| std::env::var(name).ok();
        if let Some(programs) = said("SYNOD_PROGRAMS").and_then(|text| text.parse().ok()) {
            (self.programs, self.limit) = (programs, None);
        }
        if let Some(seed) = said("SYNOD_SEED").and_then(|text| seed(&text)) {
            self.seed = seed;
        }
        self
    }

    /// Runs the programs, up to the first one whose results differ.
    ///
    /// # Errors
    ///
    /// The program, reduced, and the difference.
    ///
    /// # Panics
    ///
    /// If a store opens no session.
    pub async fn run(&self) -> Result<Tally, Box<Found>> {
        let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        let begin = Instant::now();
        let take = || {
            let late = self.limit.is_some_and(|limit| begin.elapsed() > limit);
            if late || stopped.load(Ordering::Relaxed) {
                return None;
            }
            let number = next.fetch_add(1, Ordering::Relaxed);
            (number < self.programs).then_some(number)
        };
        let stop = || stopped.store(true, Ordering::Relaxed);
        let lanes = join_all((0..LANES.min(self.programs)).map(|_| self.lane(take, stop))).await;
        let mut all = Tally::default();
        for lane in lanes {
            let tally = lane?;
            all.whole += tally.whole;
            all.part += tally.part;
        }
        Ok(all)
    }

    /// Runs one program after the other, concurrently with other lanes, each in its own directory.
    async fn lane(
        &self,
        take: impl Fn() -> Option<usize>,
        stop: impl Fn(),
    ) -> Result<Tally, Box<Found>> {
        let (mut stores, mut tally) = (Lockstep::new(&self.stores).await, Tally::default());
        while let Some(number) = take() {
            // The first seed is the given one, so that the seed of a failed program repeats it.
            let nth = u64::try_from(number).unwrap_or_default();
            let seed = if nth == 0 { self.seed } else { mix(self.seed ^ mix(nth)) };
            let program = generate::program(seed, stores.palette());
            match stores.run(&program).await {
                Ok(Ran::Whole) => tally.whole += 1,
                Ok(Ran::Part) => tally.part += 1,
                Err(difference) => {
                    stop();
                    let (program, difference) =
                        shrink::shrink(&mut stores, program, difference).await;
                    return Err(Box::new(Found { seed, program, before: number, difference }));
                }
            }
        }
        Ok(tally)
    }
}

/// A seed as it is printed: in hexadecimal.
fn seed(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { whole, part } = self;
        write!(f, "{} programs: {whole} whole, {part} in part", whole + part)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, program, before, difference } = self;
        writeln!(f, "the stores differ, after {before} programs on which they did not")?;
        writeln!(f, "{difference}")?;
        write!(f, "{program}repeat it with SYNOD_SEED={seed:#x}")
    }
}
