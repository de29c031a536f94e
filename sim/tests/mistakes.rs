//! Every known mistake is found by the cases that claim it.
//!
//! Each case runs on memory with each of the mistakes that it names, and must fail: mistakes of
//! stores are made by a wrapper, those of the client by core itself. On memory in the same wrapper
//! without a mistake the case must pass, which shows that the mistake is the reason. Mistakes that
//! matter only where names are not extended are tried on the simulated store with the personality
//! of etcd.
//!
//! Prints a table: the mistake, the case, and its message. Arguments that are not options select
//! mistakes by name.

#![expect(clippy::print_stdout, reason = "its output is a table for people")]

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;

use synod_conformance::run::{Suite, Verdict};
use synod_conformance::wrong::{Mistake, Wrong};
use synod_conformance::{Case, cases};
use synod_core::mutant::{self, Mutant};
use synod_sim::cluster::Personality;

use crate::memory::{Memory, unhurried};
use crate::simulated::Simulated;

#[path = "../../backend-mem/tests/memory/mod.rs"]
mod memory;
mod simulated;

/// A mistake, of any kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Store(Mistake),
    Door(Mutant),
}

impl Known {
    fn all() -> impl Iterator<Item = Self> {
        let stores = Mistake::ALL.iter().copied().map(Self::Store);
        stores.chain(Mutant::ALL.iter().copied().map(Self::Door))
    }

    fn what(self) -> &'static str {
        match self {
            Self::Store(mistake) => mistake.what(),
            Self::Door(mutant) => mutant.what(),
        }
    }

    /// Returns `true` if a case claims to find the mistake.
    fn is_caught_by(self, case: &Case) -> bool {
        match self {
            Self::Store(mistake) => case.catches().contains(&mistake),
            Self::Door(mutant) => case.breaks().contains(&mutant),
        }
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

/// Memory in a wrapper that makes at most one mistake.
fn mistaken(mistake: Option<Mistake>) -> Memory {
    Memory::behind(unhurried(), |memory| {
        Arc::new(match mistake {
            Some(mistake) => Wrong::new(memory, mistake),
            None => Wrong::transparent(memory),
        })
    })
}

/// The verdict of a case with a mistake, or without any.
fn verdict(case: &Case, known: Option<Known>) -> Verdict {
    let run =
        |mistake| Suite::new(move || mistaken(mistake)).on_paused_time().seeded(SEED).run(case);
    match known {
        None => run(None),
        Some(Known::Store(mistake)) => run(Some(mistake)),
        // A case runs on this thread, and so does everything that it starts.
        Some(Known::Door(mutant)) => mutant::with(mutant, || match run(None) {
            Verdict::Passed => on_names_as_asked(case),
            verdict => verdict,
        }),
    }
}

fn on_names_as_asked(case: &Case) -> Verdict {
    let store = || Simulated::new(Personality::Etcd);
    Suite::new(store).on_paused_time().seeded(SEED).run(case)
}

/// Mistakes about clocks and reconnects, which only the simulation can show. Its table of known
/// mistakes has them.
const SIMULATED: [&str; 3] = ["FirstTtlKept", "SleepUncounted", "OldDatesIgnored"];

/// A fixed seed, so that two runs are equal.
const SEED: u64 = 1;

/// Runs the cases without a mistake. Returns those that fail.
fn try_without_mistake() -> Vec<String> {
    let failing = cases().filter_map(|case| match verdict(case, None) {
        Verdict::Passed => None,
        Verdict::Failed { why } => Some(format!("{} fails without a mistake: {why}", case.name())),
        Verdict::Skipped { why } => Some(format!("{} cannot run: {why}", case.name())),
    });
    failing.collect()
}

/// Runs one mistake on the cases that claim it. Returns the cases that pass.
fn try_mistake(mistake: Known) -> Vec<String> {
    let mut holes = Vec::new();
    let mut looked_for = false;
    for case in cases().filter(|case| mistake.is_caught_by(case)) {
        looked_for = true;
        let said = match verdict(case, Some(mistake)) {
            Verdict::Failed { why } => brief(&why),
            Verdict::Passed | Verdict::Skipped { .. } => {
                holes.push(format!("{mistake} gets past {}: {}", case.name(), mistake.what()));
                "NOTHING".to_owned()
            }
        };
        println!("{:<30} | {} | {said}", mistake.to_string(), case.name());
    }
    if !looked_for && !SIMULATED.contains(&mistake.to_string().as_str()) {
        holes.push(format!("{mistake} is looked for by no case: {}", mistake.what()));
    }
    holes
}

/// The message of a failure, on one line and shortened.
fn brief(why: &str) -> String {
    const LENGTH: usize = 120;
    let mut words = why.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(LENGTH) {
        words.truncate(end);
        words.push_str("...");
    }
    words
}

fn main() -> ExitCode {
    let names: Vec<_> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let chosen = |known: &Known| names.is_empty() || names.contains(&known.to_string());

    let mut holes = if names.is_empty() { try_without_mistake() } else { Vec::new() };
    let mut tried = 0;
    for known in Known::all().filter(chosen) {
        holes.extend(try_mistake(known));
        tried += 1;
    }
    for hole in &holes {
        println!("hole: {hole}");
    }
    println!("{tried} mistakes tried, {} holes", holes.len());
    if holes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
